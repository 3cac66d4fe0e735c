"""One process under its keeper: its lines, its end. Touches the world.

Its lines come through a pipe, not straight to a file, for two reasons: a year of serving must not fill a disk, and a secret must be
struck before it is written, even by an engine that is not patched yet.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from spec_toolkit.errors import EngineError

_LINE_BYTES = 256 * 1024  # the engine writes its arguments as one line of some 20 kB
_TAIL_LINES = 200
_KEEPER_SECONDS = 15.0  # for a keeper to kill its tree
_STRUCK = b"<redacted>"

_KEEPER = str(Path(__file__).with_name("keeper.py"))

Lines = Callable[[bytes], None]  # takes one line, secrets struck, without its end


class KeptProcess:
    """Use `start`; then `wait` for the end, or `stop`, or `kill`."""

    def __init__(self, process: asyncio.subprocess.Process, lifeline: int, take: Lines, secret: bytes) -> None:
        self._process = process
        self._lifeline = lifeline
        self._lines = take
        self._secret = secret
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.key_was_logged = asyncio.Event()
        self._keeper_ended = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(  # noqa: PLR0913 - keywords, each with a name of its own
        cls,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        take: Lines,
        secret: str,
        grace_seconds: float,
        stdin: int = subprocess.DEVNULL,
    ) -> Self:
        """`grace_seconds`: from the keeper's SIGTERM to the process to the kill of its tree."""
        theirs, ours = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", _KEEPER, str(theirs), str(grace_seconds), "--", *command),
                env=environment,
                pass_fds=(theirs,),
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        kept = cls(process, ours, take, secret.encode())
        kept._reader = asyncio.create_task(kept._read())
        kept._watch_keeper()
        return kept

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
        """Leads the session that the process and all below it belong to."""
        return self._process.pid

    async def wait(self) -> int:
        """Its exit code, 128 + n for signal n; its lines are complete then."""
        await self._keeper_ended.wait()
        while (code := self._process.returncode) is None:  # noqa: ASYNC110 - asyncio reaps it and tells nobody
            await asyncio.sleep(0.01)
        if code < 0:  # the keeper itself was killed, and could not end what it kept
            end_session(self.keeper_pid)
        if self._reader is not None:
            # Shielded: a caller that stops waiting must not stop the log.
            await asyncio.shield(self._reader)
        return code if code >= 0 else 128 - code

    async def stop(self, seconds: float, at_once: asyncio.Event) -> None:
        """Ask, wait for `seconds` or until `at_once`, then kill; nothing of the tree is left when this returns."""
        if self._process.returncode is None:
            self._process.terminate()
        ended, hurried = asyncio.create_task(self.wait()), asyncio.create_task(at_once.wait())
        try:
            await asyncio.wait({ended, hurried}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (ended, hurried):
                task.cancel()
            await asyncio.gather(ended, hurried, return_exceptions=True)
        await self.kill()

    async def kill(self) -> int:
        """Close the lifeline: the keeper kills the tree. Raises EngineError where something does not die."""
        self._close_lifeline()
        for _ in range(2):
            with suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(self.wait()), _KEEPER_SECONDS)
            left = end_session(self.keeper_pid)  # the keeper is stuck, or stopped: do its work
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

    async def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for as a pipe
        pending, secret = b"", self._secret
        while chunk := await self._process.stdout.read(64 * 1024):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self._take(line)
            if len(pending) > _LINE_BYTES:
                # Cut where no secret can be cut in two: whole ones are struck first, the last bytes wait for more.
                pending = self._strike(pending)
                self._take(pending[: -len(secret)])
                pending = pending[-len(secret) :]
        if pending:
            self._take(pending)

    def _take(self, line: bytes) -> None:
        line = self._strike(line)
        self.tail.append(line.decode(errors="replace"))
        # A full disk must not stop the process, and an unread pipe would: what cannot be kept is dropped.
        with suppress(OSError):
            self._lines(line)

    def _strike(self, text: bytes) -> bytes:
        if self._secret in text:
            self.key_was_logged.set()
        return text.replace(self._secret, _STRUCK)


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
