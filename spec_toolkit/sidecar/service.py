"""The sidecar's process: `python -P -m spec_toolkit.sidecar.service FOLDER`. Touches the world.

Standard input brings a Route line at every change and closes when the supervisor is gone; then, and on SIGTERM, this process ends
within a second and leaves the engine as it is.
"""

import asyncio
import logging
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.launch.record import Launch
from spec_toolkit.launch.route import Route, decode_route
from spec_toolkit.planning.limits import Limits
from spec_toolkit.sidecar.act import World
from spec_toolkit.sidecar.controller import Controller, Deployment
from spec_toolkit.sidecar.files import (
    Watched,
    append_decision,
    read_carried,
    try_writing,
    write_carried,
    write_snapshot,
)
from spec_toolkit.sidecar.hold import always_speculates
from spec_toolkit.sidecar.records import Carried, Hold, Taken
from spec_toolkit.sidecar.scrape import Look, Scraper
from spec_toolkit.sidecar.snapshot import take_snapshot

# A window of load ends at most this much late; a draft fault needs no hurry, since the engine falls by itself. Each look costs the
# engine's front some tens of milliseconds on a slow core (`tests/sidecar/measure_sidecar.py`): more often would be felt.
INTERVAL_SECONDS = 1.0
_RESTART_MARGIN_SECONDS = 60.0  # for the checks between an engine's readiness and its traffic
_LINE_BYTES = 2**16  # of a route, at most
_LOG = logging.getLogger("spec_toolkit.sidecar")


class Clock:
    """Unix time that never goes back: not within this process, and not behind what the sidecar before it wrote down."""

    def __init__(self, at_least_s: float) -> None:
        self._began = time.monotonic()
        self._from_s = max(time.time(), at_least_s)  # noqa: TID251 - an edge: cool-downs and crashes outlive the process

    def __call__(self) -> float:
        return self._from_s + time.monotonic() - self._began


class Service:
    def __init__(self, folder: Folder, launch: Launch, admin_key: str) -> None:
        carried, problem = read_carried(folder)
        if problem:
            _LOG.warning("%s", problem)
        self._folder = folder
        self._hang_seconds = launch.hang_seconds
        self._admin_key = admin_key
        self._written: Carried | None = carried
        self._clock = Clock(carried.written_s if carried else 0.0)
        self._world = World(folder, self._clock)
        restart_seconds = launch.ready_seconds + launch.drain_seconds + _RESTART_MARGIN_SECONDS
        deployment = Deployment(
            run=launch.status.run,
            comeback=launch.comeback,
            hang_seconds=launch.hang_seconds,
            restart_seconds=restart_seconds,
            always_speculates=always_speculates(launch),
        )
        self._controller = Controller(deployment, self._world, carried)
        self._limits = Watched(folder.limits, Limits, self._controller.limits)
        self._hold = Watched(folder.hold, Hold, self._controller.hold)
        self._scraper: Scraper | None = None
        self._route: Route | None = None  # the newest, not yet looked at
        self._changed = asyncio.Event()
        self._unwritten = ""

    async def follow(self, lines: asyncio.StreamReader) -> None:
        """Take routes until the supervisor is gone."""
        while True:
            try:
                line = await lines.readline()
            except ValueError:  # longer than any route; what is left of it follows, and is none either
                _LOG.warning("A line of more than %d bytes is no route", _LINE_BYTES)
                continue
            if not line.endswith(b"\n"):
                return
            try:
                self._route = decode_route(line)
            except msgspec.DecodeError as error:
                _LOG.warning("A line of standard input is no route: %s", error)
            else:
                self._changed.set()

    async def run(self) -> None:
        """Look, decide, act, once a second and whenever the route changes."""
        try:
            while True:
                due = time.monotonic() + INTERVAL_SECONDS
                self._changed.clear()
                await self._turn()
                left = max(0.0, due - time.monotonic())
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), left)
        finally:
            await self._leave()

    async def _turn(self) -> None:
        self._read_files()
        await self._take_route()
        look = await self._scraper.look() if self._scraper else Look(finding="no engine takes requests now")
        taken = await self._controller.step(look, self._clock())
        self._write_down(taken)

    async def _take_route(self) -> None:
        """The look that follows is at the engine that the controller is told of."""
        route, before = self._route, self._controller.sight.route
        self._controller.sight.route = route
        if route is None or (before is not None and route.address == before.address and route.engine == before.engine):
            return
        await self._leave()
        if route.address:
            self._world.engine = await EngineClient(route.address, admin_key=self._admin_key).__aenter__()
            self._scraper = Scraper(self._world.engine, self._clock, hang_seconds=self._hang_seconds)

    async def _leave(self) -> None:
        """Let go of the engine that was looked at."""
        scraper, engine = self._scraper, self._world.engine
        self._scraper = self._world.engine = None
        if scraper is not None:
            await scraper.close()
        if engine is not None:
            await engine.__aexit__(None, None, None)

    def _read_files(self) -> None:
        if self._limits.refresh():
            self._tell(self._limits.problem or ("" if self._limits.absent else "limits.json: in force"))
            self._controller.limits = self._limits.record  # a file that is gone changes nothing
        if self._hold.refresh():
            self._tell(self._hold.problem)
        if self._hold.absent:
            self._controller.hold = None
        elif not self._hold.problem:  # what cannot be read neither holds nor releases
            self._controller.hold = self._hold.record

    def _write_down(self, taken: list[Taken]) -> None:
        now_s = self._clock()
        snapshot = take_snapshot(
            self._controller,
            now_s,
            time.time(),  # noqa: TID251 - an edge: whoever reads it tells its age by the same clock
            limits_file=str(self._folder.limits),
            limits_problem=self._limits.problem,
            hold_file_problem=self._hold.problem,
        )
        for line in taken:
            _LOG.info("%s", line.why)
        writes = [partial(append_decision, self._folder, line) for line in taken]
        carried, before = self._controller.carried(now_s), self._written
        if carried is not None and (
            before is None or msgspec.structs.replace(carried, written_s=before.written_s) != before
        ):
            writes.append(partial(self._write_carried, carried))
        writes.append(partial(write_snapshot, self._folder, snapshot))
        problem = next((said for said in map(try_writing, writes) if said), "")
        if problem != self._unwritten:
            self._tell(f"Not everything is written down: {problem}" if problem else "Everything is written down again.")
        self._unwritten = problem

    def _write_carried(self, carried: Carried) -> None:
        write_carried(self._folder, carried, self._written)
        self._written = carried  # else it is tried again at the next turn

    def _tell(self, text: str) -> None:
        if text:
            _LOG.warning("%s", text)


async def serve(folder: Folder, launch: Launch) -> None:
    """Until standard input closes, or a signal asks for the end."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    lines = asyncio.StreamReader(limit=_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    service = Service(folder, launch, folder.admin_key.read_text().strip())
    tasks = [asyncio.create_task(work) for work in (service.follow(lines), service.run(), ended.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a defect of ours ends the process with its trace; the engine stays as it is
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main(arguments: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s sidecar: %(message)s")
    folder = Folder(Path(arguments[0]))
    launch = msgspec.json.decode(folder.launch.read_bytes(), type=Launch)
    asyncio.run(serve(folder, launch))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
