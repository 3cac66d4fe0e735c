"""Writing down, and taking back, that a person holds a rung. Touches the disk; the sidecar looks there once a second."""

from datetime import UTC, datetime

import msgspec

from spec_toolkit.errors import FactsError
from spec_toolkit.launch.deployment import Folder, write_json
from spec_toolkit.planning.limits import Limits
from spec_toolkit.sidecar.records import Hold, read_rung


def pin(folder: Folder, rung: str) -> Hold:
    """RecipeError where the deployment's ladder has no such rung; FactsError where its ladder cannot be read."""
    wanted = read_rung(rung, _read_limits(folder))
    now = datetime.now(UTC).isoformat(timespec="milliseconds")  # noqa: TID251 - an edge: tells one hold from the next
    held = Hold(mode=wanted.mode, steps=wanted.steps, at=now)
    write_json(folder.hold, held)
    return held


def unpin(folder: Folder) -> Hold | None:
    """What was held; None where nothing was, or nothing that could be read."""
    try:
        held = msgspec.json.decode(folder.hold.read_bytes(), type=Hold)
    except (FileNotFoundError, msgspec.DecodeError):
        held = None
    folder.hold.unlink(missing_ok=True)
    return held


def _read_limits(folder: Folder) -> Limits:
    try:
        return msgspec.json.decode(folder.limits.read_bytes(), type=Limits)
    except FileNotFoundError:
        raise FactsError.of(
            "hold.no-limits",
            folder.name,
            "has no limits.json",
            why="no policy moves this deployment",
            remedy="Deploy it again.",
        ) from None
    except msgspec.DecodeError as error:
        said = "; ".join(str(error).splitlines())
        raise FactsError.of(
            "hold.limits-unreadable", str(folder.limits), said, why="its ladder is not known", remedy="Mend the file."
        ) from None
