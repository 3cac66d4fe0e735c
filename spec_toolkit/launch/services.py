"""The gateway and the sidecar: started, told every Route, restarted when they end, ended. Touches the world.

Each hears the current Route as the first line of its standard input and one line at each change. The pipe closes when this process
ends, and then so do they. A line is written whole or not at all and never waited for: a service that does not read is killed and
started again, as is one that ends unasked.
"""

import array
import asyncio
import fcntl
import os
import termios
import time
from contextlib import suppress

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.log import last_words
from spec_toolkit.errors import EngineError, SpecError
from spec_toolkit.launch.back_off import BackOff
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.launch.events import Kind
from spec_toolkit.launch.failure import LOST_PAGE, Failure, exit_words
from spec_toolkit.launch.kept_process import KeptProcess
from spec_toolkit.launch.record import GATEWAY, SIDECAR, Launch, Record, Service
from spec_toolkit.launch.rotating_log import RotatingLog
from spec_toolkit.launch.route import Route, encode_route

MOST_ENDS = 10  # within an hour, after which it is still started again
FIRST_READ_SECONDS = 120.0  # from its start, imports on a busy machine included, to its reading the first line
READ_SECONDS = 15.0  # to read any other
_ANSWER_SECONDS = 60.0  # from the first route with an engine to the gateway's first healthy answer
_LOG_BYTES, _LOG_FILES = 8 * 2**20, 2
_STOP_SECONDS = 5.0  # for one that has nothing to finish


class Services:
    def __init__(self, folder: Folder, launch: Launch, record: Record, secret: str) -> None:
        self._launch = launch
        self.given_up: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()  # the gateway: no way in
        self._runners = {each.name: _Runner(each, folder, launch, record, secret, self) for each in launch.services}

    def tell(self, route: Route) -> None:
        for runner in self._runners.values():
            runner.tell(encode_route(route))

    def start(self, *names: str) -> None:
        """Those of them that the launch has; they run until `stop`."""
        for name in names:
            if name in self._runners:
                self._runners[name].start()

    async def answering(self) -> None:
        """Until the gateway, if there is one, is healthy. Raises EngineError."""
        if GATEWAY not in self._runners:
            return
        deadline = time.monotonic() + _ANSWER_SECONDS
        async with EngineClient(self._launch.front.address) as client:
            while not await client.is_healthy():
                if time.monotonic() > deadline:
                    raise EngineError.of(
                        "gateway.no-answer",
                        self._launch.front.address,
                        f"the gateway gives no healthy answer {_ANSWER_SECONDS:g} s after an engine was ready",
                        remedy=f"See `spec-toolkit bundle`: {GATEWAY}.log; {LOST_PAGE}.",
                    )
                await asyncio.sleep(0.1)

    async def drain(self, seconds: float, at_once: asyncio.Event) -> None:
        """The gateway may finish its streams for so long; the engine goes on meanwhile."""
        await self._stop(GATEWAY, seconds, at_once)

    async def let_go(self, at_once: asyncio.Event) -> None:
        """The sidecar ends: an engine that is to end waits for connections that are kept open, and the sidecar keeps one."""
        await self._stop(SIDECAR, _STOP_SECONDS, at_once)

    async def _stop(self, name: str, seconds: float, at_once: asyncio.Event) -> None:
        if name in self._runners:
            await self._runners[name].stop(seconds, at_once)

    async def close(self) -> None:
        """Nothing of them lives when this returns; raises EngineError where one does not die."""
        never = asyncio.Event()
        stops = (runner.stop(_STOP_SECONDS, never) for runner in self._runners.values())
        for error in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error


class _Runner:
    """One service, as often as it must be started."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a service is made of
        self, service: Service, folder: Folder, launch: Launch, record: Record, secret: str, owner: Services
    ) -> None:
        self._service, self._folder, self._record, self._owner = service, folder, record, owner
        self._secret = secret
        # The keeper's own patience is only the last resort: `stop` is bounded by whoever calls it.
        self._grace_seconds = launch.drain_seconds + _STOP_SECONDS
        self._back_off = BackOff(most=MOST_ENDS, first_seconds=0.2, longest_seconds=30.0)
        self._line = b""
        self._pipe: _Pipe | None = None
        self._kept: KeptProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._keep())

    def tell(self, line: bytes) -> None:
        self._line = line
        if self._pipe is not None:
            self._pipe.write(line)

    async def stop(self, seconds: float, at_once: asyncio.Event) -> None:
        """Ask, wait for so long or until `at_once`, then kill. Raises EngineError where it does not die."""
        if self._task is None:
            return
        self._stopping = True
        if self._kept is not None:
            await self._kept.stop(seconds, at_once)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        name = self._service.name
        while True:
            began = time.monotonic()
            try:
                why = await self._run_once()
            except (OSError, SpecError) as error:
                why = f"{type(error).__name__}: {error}"
            if self._stopping:
                return
            ended = f"{name}: {why} after {time.monotonic() - began:.0f} s."
            wait_seconds = self._back_off.wait_after_end()
            if wait_seconds is None:
                self._give_up(f"{ended} More than {MOST_ENDS} ends within an hour: it is not started again.")
                return
            self._record.event(Kind.SERVICE, f"{ended} Started again in {wait_seconds:.1f} s.", runbook=LOST_PAGE)
            await asyncio.sleep(wait_seconds)

    async def _run_once(self) -> str:
        """Until it ends, or does not read; returns why."""
        log = RotatingLog(self._folder.log_of(self._service.name), most_bytes=_LOG_BYTES, files=_LOG_FILES)
        pipe = self._pipe = _Pipe()  # what is told while it starts is told to it, too
        pipe.write(self._line)
        try:
            kept = await KeptProcess.start(
                self._service.command,
                environment=os.environ,
                take=lambda line: log.write(line + b"\n"),
                secret=self._secret,
                grace_seconds=self._grace_seconds,
                stdin=pipe.theirs,
            )
        except BaseException:
            self._pipe = None
            pipe.close()
            log.close()
            raise
        self._record.own(kept.keeper_pid)
        self._record.event(Kind.SERVICE, f"{self._service.name}: started")
        self._kept = kept
        pipe.close_theirs()
        ending, unread = asyncio.create_task(kept.wait()), asyncio.create_task(pipe.unread.wait())
        try:
            await asyncio.wait({ending, unread}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                code = ending.result()
                return f'ended with {exit_words(code)}, last words "{last_words(list(kept.tail))}"'
            return "did not read what it was told"
        finally:
            self._kept = self._pipe = None
            for task in (ending, unread):
                task.cancel()
            await asyncio.gather(ending, unread, return_exceptions=True)
            pipe.close()
            try:
                await kept.kill()
            finally:
                self._record.disown(kept.keeper_pid)
                log.close()

    def _give_up(self, text: str) -> None:
        self._record.event(Kind.SERVICE, text, runbook=LOST_PAGE)
        if self._service.name != GATEWAY:
            self._record.note(without=text)
        elif not self._owner.given_up.done():
            self._owner.given_up.set_result(Failure(text=f"{text} See {LOST_PAGE}.", runbook=LOST_PAGE, final=True))


class _Pipe:
    """To a service's standard input; sets `unread` when what was written is not read in time."""

    def __init__(self) -> None:
        self.theirs, self._ours = os.pipe()
        os.set_blocking(self._ours, False)
        self._written = 0
        self.unread = asyncio.Event()

    def write(self, line: bytes) -> None:
        if self._ours < 0 or not line:
            return
        try:
            self._written += os.write(self._ours, line)
        except BlockingIOError:
            self.unread.set()
            return
        except BrokenPipeError:
            return  # it has ended, which is seen elsewhere
        first = self._written == len(line)
        seconds = FIRST_READ_SECONDS if first else READ_SECONDS
        asyncio.get_running_loop().call_later(seconds, self._look, self._written, first)

    def _look(self, written: int, first: bool) -> None:
        """Whether everything up to here was read by now. One that has not read its first line yet is looked at then."""
        if self._ours < 0:
            return
        waiting = array.array("i", [0])
        with suppress(OSError):
            fcntl.ioctl(self._ours, termios.FIONREAD, waiting)
            read = self._written - waiting[0]
            if read < written and (first or read > 0):
                self.unread.set()

    def close_theirs(self) -> None:
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def close(self) -> None:
        self.close_theirs()
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1
