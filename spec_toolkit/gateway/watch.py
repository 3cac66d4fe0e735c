"""What has to happen by time alone: keep-alive lines, clients that do not read, engines that hang. Touches the network.

One round a second over all streams costs the streams themselves nothing but three time stamps.
"""

import asyncio
import logging
from contextlib import suppress

import aiohttp

from spec_toolkit.gateway.attempts import Exchange
from spec_toolkit.gateway.engines import Engine
from spec_toolkit.gateway.proxy import Proxy
from spec_toolkit.gateway.refusal import Reason
from spec_toolkit.gateway.stream import ClientGoneError, Stream

TICK_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 5.0  # of silence, before a client is told that its stream lives
UNREAD_SECONDS = 60.0  # a client that takes nothing for so long loses its stream: it holds a place that others wait for
PROBE_SECONDS = 25.0  # for a silent engine to say that it is healthy: its own check takes up to 20
_HEALTH = "/health"
_LOG = logging.getLogger("spec_toolkit.gateway")


class Watch:
    def __init__(self, exchange: Exchange, proxy: Proxy, *, hang_seconds: float) -> None:
        self._exchange = exchange
        self._proxy = proxy
        self._hang_seconds = hang_seconds
        self._loop = asyncio.get_running_loop()
        self._probes: dict[Engine, asyncio.Task[None]] = {}

    async def round(self) -> None:
        now = self._loop.time()
        for stream in tuple(self._proxy.streams):
            if stream.writing_since is not None:
                if now - stream.writing_since >= UNREAD_SECONDS:
                    self._end_unread(stream)
            elif stream.begun and now - stream.last_sent >= KEEP_ALIVE_SECONDS:
                await self._keep_alive(stream)
        for engine in self._exchange.engines.all:
            silent = engine.silent_seconds(now) >= self._hang_seconds
            if (silent or engine.hangs) and engine not in self._probes:
                self._probes[engine] = asyncio.create_task(self._probe(engine))

    def close(self) -> None:
        for probe in self._probes.values():
            probe.cancel()

    def _end_unread(self, stream: Stream) -> None:
        transport = stream.http.transport
        if transport is not None:
            self._exchange.counters.reasons[Reason.TOO_SLOW.value] += 1
            _LOG.info("a stream ends: its client read nothing for %g s", UNREAD_SECONDS)
            transport.abort()

    async def _keep_alive(self, stream: Stream) -> None:
        with suppress(TimeoutError, ClientGoneError):  # the stream's own next write shows it
            async with asyncio.timeout(TICK_SECONDS):
                await stream.keep_alive()

    async def _probe(self, engine: Engine) -> None:
        """Silence alone is no evidence: a long prompt, or answers that are made whole, are silent too."""
        try:
            healthy = await self._is_healthy(engine)
            now = self._loop.time()
            if healthy:
                engine.last_byte = now
                if engine.hangs:
                    engine.hangs = False
                    self._exchange.engines.wake()
            elif engine.silent_seconds(now) >= self._hang_seconds and not engine.hangs:
                engine.hangs = True
                _LOG.warning(
                    "engine %d hangs: silent for %.0f s and not healthy", engine.number, engine.silent_seconds(now)
                )
                engine.cut_all()
        finally:
            del self._probes[engine]

    async def _is_healthy(self, engine: Engine) -> bool:
        timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
        try:
            async with self._exchange.session.get(engine.address + _HEALTH, timeout=timeout) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False
