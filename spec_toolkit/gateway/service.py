"""The gateway's process: `python -P -m spec_toolkit.gateway.service FOLDER`; FOLDER holds `launch.json`. Touches the world.

It hears of every Route on its standard input, and ends where that closes, since then the supervisor is gone. SIGTERM: new requests are
refused, those in flight have the launch's drain time, what is left ends with a typed error; so does at once what waits while no engine
takes requests, for none will. What a client asks or is answered stays in
memory: nothing of it is logged or written.
"""

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import uvloop
from aiohttp import web

from spec_toolkit.gateway.admission import Admission
from spec_toolkit.gateway.attempts import Exchange
from spec_toolkit.gateway.counters import Counters, Snapshot
from spec_toolkit.gateway.engines import Engines
from spec_toolkit.gateway.proxy import Proxy
from spec_toolkit.gateway.refusal import Reason
from spec_toolkit.gateway.watch import TICK_SECONDS, Watch
from spec_toolkit.launch.deployment import Folder, write_private
from spec_toolkit.launch.record import Launch
from spec_toolkit.launch.route import Route, decode_route

_LOG = logging.getLogger("spec_toolkit.gateway")
_KEPT_OPEN_SECONDS = (
    3.0  # an idle connection; engines close theirs after five, and a request sent into that is made again
)
_LAST_SECONDS = 2.0  # for typed errors to leave
_BACKLOG = 1024


class Gateway:
    def __init__(self, folder: Folder, launch: Launch, session: aiohttp.ClientSession) -> None:
        front = launch.front
        self._folder = folder
        self._launch = launch
        self._loop = asyncio.get_running_loop()
        self.engines = Engines()
        self._counters = Counters()
        self._admission = Admission(
            running_cap=front.max_running_requests, waiting_cap=front.max_waiting_requests, now=self._loop.time()
        )
        exchange = Exchange(self.engines, self._counters, session, front.resume_deadline_seconds)
        self._proxy = Proxy(exchange, self._admission, self.snapshot, context_tokens=front.context_tokens)
        self._watch = Watch(exchange, self._proxy, hang_seconds=launch.hang_seconds)
        self._ending = asyncio.Event()
        # Its supervisor ends it after the launch's drain time: what is left then must have been told before.
        self._drain_seconds = max(0.0, launch.drain_seconds - 2 * _LAST_SECONDS)
        self._stopping = False

    def end(self, *, drain: bool) -> None:
        if not drain:
            self._drain_seconds = 0.0
        self._ending.set()

    async def run(self) -> None:
        front = self._launch.front
        runner = web.ServerRunner(self._proxy.server())
        await runner.setup()
        site = web.TCPSite(runner, front.host, front.port, backlog=_BACKLOG)
        await site.start()
        _LOG.info("clients are served at %s", front.address)
        ticking = asyncio.create_task(self._tick())
        try:
            await self._ending.wait()
            self._stopping = self._proxy.draining = True
            self._turn_away()
            await site.stop()
            await self._drain()
        finally:
            ticking.cancel()
            self._watch.close()
            await self._write()
            await runner.cleanup()

    def follow(self, route: Route) -> None:
        before = self.engines.current
        self.engines.follow(route)
        if self.engines.current is not before:
            self._admission.start_anew(self._loop.time())
        self._turn_away()

    def _turn_away(self) -> None:
        if self._stopping and self.engines.current is None:
            self.engines.turn_away()

    async def _drain(self) -> None:
        """Those in flight end by themselves, or are ended."""
        if not await self._emptied(self._drain_seconds):
            _LOG.info("%d requests end unfinished", self._admission.in_flight)
        self.engines.close()
        await self._emptied(_LAST_SECONDS)

    async def _emptied(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._proxy.idle.wait()
        except TimeoutError:
            return False
        return True

    async def _tick(self) -> None:
        while True:
            try:
                await self._watch.round()
            except Exception:  # noqa: BLE001 - a defect here must not end the rounds that find hanging engines
                _LOG.exception("a round of the watch failed")
            await self._write()
            await asyncio.sleep(TICK_SECONDS)

    async def _write(self) -> None:
        said = msgspec.json.encode(self.snapshot())
        with suppress(OSError):  # a full disk loses a snapshot, no stream
            await asyncio.to_thread(write_private, self._folder.gateway_snapshot, said)  # it waits for the disk

    def snapshot(self) -> Snapshot:
        counters, route, current = self._counters, self.engines.route, self.engines.current
        now = datetime.now(UTC)  # noqa: TID251 - an edge
        return Snapshot(
            run=self._launch.status.run,
            at=now.isoformat(timespec="milliseconds"),
            wall_s=now.timestamp(),
            route=route.generation if route else 0,
            engine=current.number if current else 0,
            stopping=self._stopping,
            in_flight=self._admission.in_flight,
            waiting=counters.waiting,
            cap=self._admission.cap,
            streams=counters.streams,
            completed=counters.completed,
            resumed=counters.resumed,
            resume_failed=counters.resume_failed,
            remade=counters.remade,
            refused=counters.reasons[Reason.OVERLOADED.value],
            client_gone=counters.client_gone,
            reasons=dict(counters.reasons),
            losses=dict(counters.losses),
            resume_seconds=tuple(counters.resume_seconds),
            completions_per_second=self._admission.rate(self._loop.time()),
        )


async def follow_routes(gateway: Gateway, pipe: int) -> None:
    """Until it closes. A line that is no Route is left out: the last one stays in force."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb"))
    try:
        while line := await reader.readline():
            try:
                route = decode_route(line)
            except msgspec.DecodeError as error:
                _LOG.warning("a line that is no route: %s", error)
                continue
            _LOG.info(
                "route %d: engine %d at %s; %s", route.generation, route.engine, route.address or "none", route.why
            )
            gateway.follow(route)
    finally:
        transport.close()
        gateway.end(drain=False)


def connector() -> aiohttp.TCPConnector:
    """To engines. The pool's default limit of 100 connections would queue the 101st stream without a word."""
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_OPEN_SECONDS)


async def serve(folder: Folder, launch: Launch, pipe: int) -> None:
    skipped = ("User-Agent", "Accept-Encoding")
    async with aiohttp.ClientSession(connector=connector(), skip_auto_headers=skipped) as session:
        gateway = Gateway(folder, launch, session)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: gateway.end(drain=True))
        following = asyncio.create_task(follow_routes(gateway, pipe))
        try:
            await gateway.run()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def main(arguments: list[str]) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    folder = Folder(Path(arguments[0]))
    launch = msgspec.json.decode(folder.launch.read_bytes(), type=Launch)
    uvloop.run(serve(folder, launch, os.dup(sys.stdin.fileno())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
