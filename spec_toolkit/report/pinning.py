"""What became of a recipe's pins, as text and JSON. Pure."""

from spec_toolkit.launch.pinning import Pinned
from spec_toolkit.report.said import as_json as to_json


def pinned(found: Pinned, *, as_json: bool) -> str:
    if as_json:
        return to_json(
            {
                "recipe": str(found.path),
                "written": found.written,
                "pins": found.pins,
                "kept": found.kept,
                "open": found.open,
            }
        )
    lines = [f"{found.path}: {_what(found)}"]
    for pin in found.pins:
        lines += [f"  {pin.key}: {pin.value}", f"    {pin.says}"]
    if found.kept:
        lines.append(f"kept as written: {', '.join(found.kept)}")
    lines += [f"open  {finding.sentence()}" for finding in found.open]
    return "\n".join(lines)


def _what(found: Pinned) -> str:
    count = f"{len(found.pins)} {'pin' if len(found.pins) == 1 else 'pins'}"
    if not found.pins:
        return "everything is pinned already" if not found.open else "nothing was written"
    return f"{count} written" if found.written else f"{count} found, nothing written; they would be"
