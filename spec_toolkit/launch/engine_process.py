"""One engine under its keeper: its log, the stations of its start, its end. Touches the world.

The log comes through a pipe, not straight to a file, for two reasons: a year of serving must not fill a disk, and a secret must be
struck before it is written, even by an engine that is not patched yet.
"""

import asyncio
import os
import select
import signal
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Self

from spec_toolkit.engine.log import Station, read_station
from spec_toolkit.errors import EngineError
from spec_toolkit.handover import Role
from spec_toolkit.launch.spec import LaunchSpec

LOG_BYTES = 64 * 2**20  # of one log file; then it is rotated
LOG_FILES = 3
_LINE_BYTES = 256 * 1024  # the engine writes its arguments as one line of some 20 kB
_TAIL_LINES = 200
_KEEPER_SECONDS = 15.0  # for a keeper to kill its tree
_STRUCK = b"<redacted>"

_KEEPER = str(Path(__file__).with_name("keeper.py"))


class EngineProcess:
    """Use `start`; then `wait` for the end, or `stop`."""

    def __init__(self, process: asyncio.subprocess.Process, lifeline: int, grace_seconds: float) -> None:
        self._process = process
        self._lifeline = lifeline
        self._grace_seconds = grace_seconds
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.key_was_logged = asyncio.Event()
        self.stations: asyncio.Queue[Station] = asyncio.Queue(maxsize=1024)
        self._keeper_ended = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, spec: LaunchSpec, log_file: Path, *, secret: str, grace_seconds: float) -> Self:
        environment = {k: v for k, v in os.environ.items() if k not in spec.unset_environment} | spec.set_environment
        log = RotatingLog(log_file)
        theirs, ours = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", _KEEPER, str(theirs), str(grace_seconds), "--", *spec.command),
                env=environment,
                pass_fds=(theirs,),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            log.close()
            raise
        finally:
            os.close(theirs)
        engine = cls(process, ours, grace_seconds)
        engine._reader = asyncio.create_task(engine._read(log, secret.encode()))
        engine._watch_keeper()
        return engine

    def _watch_keeper(self) -> None:
        """By pidfd: asyncio's own wait() comes back only when the last orphan has closed the pipe."""
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(self.keeper_pid)
        except ProcessLookupError:
            self._keeper_ended.set()
            return

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._keeper_ended.set()

        loop.add_reader(descriptor, ended)

    @property
    def keeper_pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """The engine's exit code, 128 + n for signal n; its log is complete then."""
        await self._keeper_ended.wait()
        while (code := self._process.returncode) is None:  # noqa: ASYNC110 - asyncio reaps it and tells nobody
            await asyncio.sleep(0.01)
        if code < 0:  # the keeper itself was killed, and could not end what it kept
            end_session(self.keeper_pid)
        if self._reader is not None:
            # Shielded: a caller that stops waiting must not stop the log.
            await asyncio.shield(self._reader)
        return code if code >= 0 else 128 - code

    async def stop(self, at_once: asyncio.Event) -> None:
        """Ask, wait for the grace time or until `at_once`, then kill; nothing of the tree is left when this returns."""
        if self._process.returncode is None:
            self._process.terminate()
        ended, hurried = asyncio.create_task(self.wait()), asyncio.create_task(at_once.wait())
        patience = self._grace_seconds + _KEEPER_SECONDS
        await asyncio.wait({ended, hurried}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for task in (ended, hurried):
            task.cancel()
        await self.kill()

    async def kill(self) -> int:
        """Close the lifeline: the keeper kills the tree. Raises EngineError where something does not die."""
        self._close_lifeline()
        for _ in range(2):
            with suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(self.wait()), _KEEPER_SECONDS)
            left = end_session(self.keeper_pid)  # the keeper is stuck: do its work
        raise EngineError.of(
            "engine.undead",
            "engine",
            f"processes {', '.join(map(str, left)) or self.keeper_pid} do not end on SIGKILL",
            why="they hang inside the kernel, most likely in a GPU driver call",
            remedy="Reset the GPU or restart the machine; see runbooks/engine-lost.md.",
        )

    def _close_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    async def _read(self, log: "RotatingLog", secret: bytes) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for as a pipe
        pending = b""
        try:
            while chunk := await self._process.stdout.read(64 * 1024):
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._take(line, log, secret)
                if len(pending) > _LINE_BYTES:
                    # Cut where no secret can be cut in two: whole ones are struck first, the last bytes wait for more.
                    pending = self._strike(pending, secret)
                    self._take(pending[: -len(secret)], log, secret)
                    pending = pending[-len(secret) :]
            if pending:
                self._take(pending, log, secret)
        finally:
            log.close()

    def _take(self, line: bytes, log: "RotatingLog", secret: bytes) -> None:
        line = self._strike(line, secret)
        # A full disk must not stop the engine, and an unread pipe would: what cannot be kept is dropped.
        with suppress(OSError):
            log.write(line + b"\n")
        text = line.decode(errors="replace")
        self.tail.append(text)
        if (station := read_station(text)) and not self.stations.full():
            self.stations.put_nowait(station)

    def _strike(self, text: bytes, secret: bytes) -> bytes:
        if secret in text:
            self.key_was_logged.set()
        return text.replace(secret, _STRUCK)


class RotatingLog:
    """engine.log, then engine.log.1 (older), up to LOG_FILES files of LOG_BYTES."""

    def __init__(self, path: Path, *, most_bytes: int = LOG_BYTES, files: int = LOG_FILES) -> None:
        self._path, self._most_bytes, self._files = path, most_bytes, files
        self._open()

    def write(self, line: bytes) -> None:
        if self._written and self._written + len(line) > self._most_bytes:
            self._rotate()
        os.write(self._descriptor, line)
        self._written += len(line)

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._written = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        """The old file is closed last: whatever fails before, lines still go somewhere, and to no descriptor of others."""
        for number in range(self._files - 1, 0, -1):
            newer = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            with suppress(FileNotFoundError):
                newer.replace(self._path.with_name(f"{self._path.name}.{number}"))
        full = self._descriptor
        self._open()
        os.close(full)


def end_session(session: int) -> list[int]:
    """Kill every process of a session; returns the ids it found. The caller knows that the session is ours."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended while we looked
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.name))
            try:
                os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
    return found


class Watch:
    """Notices the end of single engine processes (a scheduler, the detokenizer) at once; the engine itself takes seconds."""

    def __init__(self, lost: "asyncio.Future[str]") -> None:
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._watched: dict[int, str] = {}  # name by pidfd

    def over(self, pids: dict[int, str]) -> None:
        for pid, name in pids.items():
            who = f"{name} (pid {pid})"
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                self._tell(who)
                continue
            self._watched[descriptor] = who
            self._loop.add_reader(descriptor, self._ended, descriptor)

    def close(self) -> None:
        for descriptor in list(self._watched):
            self._forget(descriptor)

    def _ended(self, descriptor: int) -> None:
        # The launcher's children die with it, and all of them may be noticed at once: then it was the launcher.
        ready, _, _ = select.select([*self._watched], [], [], 0)
        ended = [self._watched[each] for each in ready]
        launcher = next((who for who in ended if who.startswith(Role.LAUNCHER.value)), None)
        self._tell(launcher or self._watched[descriptor])
        self._forget(descriptor)

    def _forget(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        del self._watched[descriptor]
        os.close(descriptor)

    def _tell(self, who: str) -> None:
        if not self._lost.done():
            self._lost.set_result(f"{who} ended")
