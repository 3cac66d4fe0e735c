"""What was found of commands and manifests, as text. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from spec_toolkit.errors import Finding
from spec_toolkit.launch.asked import Checked
from spec_toolkit.planning.naming import flag_of
from spec_toolkit.planning.plan import Plan
from spec_toolkit.recipe.page import hardware_words
from spec_toolkit.report.said import findings


class Record(Struct, frozen=True, kw_only=True):
    """What `check` found of one launch, for other programs; a recipe, a command and each launch of a manifest have the same."""

    name: str
    machine: str
    labels: tuple[str, ...]  # words that go wherever its numbers go
    may_launch: bool
    findings: tuple[Finding, ...]  # worst first


def of_plan(plan: Plan) -> Record:
    return Record(
        name=plan.name,
        machine=hardware_words(plan.recipe.hardware),
        labels=plan.labels,
        may_launch=plan.may_launch,
        findings=plan.findings,
    )


def of_launches(found: Sequence[Checked]) -> list[Record]:
    return [
        Record(name=each.name, machine=each.machine, labels=(), may_launch=each.may_launch, findings=each.findings)
        for each in found
    ]


def checked(found: Sequence[Checked]) -> str:
    """Of each launch its findings, and one line that sums them up."""
    return "\n".join(_one(each) for each in found)


def _one(each: Checked) -> str:
    counts = Counter(finding.verdict for finding in each.findings)
    summary = ", ".join(f"{count} to {verdict.value}" for verdict, count in counts.items()) or "nothing to say"
    instead = _instead(each.findings)
    verdict = (
        "is refused" if not each.may_launch else "may be launched, once corrected" if instead else "may be launched"
    )
    told = [findings(each.findings)] if each.findings else []
    written = [f"Write {instead}."] if instead else []
    return "\n".join([*told, *written, f"{each.name} on {each.machine} {verdict}: {summary}"])


def _instead(found: Iterable[Finding]) -> str:
    """What all corrections together come to, as flags: nobody but the person can change what was pasted."""
    changes = dict(change for finding in reversed(list(found)) for change in finding.changes)
    kept = [_flag(name, value) for name, value in changes.items() if value is not None]
    gone = [flag_of(name) for name, value in changes.items() if value is None]
    return "; leave out ".join(part for part in (" ".join(reversed(kept)), " ".join(reversed(gone))) if part)


def _flag(name: str, value: object) -> str:
    if value is True:
        return flag_of(name)
    words = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"{flag_of(name)} {words}"
