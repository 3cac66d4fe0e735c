"""Following a deployment, seeing that it has ended, and ending it, from a command. Touches the world."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from spec_toolkit.errors import EngineError, FactsError
from spec_toolkit.launch import control
from spec_toolkit.launch.deployment import Folder, Keeper, Status, boot_id, identify
from spec_toolkit.launch.events import ENDS, Event, Kind
from spec_toolkit.launch.kept_process import end_session
from spec_toolkit.launch.record import NOTHING_RUNS, Launch

_FOLLOW_SECONDS = 0.1  # between two looks at the events
_KEEPER_SECONDS = 15.0  # for a keeper to end its tree
_STOP_MARGIN_SECONDS = 60.0  # beyond the drain time, until a stop counts as not taken
ENDED_PHASES = ("stopped", "failed")  # nothing of it runs any more


def follow(folder: Folder) -> Iterator[Event]:
    """Every event of the run that is on now, as they come, until the one that ends it.

    A supervisor that was killed writes no last event: then what its keeper left is swept, and the last event says so.
    """
    seen, run = 0, _run_of(folder)
    while True:
        owned = folder.has_owner()  # before reading: what it wrote before it ended is then read
        if _run_of(folder) != run:
            yield _event("replaced by another command", Kind.STOPPED)
            return
        events = folder.events()
        yield from events[seen:]
        seen = len(events)
        if events and events[-1].kind in ENDS:
            return
        if not owned:
            with suppress(FactsError):  # another command holds it, and will write what it does
                if last := bury(folder, run):
                    yield last
                    return
        time.sleep(_FOLLOW_SECONDS)


def _run_of(folder: Folder) -> str:
    status = folder.status()
    return status.run if status else ""


def bury(folder: Folder, run: str) -> Event | None:
    """Record the end of a run whose supervisor is gone, and end what it may have left; None where there is nothing to bury."""
    with folder.asking():
        status = folder.status()
        if status is None or status.run != run or status.phase in ENDED_PHASES or folder.has_owner():
            return None
        left = [pid for keeper in status.keepers for pid in _sweep(keeper)]
        found = f"; {len(left)} processes were left and are ended" if left else "; it left no process"
        text = f"supervisor: ended without a word (killed?){found}{last_line(folder)}. See runbooks/engine-lost.md."
        event = _event(text, Kind.FAILED, runbook="runbooks/engine-lost.md")
        with suppress(OSError):  # a full disk: then it is buried once more by whoever looks next
            folder.append_event(event)
            folder.write_status(msgspec.structs.replace(status, phase="failed", reason=text, **NOTHING_RUNS))
        return event


def _sweep(keeper: Keeper) -> list[int]:
    """A keeper ends its tree by itself when its supervisor dies; what is left after that is ended here."""
    if keeper.boot != boot_id():
        return []
    deadline = time.monotonic() + _KEEPER_SECONDS
    while identify(keeper.pid) == keeper and time.monotonic() < deadline:
        time.sleep(_FOLLOW_SECONDS)
    now = identify(keeper.pid)
    if now is not None and now != keeper:
        return []  # the number belongs to somebody else by now, and a session of that number too
    return end_session(keeper.pid)


def _event(text: str, kind: Kind, *, runbook: str = "") -> Event:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")  # noqa: TID251 - an edge: events carry wall-clock time
    return Event(at=at, elapsed_seconds=0.0, kind=kind, text=text, runbook=runbook)


def look(folder: Folder) -> Status:
    """How a deployment stands, as seen from outside: a supervisor that died without a word is found and recorded."""
    status = folder.status()
    if status and status.phase not in ENDED_PHASES and not folder.has_owner():
        with suppress(FactsError):  # somebody is starting it, and will say how it stands
            bury(folder, status.run)
        status = folder.status()
    if status is None:
        raise FactsError.of("deploy.no-status", folder.name, "its status file is gone", remedy="Deploy it again.")
    return status


def stop(folder: Folder) -> Event:
    """Ask, and wait for the end; asked while a stop is under way it makes that one hurry. EngineError where it does not come."""
    if folder.has_owner():
        asyncio.run(control.ask(folder, "stop"))
        _wait_for_the_end(folder)
    look(folder)
    events = folder.events()
    if not events:
        raise FactsError.of("deploy.busy", folder.name, "is just being started", remedy="Try again in a moment.")
    return events[-1]


def _wait_for_the_end(folder: Folder) -> None:
    drain_seconds = msgspec.json.decode(folder.launch.read_bytes(), type=Launch).drain_seconds
    patience_seconds = drain_seconds + _STOP_MARGIN_SECONDS
    deadline = time.monotonic() + patience_seconds
    while folder.has_owner():
        if time.monotonic() > deadline:
            raise EngineError.of(
                "stop.not-taken",
                folder.name,
                f"still running {patience_seconds:g} s after it was asked to stop",
                remedy="See runbooks/engine-lost.md.",
            )
        time.sleep(_FOLLOW_SECONDS)


def last_line(folder: Folder) -> str:
    words = folder.supervisor_log.read_text(errors="replace").splitlines() if folder.supervisor_log.exists() else []
    return f'; its last words: "{words[-1][:200]}"' if words else ""
