"""Writing down, and taking back, that a person holds a rung. Touches the disk; the sidecar looks there once a second."""

from datetime import UTC, datetime

import msgspec

from spec_toolkit.errors import FactsError, RecipeError
from spec_toolkit.launch.deployment import Folder, write_json
from spec_toolkit.launch.record import Launch
from spec_toolkit.planning.limits import Limits
from spec_toolkit.sidecar.files import read_edited
from spec_toolkit.sidecar.records import NEVER_AUTOREGRESSIVE, Hold, read_rung
from spec_toolkit.terms import Mode


def pin(folder: Folder, rung: str) -> Hold:
    """RecipeError where the deployment has no such rung; FactsError where it does not run, or its ladder cannot be read."""
    if not folder.has_owner():
        raise FactsError.of(
            "hold.not-running",
            folder.name,
            "does not run",
            why="a hold is of one run, and the next one starts without",
            remedy="Deploy it first.",
        )
    wanted = read_rung(rung, _read_limits(folder))
    if wanted.mode is Mode.AUTOREGRESSIVE and always_speculates(_read_launch(folder)):
        raise RecipeError.of(
            "hold.never-autoregressive",
            "hold",
            f"is {rung!r}",
            why=NEVER_AUTOREGRESSIVE,
            remedy="Hold another rung, or allow it in the recipe and deploy that.",
        )
    now = datetime.now(UTC).isoformat(timespec="milliseconds")  # noqa: TID251 - an edge: tells one hold from the next
    held = Hold(mode=wanted.mode, steps=wanted.steps, at=now)
    write_json(folder.hold, held)
    return held


def unpin(folder: Folder) -> Hold | None:
    """What was held; None where nothing was, or nothing that could be read."""
    try:
        held = msgspec.json.decode(read_edited(folder.hold), type=Hold)
    except FileNotFoundError:
        return None  # and nothing to take away, which a read-only disk would refuse
    except (OSError, msgspec.DecodeError):
        held = None
    folder.hold.unlink(missing_ok=True)
    return held


def always_speculates(launch: Launch) -> bool:
    """Whether what stands in for a lost engine speculates too, because the recipe allows nothing else."""
    return bool(launch.attempts) and launch.attempts[-1].speculates


def _read_launch(folder: Folder) -> Launch:
    try:
        return msgspec.json.decode(folder.launch.read_bytes(), type=Launch)
    except (FileNotFoundError, msgspec.DecodeError) as error:
        raise FactsError.of(
            "hold.launch-unreadable",
            str(folder.launch),
            f"cannot be read ({type(error).__name__})",
            why="what this deployment may start is not known",
            remedy="Deploy it again.",
        ) from None


def _read_limits(folder: Folder) -> Limits:
    try:
        return msgspec.json.decode(read_edited(folder.limits), type=Limits)
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
