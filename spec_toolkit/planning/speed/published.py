"""What others say of a model's drafts, beside the curves: a prior of other prompts and other machines, never evidence. Pure."""

from collections.abc import Iterator

from msgspec import Struct

from spec_toolkit.facts.model import Model
from spec_toolkit.facts.records import Floor, Level, Since, Tables
from spec_toolkit.terms import Method


class Said(Struct, frozen=True, kw_only=True):
    says: str
    level: Level
    source: str  # its id in the table of sources


def said_of(tables: Tables, target: Model, method: Method, *, attention_dp: bool) -> tuple[Said, ...]:
    """The first engine known to run it, what upstream's tests assert of this repository, what was reported of the model."""
    known = next((name for name, facts in tables.models.items() if target.name in facts.checkpoints), None)
    floors = (floor for floor in tables.acceptance.floors if floor.repo == target.name)
    reports = (report.said for report in tables.acceptance.reports if report.model == known)
    return (
        *map(_first_engine, _since(tables, known, target, method, attention_dp=attention_dp)),
        *map(_asserted, floors),
        *(Said(says=_with(said.v, said.note), level=said.e, source=said.s) for said in reports),
    )


def _since(tables: Tables, known: str | None, target: Model, method: Method, *, attention_dp: bool) -> Iterator[Since]:
    """The row that says most of just this; none where the table has none."""
    fitting = [
        row
        for row in tables.versions
        if known in row.models
        and (row.since.v or row.since.note)
        and row.method == method.value
        and row.weights in {None, target.weights}
        and row.attention_dp in {None, attention_dp}
    ]
    if fitting:
        yield max(fitting, key=lambda row: (row.weights is not None) + (row.attention_dp is not None))


def _first_engine(row: Since) -> Said:
    fact = row.since
    says = f"known to run since SGLang {fact.v}" if fact.v else "the first SGLang that runs it is not established"
    return Said(says=_with(says, fact.note), level=fact.e, source=fact.s)


def _asserted(floor: Floor) -> Said:
    bounds = (
        ("an emitted length of", floor.emitted, ""),
        ("", floor.tokens_per_second, " tokens/s at batch 1"),
        ("a GSM8K of", floor.gsm8k, ""),
    )
    least = ", ".join(f"{of} {value:g}{unit}".strip() for of, value, unit in bounds if value is not None)
    says = f"upstream's tests assert at least {least} on {floor.setup}"
    return Said(says=_with(says, floor.note), level=floor.e, source=floor.s)


def _with(says: str, note: str) -> str:
    return f"{says}; {note}" if note else says
