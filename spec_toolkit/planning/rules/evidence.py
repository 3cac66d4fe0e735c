"""Rules about what was measured for a recipe: whether it was measured on this recipe, and what it then says. Pure.

A gain is true of the revision, the quantisation, the GPU, the layout and the acceptance rule it was measured with. What differs in one
of them is another measurement, and the recipe counts as unproven.
"""

from collections.abc import Iterator

from msgspec import Struct

from spec_toolkit.errors import Finding, note, warn
from spec_toolkit.facts.evidence import DraftMeasured, Evidence, Prompts, Row
from spec_toolkit.planning.rules.shape import Shape
from spec_toolkit.planning.speed.depth import best_depth, marginal_costs
from spec_toolkit.planning.speed.speedup import Point, points, turns
from spec_toolkit.recipe.schema import Draft, Recipe
from spec_toolkit.terms import Method

_UNPROVEN = "The plan counts as unproven; measure again."
_WHERE = "evidence"
_THRESHOLDS = ("accept_threshold_single", "accept_threshold_accumulated")


class Difference(Struct, frozen=True, kw_only=True):
    what: str  # a recipe's key
    measured: str
    here: str

    def __str__(self) -> str:
        return f"{self.what} {self.measured} (here {self.here})"


def differences(recipe: Recipe, evidence: Evidence) -> tuple[Difference, ...]:
    """In what the evidence is of something else; a revision that the recipe leaves open is not known to be the same."""
    of, target, draft, hardware = evidence.identity, recipe.target, recipe.draft, recipe.hardware
    layout = hardware.layout
    pairs: list[tuple[str, object, object]] = [
        ("target.model", of.target.model, target.model),
        ("target.revision", of.target.revision, target.revision),
        ("target.quantization", of.target.quantization, target.quantization),
        ("draft.method", of.draft.method.value, draft.method.value),
        ("draft.model", of.draft.model, draft.model),
        ("draft.revision", of.draft.revision, draft.revision),
        ("draft.topk", of.draft.topk, draft.topk),
        ("draft.num_draft_tokens", _tree_width(of.draft), _tree_width(draft)),
        ("draft.acceptance", of.acceptance.value, draft.acceptance.value),
        *((f"draft.{key}", _threshold(getattr(of, key)), _threshold(getattr(draft, key))) for key in _THRESHOLDS),
        ("hardware.gpu", of.gpu, hardware.gpu),
        ("hardware.count", of.count, hardware.count),
        ("hardware.nodes", of.nodes, hardware.nodes),
        *(
            (f"hardware.layout.{key}", getattr(of.layout, key), getattr(layout, key))
            for key in of.layout.__struct_fields__
        ),
        ("engine.sglang", of.sglang, recipe.engine.sglang),
    ]
    return tuple(
        Difference(what=what, measured=_said(measured), here=_said(here))
        for what, measured, here in pairs
        if measured != here
    )


def _tree_width(draft: Draft | DraftMeasured) -> int | None:
    """A chain's follows from its steps, which each row has of its own."""
    return draft.num_draft_tokens if draft.topk > 1 else None


def _threshold(written: float | None) -> float:
    return 1.0 if written is None else written


def is_usable(recipe: Recipe, evidence: Evidence) -> bool:
    """Whether its figures are this recipe's."""
    random = evidence.identity.workload.prompts is Prompts.RANDOM_TOKENS
    return not (evidence.simulated or random or differences(recipe, evidence))


def is_proven(recipe: Recipe, evidence: Evidence | None, shape: Shape | None) -> bool:
    """Whether the recipe's own depth was measured beside an engine without speculation. `shape`: as the plan has it."""
    if evidence is None or not is_usable(recipe, evidence):
        return False
    if recipe.draft.method is Method.NONE:
        return evidence.has_autoregressive_row
    drafts = drafts_of(recipe.draft, shape)
    return drafts is not None and any(point.steps == drafts for point in points(evidence))


def drafts_of(draft: Draft, shape: Shape | None) -> int | None:
    """Drafts in a row of one round: a chain's steps, a block's tokens. None: the shape is not known."""
    if shape is None:
        return None
    return shape.num_draft_tokens - 1 if draft.method is Method.DSPARK else shape.num_steps


def depth_key(draft: Draft) -> str:
    """The recipe's key that `drafts_of` is written under."""
    return "block_tokens" if draft.method is Method.DSPARK else "num_steps"


def measured(recipe: Recipe, evidence: Evidence, shape: Shape | None) -> Iterator[Finding]:
    """Everything there is to say about the recipe's evidence, once it was read."""
    drafts = drafts_of(recipe.draft, shape)
    yield from foreign(recipe, evidence)
    yield from simulated(evidence)
    yield from random_tokens(evidence)
    yield from no_autoregressive_row(evidence)
    yield from other_depth(recipe, evidence, drafts)
    yield from worth(recipe, evidence, drafts)
    yield from too_deep(recipe, evidence, drafts)
    yield from knee(recipe, evidence, drafts)


def foreign(recipe: Recipe, evidence: Evidence) -> Iterator[Finding]:
    found = differences(recipe, evidence)
    if found:
        several = "; ".join(str(difference) for difference in found)
        why = "what was gained there says nothing about here"
        yield warn("evidence.foreign", _WHERE, f"was measured with {several}", why, _UNPROVEN)


def simulated(evidence: Evidence) -> Iterator[Finding]:
    if evidence.simulated:
        why = "the engine made its acceptance up"
        yield warn("evidence.simulated", _WHERE, "is simulated", why, _UNPROVEN)


def random_tokens(evidence: Evidence) -> Iterator[Finding]:
    if evidence.identity.workload.prompts is Prompts.RANDOM_TOKENS:
        why = "no draft foresees them, and no user sends them"
        yield warn("evidence.random-tokens", _WHERE, "was measured with random tokens", why, _UNPROVEN)


def no_autoregressive_row(evidence: Evidence) -> Iterator[Finding]:
    drafting = [row.batch for row in evidence.rows if row.num_steps]
    plain = {row.batch for row in evidence.rows if row.num_steps is None}
    without = sorted({batch for batch in drafting if batch not in plain})
    if drafting and not plain:
        why = "without one there is no break-even"
        yield warn("evidence.no-autoregressive-row", _WHERE, "has no autoregressive row", why, _UNPROVEN)
    elif without:
        batches = ", ".join(str(batch) for batch in without)
        why = "there is no break-even at those"
        yield note("evidence.no-autoregressive-row", _WHERE, f"has no autoregressive row at batch {batches}", why)


def other_depth(recipe: Recipe, evidence: Evidence, drafts: int | None) -> Iterator[Finding]:
    """What a recipe drafts is what has to be measured."""
    measured = sorted({row.num_steps for row in evidence.rows if row.num_steps})
    if is_usable(recipe, evidence) and drafts and measured and drafts not in measured:
        found = f"has rows with {depth_key(recipe.draft)} {', '.join(map(str, measured))}"
        yield warn("evidence.other-depth", _WHERE, found, f"the recipe drafts {drafts}", _UNPROVEN)


def worth(recipe: Recipe, evidence: Evidence, drafts: int | None) -> Iterator[Finding]:
    """Where it pays, by the recipe's own depth."""
    key, own = depth_key(recipe.draft), [point for point in points(evidence) if point.steps == drafts]
    if not own or not is_usable(recipe, evidence):
        return
    best, worst = max(own, key=lambda point: point.speedup), min(own, key=lambda point: point.speedup)
    if not best.pays:
        found = f"says that {key} {drafts} is slower than no speculation at every batch: {_speed(best)} at best"
        remedy = "Draft less, or write method none."
        yield warn("evidence.loses", _WHERE, found, remedy=remedy)
    elif not worst.pays:
        places = ", ".join(
            f"{'pays' if turn.pays_above else 'loses'} above batch {turn.batch:.3g}"
            for turn in turns(evidence, best.steps)
        )
        yield note("evidence.turns", _WHERE, f"says that {key} {drafts} {places}: {_speed(best)}, {_speed(worst)}")


def too_deep(recipe: Recipe, evidence: Evidence, drafts: int | None) -> Iterator[Finding]:
    """Fewer drafts were faster, at every batch that both were measured at."""
    if drafts is None or not is_usable(recipe, evidence):
        return
    pairs = list(_faster_and_own(evidence, drafts))
    if pairs and all(less.tokens_per_second > own.tokens_per_second for less, own in pairs):
        less, own = max(pairs, key=lambda pair: pair[0].tokens_per_second / pair[1].tokens_per_second)
        yield warn(
            "evidence.too-deep",
            f"draft.{depth_key(recipe.draft)}",
            f"is {drafts}",
            f"with {less.num_steps} it made {less.tokens_per_second:,.0f} tokens/s at batch {own.batch}, and with {drafts} "
            f"{own.tokens_per_second:,.0f}; fewer are faster at every batch",
            f"Write {less.num_steps}.",
        )


def knee(recipe: Recipe, evidence: Evidence, drafts: int | None) -> Iterator[Finding]:
    """C096: positions that too few rounds reach, where nobody measured less depth. What a position costs is then a share of the whole."""
    if drafts is None or not is_usable(recipe, evidence) or any(_faster_and_own(evidence, drafts)):
        return
    depths = {}
    for row in evidence.rows:
        costs = marginal_costs(evidence, row.batch)
        if row.num_steps == drafts and row.survival is not None and len(costs) >= drafts:
            depths[row.batch] = (best_depth(row.survival, costs), row.survival)
    if depths and all(0 < depth < drafts for depth, _ in depths.values()):
        batch, (depth, survival) = max(depths.items(), key=lambda item: item[1][0])
        found = f"is {drafts}; position {depth + 1} is reached in {survival[depth]:.0%} of rounds at batch {batch}"
        why = "if every position costs the same, that is too seldom to pay for it"
        yield note("evidence.knee", f"draft.{depth_key(recipe.draft)}", found, why, f"Measure it with {depth}.")


def _faster_and_own(evidence: Evidence, drafts: int) -> Iterator[tuple[Row, Row]]:
    """Of each batch with a row of so many drafts and one of fewer: the fastest of those, and the row itself."""
    for own in evidence.rows:
        if own.num_steps == drafts:
            fewer = [row for row in evidence.rows if row.batch == own.batch and 0 < (row.num_steps or 0) < drafts]
            if fewer:
                yield max(fewer, key=lambda row: row.tokens_per_second), own


def _speed(point: Point) -> str:
    return f"{point.speedup:.2f} times the speed at batch {point.batch}"


def _said(value: object) -> str:
    return "open" if value is None else str(value)
