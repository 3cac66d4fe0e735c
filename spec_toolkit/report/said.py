"""What was found of a recipe, as text and as JSON. Pure; apart from `text`, because an answer waits for every import."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.planning.plan import Plan

_MARK = {Verdict.REFUSE: "refuse ", Verdict.CORRECT: "correct", Verdict.WARN: "warn   ", Verdict.NOTE: "note   "}


def findings(found: Iterable[Finding]) -> str:
    """One finding a line, its verdict first."""
    return "\n".join(f"{_MARK[finding.verdict]}  {finding.sentence()}" for finding in found)


def as_json(record: Any) -> str:
    from spec_toolkit.launch.deployment import encode  # noqa: PLC0415 - text does without

    return encode(record).decode()


def check(plan: Plan) -> str:
    """Findings, and one line that sums them up."""
    counts = Counter(finding.verdict for finding in plan.findings)
    summary = ", ".join(f"{count} to {verdict.value}" for verdict, count in counts.items()) or "nothing to say"
    labels = f" [{', '.join(plan.labels)}]"
    verdict = "may be launched" if plan.may_launch else "is refused"
    return "\n".join(
        [*([findings(plan.findings)] if plan.findings else []), f"{plan.name}{labels} {verdict}: {summary}"]
    )
