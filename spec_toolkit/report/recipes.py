"""The catalogue and one recipe of it as records and text: choices, what follows from them, who says so, what is open. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from msgspec import Struct

from spec_toolkit.errors import Verdict
from spec_toolkit.planning.plan import Plan
from spec_toolkit.planning.rules.graphs import batch_cap
from spec_toolkit.recipe.catalogue import REHEARSAL, goal_of, grounds_of
from spec_toolkit.recipe.load import LoadedRecipe
from spec_toolkit.recipe.page import draft_words, hardware_words
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.terms import Method, Mode

Choice = str | int | float | bool | list[str | int | float | bool] | None


class Row(Struct, frozen=True, kw_only=True):
    """One recipe of the list."""

    name: str
    target: str
    draft: str
    hardware: str
    goal: str | None
    evidence: str  # a file with measured rows, or who says that the cell works
    summary: str


class Consequences(Struct, frozen=True, kw_only=True):
    """What the plan makes of the choices; None where a finding refuses the draft."""

    verified_per_request: int | None  # positions of one verify pass, root included
    batch_cap: int  # requests in one rank's batch
    verified_per_batch: int | None  # positions, at the cap
    decode_graph_batch_sizes: tuple[int, ...]
    steps: tuple[int, ...]  # that the engine can be set to while it serves
    modes: tuple[str, ...]  # it can be in


class Explained(Struct, frozen=True, kw_only=True):
    """One recipe, whole."""

    name: str
    path: str
    summary: str
    goal: str | None
    choices: dict[str, Choice]  # every written key with its value, in the file's order
    consequences: Consequences
    evidence: str
    says: str | None  # where that is written
    open: dict[str, str]  # key: what follows from its being open
    findings: dict[str, int]  # by verdict
    may_launch: bool


def row(name: str, recipe: Recipe) -> Row:
    return Row(
        name=name,
        target=recipe.target.model,
        draft=draft_words(recipe.draft),
        hardware=hardware_words(recipe.hardware),
        goal=goal_of(name, recipe),
        evidence=grounds_of(recipe),
        summary=recipe.summary,
    )


def listing(rows: Sequence[Row]) -> str:
    """A line a recipe under its heads; a summary is long and stays with `show`."""
    heads = ("RECIPE", "TARGET", "DRAFT", "HARDWARE", "GOAL", "EVIDENCE")
    cells = [heads, *((r.name, r.target, r.draft, r.hardware, r.goal or "", r.evidence) for r in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join(
        [*lines, "", "`spec-toolkit recipes show NAME` explains one, `spec-toolkit plan NAME` works it out."]
    )


def explain(name: str, loaded: LoadedRecipe, plan: Plan) -> Explained:
    recipe, cap = plan.recipe, batch_cap(plan.recipe)
    width = plan.shape.num_draft_tokens if plan.shape else None
    return Explained(
        name=name,
        path=str(loaded.path),
        summary=recipe.summary,
        goal=goal_of(name, recipe),
        choices=dict(_choices(recipe, loaded.lines)),
        consequences=Consequences(
            verified_per_request=width,
            batch_cap=cap,
            verified_per_batch=None if width is None else width * cap,
            decode_graph_batch_sizes=plan.decode_graph_batch_sizes,
            steps=plan.steps,
            modes=tuple(_modes(plan)),
        ),
        evidence=grounds_of(recipe),
        says=recipe.source.says if recipe.source else None,
        open=dict(_open(recipe)),
        findings={v.value: n for v, n in sorted(Counter(f.verdict for f in plan.findings).items(), key=_worst_first)},
        may_launch=plan.may_launch,
    )


def explanation(told: Explained) -> str:
    found = ", ".join(f"{count} to {verdict}" for verdict, count in told.findings.items()) or "nothing to say"
    verdict = "may be launched" if told.may_launch else "is refused"
    blocks = (
        ("Choices", [f"{key}: {_written(value)}" for key, value in told.choices.items()]),
        ("What follows", list(_follows(told.consequences))),
        ("Evidence", _evidence(told)),
        ("Open", [f"{key}: {why}" for key, why in told.open.items()]),
        (f"It {verdict}: {found}", [f"`spec-toolkit check {told.name}` says each."] if told.findings else []),
    )
    lines = [f"{told.name}  ({told.path})", told.summary]
    for head, body in blocks:
        if body or head.startswith("It "):
            lines += ["", head, *(f"  {line}" for line in body)]
    return "\n".join(lines)


def _modes(plan: Plan) -> Iterator[str]:
    """What is allowed and possible: an engine of one depth is in full or autoregressive."""
    possible = {*plan.limits.modes} if plan.limits and plan.steps else {Mode.FULL, Mode.AUTOREGRESSIVE}
    if plan.recipe.draft.method is Method.NONE:
        possible = {Mode.AUTOREGRESSIVE}
    return (mode.value for mode in plan.recipe.policy.allow if mode in possible)


def _choices(recipe: Recipe, lines: Mapping[str, int]) -> Iterator[tuple[str, Choice]]:
    for path in lines:
        if path in {"summary", "source.basis", "source.says"} or "[" in path:
            continue
        value: object = recipe
        for part in path.split("."):
            value = getattr(value, part)
        if not isinstance(value, Struct):
            yield path, _plain(value)


def _plain(value: object) -> Choice:
    match value:
        case Enum():
            return str(value.value)
        case tuple():
            return [str(one) if isinstance(one, Struct) else _scalar(one) for one in value]
        case _:
            return _scalar(value)


def _scalar(value: object) -> str | int | float | bool:
    return (
        value if isinstance(value, str | int | float | bool) else str(value.value if isinstance(value, Enum) else value)
    )


def _written(value: Choice) -> str:
    if isinstance(value, list):
        return ", ".join(map(_written, value))
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _follows(found: Consequences) -> Iterator[str]:
    if found.verified_per_request == 1:
        yield "each pass of the target makes one token a request: nothing is drafted"
    elif found.verified_per_request is not None:
        drafts = "one draft" if found.verified_per_request == 2 else f"{found.verified_per_request - 1} drafts"
        yield f"each round verifies {found.verified_per_request} positions a request: {drafts} and the root"
    at_once = f"at most {found.batch_cap:,} requests in a rank's batch"
    yield (
        at_once if found.verified_per_batch is None else f"{at_once}, {found.verified_per_batch:,} positions to verify"
    )
    graphs = found.decode_graph_batch_sizes
    if graphs:
        yield f"decode graphs for {len(graphs)} batch sizes, {graphs[0]} to {graphs[-1]}"
    if found.steps:
        yield f"the steps can be set to {', '.join(map(str, found.steps))} while it serves"
    elif found.verified_per_request != 1:
        yield "the engine runs at one depth: speculation goes off and on by a restart"
    yield f"modes: {', '.join(found.modes)}"


def _evidence(told: Explained) -> list[str]:
    if told.evidence == REHEARSAL:
        return ["rehearsal: the real engine with a tiny model on a CPU; its speed says nothing about a GPU"]
    if told.evidence.endswith(".json"):
        return [told.evidence, *([told.says] if told.says else [])]
    return [
        f"{told.evidence}: {told.says}" if told.says else told.evidence,
        "Nobody has measured here that it pays: no figure of speed or acceptance is shown.",
    ]


def _open(recipe: Recipe) -> Iterator[tuple[str, str]]:
    pin = "`spec-toolkit pin` writes it"
    if recipe.target.revision is None:
        yield "target.revision", f"the model may change under its name; {pin}"
    if recipe.draft.model != "same" and recipe.draft.revision is None:
        yield "draft.revision", f"the engine would follow the draft's branch; {pin}"
    if recipe.target.tokenizer is None:
        yield "target.tokenizer", f"a changed vocabulary or chat template would go unnoticed; {pin}"
    if recipe.is_rehearsal:
        return
    if "@" not in (recipe.engine.image or ""):
        yield "engine.image", f"another image may be another engine; {pin}"
    if recipe.evidence is None:
        yield "evidence", "no measured rows, so no break-even"


def _worst_first(counted: tuple[Verdict, int]) -> int:
    return list(Verdict).index(counted[0])
