"""What a drill can see of a deployment and do to it. Touches the world.

It looks where people look (the status, the events, the sidecar's snapshot and decisions) and asks as clients do, through the gateway.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.patch_reports import alive, read_reports
from spec_toolkit.handover import Role
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.launch.events import Event, Kind
from spec_toolkit.prove.drills.outcome import Moment, Outcome, judge_all, open_at, safe_tokens
from spec_toolkit.prove.streams import Answer, Ask, keep_asking
from spec_toolkit.sidecar.records import Snapshot, Taken, age_seconds
from spec_toolkit.terms import Signal

SIDECAR_PROCESS = "spec_toolkit.sidecar.service"  # in its command line
_LOOK_SECONDS = 0.05
_FRESH_SECONDS = 15.0  # age of a snapshot that is still believed
_TOKENS_SECONDS = 60.0  # until every stream has brought text


_Record = TypeVar("_Record")


class DrillFailed(Exception):  # noqa: N818 - what happened
    """It did not come to what the drill waits for."""


class Stage:
    def __init__(
        self, folder: Folder, address: str, whole: Mapping[Ask, Answer], tell: Callable[[Moment], None]
    ) -> None:
        """`whole`: the undisturbed answer of every request a drill makes."""
        self.folder = folder
        self._address = address
        self._tell_people = tell
        self._moments: list[Moment] = []
        self._whole = whole
        self._answers: list[Answer] = []
        self._struck = time.monotonic()
        self._struck_wall = time.time()  # noqa: TID251 - an edge: events and decisions carry wall-clock time
        self._safe: float | None = None
        self._back: float | None = None
        self._falls: list[tuple[float, int | None]] = []  # milliseconds, rounds

    # Seeing.

    def snapshot(self) -> Snapshot | None:
        """The sidecar's, where it is fresh."""
        try:
            found = msgspec.json.decode(self.folder.sidecar_snapshot.read_bytes(), type=Snapshot)
        except (OSError, msgspec.DecodeError):
            return None
        age = age_seconds(found.wall_s, time.time())  # noqa: TID251 - an edge, as above
        return found if age is not None and age < _FRESH_SECONDS else None

    def mode(self) -> str:
        """The rung in force, as the sidecar knows it: `full`, `reduced(1)`...; empty where it does not."""
        found = self.snapshot()
        return found.mode if found else ""

    async def until(self, what: str, is_so: Callable[[], bool], seconds: float) -> None:
        """Raises DrillFailed after so long."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                raise DrillFailed(f"{what}: not within {seconds:g} s; the mode is {self.mode() or 'unknown'}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def until_mode(self, mode: str, seconds: float) -> None:
        """`reduced` stands for each of its rungs."""
        await self.until(f"waiting for {mode}", lambda: self.mode().partition("(")[0] == mode, seconds)

    async def until_engine_serves(self, seconds: float) -> None:
        await self.until("an engine that takes requests", self._serves, seconds)

    def _serves(self) -> bool:
        status = self.folder.status()
        return status is not None and status.serves

    def is_sidecar_other_than(self, pid: int) -> bool:
        """Another one runs, and has looked at the engine."""
        found = self.snapshot()
        others = [each for each in self._sidecars() if each != pid]
        return (
            bool(others)
            and found is not None
            and found.wall_s > self._struck_wall
            and found.scrape_age_seconds is not None
        )

    def _open_streams(self) -> int:
        return sum(1 for each in self._answers if each.arrivals and not each.ended)

    # Doing.

    @asynccontextmanager
    async def load(self, asks: list[Ask], *, at_once: int) -> AsyncIterator[asyncio.Event]:
        """So many streams always, until the event is set or the block is left; those under way then are seen to their end."""
        enough = asyncio.Event()
        asking = asyncio.create_task(
            keep_asking(self._address, asks, at_once=at_once, enough=enough, seen=self._answers)
        )
        try:
            yield enough
        finally:
            enough.set()
            await asking

    async def all_streaming(self, count: int) -> None:
        """Until so many streams are open and have brought text."""
        await self.until(f"{count} streams with text", lambda: self._open_streams() >= count, _TOKENS_SECONDS)

    def strike(self, text: str) -> None:
        self._struck, self._struck_wall = time.monotonic(), time.time()  # noqa: TID251 - an edge, as above
        self.say(text)

    def is_safe(self) -> None:
        self._safe = time.monotonic()

    def is_back(self) -> None:
        self._back = time.monotonic()

    def say(self, text: str, *, who: str = "drill", at: float | None = None) -> None:
        """`at`: Unix time; None: now."""
        now = time.time()  # noqa: TID251 - an edge, as above
        moment = Moment(seconds=round((at or now) - self._struck_wall, 2), who=who, text=text)
        self._moments.append(moment)
        self._tell_people(moment)

    def engine(self) -> EngineClient:
        """The one that takes requests, with the key: a drill plants faults in it."""
        status = self.folder.status()
        if status is None or not status.engine_address:
            raise DrillFailed("no engine takes requests")
        return EngineClient(status.engine_address, admin_key=self.folder.admin_key.read_text().strip())

    def scheduler(self) -> int:
        """The id of the one scheduler that lives, as it named itself when it took its patches."""
        reports = [each for file in self.folder.engines.glob("*/patches.json") for each in read_reports(file)]
        live = alive(each.pid for each in reports)
        found = [each.pid for each in reports if each.role is Role.SCHEDULER and each.pid in live]
        if len(found) != 1:
            raise DrillFailed(f"{len(found)} schedulers live, not one")
        return found[0]

    def sidecar(self) -> int:
        found = self._sidecars()
        if len(found) != 1:
            raise DrillFailed(f"{len(found)} sidecars run, not one")
        return found[0]

    def _sidecars(self) -> list[int]:
        """In the sessions of this deployment; less the keepers, whose command lines hold those of what they keep."""
        status = self.folder.status()
        sessions = {keeper.pid for keeper in status.keepers} if status else set()
        return [pid for pid in _processes(sessions) if SIDECAR_PROCESS in _words(pid) and pid not in sessions]

    def signal(self, pid: int, number: signal.Signals) -> None:
        os.kill(pid, number)

    # Telling.

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """What supervisor and sidecar write down meanwhile goes into the timeline."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        events, decisions = _Tail(self.folder.events_file), _Tail(self.folder.decisions_file)
        while True:
            for event in _decoded(events.read(), Event):
                if event.kind is not Kind.PHASE:
                    self.say(event.text, who="supervisor", at=_unix(event.at))
            for taken in _decoded(decisions.read(), Taken):
                if taken.moved:
                    self._note_fall(taken)
                    self.say(taken.why + _confirmed(taken), who="sidecar", at=_unix(taken.at))
            await asyncio.sleep(_LOOK_SECONDS)

    def _note_fall(self, taken: Taken) -> None:
        """Of a fault the engine falls by itself, so that nothing is commanded and nothing is to be timed."""
        fell = taken.signal not in {Signal.PROFIT_POSSIBLE.value, Signal.DRAFT_FAULT.value}
        if fell and taken.confirmed_ms is not None:
            self._falls.append((taken.confirmed_ms, taken.rounds))

    def outcome(self, drill: str, problem: str) -> Outcome:
        struck, answers = self._struck, self._answers
        first, last = safe_tokens(answers, struck, self._safe) if self._safe else (None, None)
        return Outcome(
            drill=drill,
            requests=len(answers),
            refused=sum(each.refused for each in answers),
            open_at_strike=len(open_at(answers, struck)),
            failures=judge_all(answers, self._whole),
            waited=sum(each.waited > 0 for each in answers),
            fallback_seconds=None if self._safe is None else self._safe - struck,
            first_safe_token_seconds=first,
            last_safe_token_seconds=last,
            rearmed_seconds=None if self._back is None else self._back - struck,
            slowest_fall_ms=max((fall[0] for fall in self._falls), default=None),
            slowest_fall_rounds=max((fall[1] for fall in self._falls if fall[1] is not None), default=None),
            problem=problem,
            moments=tuple(sorted(self._moments, key=lambda moment: moment.seconds)),
        )


class _Tail:
    """Whole lines written to a file since it was last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = path.stat().st_size if path.exists() else 0

    def read(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._read:  # another file by now
                    self._read = 0
                file.seek(self._read)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content.rpartition(b"\n")[0]
        self._read += len(whole) + 1 if whole else 0
        return whole.splitlines()


def _decoded(lines: list[bytes], kind: type[_Record]) -> Iterator[_Record]:
    for line in lines:
        with suppress(msgspec.DecodeError):  # a full disk leaves half a line
            yield msgspec.json.decode(line, type=kind)


def _confirmed(taken: Taken) -> str:
    if taken.confirmed_ms is None:
        return ""
    rounds = "" if taken.rounds is None else f", {taken.rounds} rounds"
    return f" [all ranks {taken.confirmed_ms:.0f} ms after the window{rounds}]"


def _unix(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def _processes(sessions: set[int]) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # ended while we looked
            if int(fields[3]) in sessions and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
