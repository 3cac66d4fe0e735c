"""Makes a plan: everything that follows from a recipe, and everything there is to say about it. Pure; a bad recipe makes findings.

The rules about a recipe's own keys are listed here, those about the engine in `judge`; what a rule says is in `rules/`. A plan's values
already hold the corrections that its findings announce.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from msgspec.structs import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.facts.evidence import Evidence as Measured
from spec_toolkit.facts.model import Model
from spec_toolkit.facts.read_model import known_model
from spec_toolkit.facts.records import Checkpoint, Tables
from spec_toolkit.planning.asked import asked_of
from spec_toolkit.planning.forecast import Forecast, make_forecast
from spec_toolkit.planning.judge import judge_launch
from spec_toolkit.planning.limits import Limits
from spec_toolkit.planning.memory.caps import Becomes, Outcome
from spec_toolkit.planning.naming import in_recipe
from spec_toolkit.planning.rules import capacity, evidence, features, graphs, machine, pins, policy, precision, shape
from spec_toolkit.planning.rules.shape import Shape
from spec_toolkit.planning.runtime import derive_limits, derive_steps
from spec_toolkit.planning.situate import corrected, of_recipe
from spec_toolkit.planning.situation import Situation
from spec_toolkit.recipe.load import LoadedRecipe
from spec_toolkit.recipe.schema import Draft, Recipe
from spec_toolkit.terms import LOSSY, Method, Mode


class Evidence(Enum):
    """What is known about whether a recipe pays."""

    MEASURED = "measured"  # its own depth, beside an engine without speculation
    UNPROVEN = "unproven"  # documents say so; nothing was measured
    REHEARSAL = "rehearsal"  # runs on a CPU; says nothing about speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was read for a recipe; None: nobody looked, or there is none."""

    target: Model | None = None  # None: what the tables say
    draft: Model | None = None
    checkpoint: Checkpoint | None = None  # of the target's folder, where it lies on this machine
    content: str | None = None  # that folder's content hash
    evidence: Measured | None = None
    findings: tuple[Finding, ...] = ()  # of the reading itself: evidence that is not there, ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A recipe with its consequences."""

    name: str  # the recipe's: its file name
    path: Path
    sha256: str  # of the recipe's bytes, "sha256:..."
    recipe: Recipe  # as planned: without a draft, or with fewer steps, where a cap does not leave room for more
    shape: Shape | None  # None where a finding refuses the draft
    decode_graph_batch_sizes: tuple[int, ...]  # ascending; empty on a CPU
    steps: tuple[int, ...]  # step counts the engine can be set to while it serves, ascending from 0; empty: it cannot
    asked: Arguments  # of the engine, but for what a machine adds
    situation: Situation
    forecast: Forecast
    limits: Limits | None  # what the policy reads; None where the draft has no shape
    evidence: Evidence
    findings: tuple[Finding, ...]  # worst first

    @property
    def may_launch(self) -> bool:
        return not any(finding.verdict is Verdict.REFUSE for finding in self.findings)

    @property
    def lossy(self) -> bool:
        return self.recipe.is_lossy

    @property
    def labels(self) -> tuple[str, ...]:
        """Words that go wherever this plan's numbers go."""
        lossy = (LOSSY,) if self.lossy else ()
        simulated = ("simulated",) if self.recipe.simulated else ()
        return (*lossy, *simulated, self.evidence.value)


def make_plan(loaded: LoadedRecipe, tables: Tables, known: Known | None = None) -> Plan:
    known = known or Known()
    taken = _taken(loaded.recipe, tables, known)
    first = _draw(taken, tables, known)
    recipe = _within_caps(taken, capacity.judged(first.situation))
    drawn = first if recipe is taken else _draw(recipe, tables, known)
    # What a cap has planned away is not judged; that a cap has, is said.
    of_caps = () if drawn is first else capacity.draft_cap(first.situation)
    judged = (*of_caps, *judge_launch(drawn.situation))
    situation = replace(drawn.situation, arguments=corrected(drawn.situation.arguments, judged))
    asked = corrected(drawn.asked, judged)
    measured = known.evidence if known.evidence and evidence.is_usable(recipe, known.evidence) else None
    renamed = features.assistants_method(loaded.recipe.draft, taken.draft)
    own = (*known.findings, *renamed, *_of_recipe(recipe, tables, known, drawn.shape))
    named = (in_recipe(finding, recipe.engine.extra_args) for finding in judged)
    findings = [*own, *_not_refused_twice(own, named)]
    return Plan(
        name=loaded.name,
        path=loaded.path,
        sha256=loaded.sha256,
        recipe=recipe,
        shape=drawn.shape,
        decode_graph_batch_sizes=asked.cuda_graph_bs_decode or (),
        steps=drawn.steps,
        asked=asked,
        situation=situation,
        forecast=make_forecast(situation, tables, measured),
        limits=derive_limits(recipe, drawn.steps, sha256=loaded.sha256, evidence=measured) if drawn.shape else None,
        evidence=_standing(recipe, known.evidence, drawn.shape),
        findings=_sorted(findings, loaded),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """What follows from a recipe before any rule has spoken."""

    shape: Shape | None
    steps: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    asked: Arguments
    situation: Situation


def _taken(recipe: Recipe, tables: Tables, known: Known) -> Recipe:
    draft = features.taken_for(recipe.draft, known.draft or known_model(recipe.draft.model, tables))
    return recipe if draft is recipe.draft else replace(recipe, draft=draft)


def _draw(recipe: Recipe, tables: Tables, known: Known) -> _Drawn:
    draft, target = recipe.draft, known.target or known_model(recipe.target.model, tables)
    drawn = shape.derive_shape(draft, target.dspark_block_size)
    steps, batch_sizes = derive_steps(recipe, drawn), graphs.derive_graph_list(recipe, tables.engine)
    asked = asked_of(recipe, shape=drawn, graph_batch_sizes=batch_sizes, steps=steps)
    apart = None if draft.method is Method.NONE or draft.model == "same" else draft.model
    situation = of_recipe(
        recipe,
        asked,
        tables,
        steps=steps,
        target=target,
        draft=(known.draft or known_model(apart, tables)) if apart else None,
    )
    return _Drawn(shape=drawn, steps=steps, batch_sizes=batch_sizes, asked=asked, situation=situation)


def _within_caps(recipe: Recipe, outcome: Outcome) -> Recipe:
    """What the caps on a draft's memory leave of it."""
    match outcome.becomes:
        case Becomes.NARROWER if outcome.num_steps is not None:
            # Those that are still fewer; where none is left of them, half.
            written = recipe.policy.reduced_steps
            fewer = written and (tuple(steps for steps in written if steps < outcome.num_steps) or None)
            return replace(
                recipe,
                draft=replace(recipe.draft, num_steps=outcome.num_steps, num_draft_tokens=None),
                policy=replace(recipe.policy, reduced_steps=fewer),
            )
        case Becomes.AUTOREGRESSIVE:
            policy = replace(recipe.policy, allow=(Mode.AUTOREGRESSIVE,), reduced_steps=None)
            return replace(recipe, draft=Draft(method=Method.NONE), policy=policy)
        case _:
            return recipe


def _standing(recipe: Recipe, measured: Measured | None, drawn: Shape | None) -> Evidence:
    if recipe.is_rehearsal:
        return Evidence.REHEARSAL
    return Evidence.MEASURED if evidence.is_proven(recipe, measured, drawn) else Evidence.UNPROVEN


def _not_refused_twice(own: Iterable[Finding], judged: Iterable[Finding]) -> Iterator[Finding]:
    """A key that the recipe's own rules refuse is neither refused nor corrected for its consequences too."""
    refused = {finding.where for finding in own if finding.verdict is Verdict.REFUSE}
    spent = {Verdict.REFUSE, Verdict.CORRECT}
    return (finding for finding in judged if finding.verdict not in spent or finding.where not in refused)


def _sorted(findings: list[Finding], loaded: LoadedRecipe) -> tuple[Finding, ...]:
    worst_first = list(Verdict)
    return tuple(sorted(findings, key=lambda f: (worst_first.index(f.verdict), loaded.line_of(f.where))))


def _of_recipe(recipe: Recipe, tables: Tables, known: Known, drawn: Shape | None) -> Iterator[Finding]:
    """Every rule about a recipe's own keys, by subject."""
    draft, hardware, engine = recipe.draft, recipe.hardware, tables.engine
    model = tables.model(recipe.target.model)
    checkpoint = known.checkpoint

    yield from shape.chain_width(draft)
    yield from shape.steps_missing(draft, model)
    yield from shape.tree_width(draft)
    yield from shape.block_only_dspark(draft)
    yield from shape.nothing_to_shape(draft)

    yield from features.method_planned(draft)
    yield from features.draft_model(draft)
    yield from features.rejection_needs_chain(draft)
    yield from features.thresholds(draft)
    yield from features.relaxed_is_lossy(draft)
    yield from features.simulated(recipe)
    yield from features.overlap(recipe)
    yield from features.extra_args(recipe, engine)
    yield from features.not_enforced(recipe)
    yield from policy.allowed_modes(recipe.policy, draft)
    yield from policy.between(recipe.policy, draft)
    yield from policy.windows(recipe.policy)
    yield from policy.one_depth(recipe, drawn)
    yield from policy.comes_back(recipe, drawn)
    yield from policy.room_and_time(recipe)

    yield from graphs.order(recipe)
    yield from graphs.graphs_on_cpu(recipe)
    yield from graphs.request_cap(recipe, engine, model)

    yield from machine.known_gpu(hardware, tables)
    yield from machine.known_model(recipe, tables)
    yield from machine.rehearsal_model(recipe)
    yield from precision.stored(recipe.target, known.target or known_model(recipe.target.model, tables))

    yield from pins.engine_version(recipe, engine)
    yield from pins.tokenizer(recipe)
    yield from pins.local_pins(recipe, checkpoint, known.content)
    yield from pins.evidence(recipe)
    if known.evidence is not None:
        yield from evidence.measured(recipe, known.evidence, drawn)
