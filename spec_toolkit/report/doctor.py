"""What a machine has against what the engine needs, as text and JSON. Pure."""

from collections import Counter
from collections.abc import Sequence

from spec_toolkit.launch.doctor import Health, Line
from spec_toolkit.report.said import as_json as to_json


def examination(lines: Sequence[Line], *, as_json: bool) -> str:
    if as_json:
        return to_json({"lines": list(lines)})
    width = max(len(line.about) for line in lines)
    shown = [text for line in lines for text in _line(line, width)]
    counts = Counter(line.health for line in lines)
    summary = ", ".join(f"{counts[health]} {health.value}" for health in Health if counts[health])
    return "\n".join([*shown, "", f"{summary}."])


def _line(line: Line, width: int) -> list[str]:
    first = f"{line.health.value:7}  {line.about:{width}}  {line.found}"
    return [first, f"{'':7}  {'':{width}}  -> {line.fix}"] if line.fix else [first]
