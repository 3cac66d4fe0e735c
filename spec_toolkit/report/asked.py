"""What was found of commands and manifests, as text. Pure."""

from collections import Counter
from collections.abc import Sequence

from spec_toolkit.launch.asked import Checked
from spec_toolkit.report.text import findings


def checked(found: Sequence[Checked]) -> str:
    """Of each launch its findings, and one line that sums them up."""
    return "\n".join(_one(each) for each in found)


def _one(each: Checked) -> str:
    counts = Counter(finding.verdict for finding in each.findings)
    summary = ", ".join(f"{count} to {verdict.value}" for verdict, count in counts.items()) or "nothing to say"
    verdict = "may be launched" if each.may_launch else "is refused"
    told = [findings(each.findings)] if each.findings else []
    return "\n".join([*told, f"{each.name} on {each.machine} {verdict}: {summary}"])
