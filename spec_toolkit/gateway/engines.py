"""Which engine takes requests, who waits for one, and what the gateway has seen of each. Touches nothing but the event loop.

The supervisor says where requests go (`Route`). Requests that run at an engine which is no longer named are left alone, for it may
serve them to their end; they are cut where the Route says that this engine was lost, or where it hangs.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from spec_toolkit.gateway.refusal import Refused
from spec_toolkit.launch.route import Route

RESUMED_FIRST_SECONDS = 2.0  # after a change new requests let resumed streams pass, until those run or for so long


class Running(Protocol):
    """A request at an engine."""

    def cut(self) -> None:
        """Its engine will not answer any more."""


class Engine:
    def __init__(self, number: int, address: str, *, speculates: bool, now: float) -> None:
        self.number = number
        self.address = address
        self.speculates = speculates
        self.running: set[Running] = set()
        self.last_byte = now  # when it last said anything, or had nothing to say
        self.hangs = False

    @contextmanager
    def holding(self, request: Running, now: float) -> Iterator[None]:
        if not self.running:
            self.last_byte = now
        self.running.add(request)
        try:
            yield
        finally:
            self.running.discard(request)

    def silent_seconds(self, now: float) -> float:
        return now - self.last_byte if self.running else 0.0

    def cut_all(self) -> None:
        for request in tuple(self.running):
            request.cut()


class Engines:
    """Made inside the loop that it serves."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.route: Route | None = None
        self.closed = False
        self._named: Engine | None = None  # by the Route
        self._earlier: list[Engine] = []  # and not named any more; they may have requests
        self._waiters: list[asyncio.Future[None]] = []
        self._resuming: set[object] = set()  # streams that lost their engine and do not run at another yet
        self._resumed_first_until = 0.0

    @property
    def current(self) -> Engine | None:
        return None if self._named is None or self._named.hangs else self._named

    @property
    def all(self) -> tuple[Engine, ...]:
        self._earlier = [engine for engine in self._earlier if engine.running]
        return (*self._earlier, *(() if self._named is None else (self._named,)))

    def follow(self, route: Route) -> None:
        before, named = self.route, self._named
        self.route = route
        if named is not None and (route.engine, route.address) == (named.number, named.address):
            return
        if named is not None:
            self._earlier.append(named)
        self._named = self._find(route) if route.address else None
        if self._named is not None:
            self._resumed_first_until = self._loop.time() + RESUMED_FIRST_SECONDS
            self._loop.call_later(RESUMED_FIRST_SECONDS, self.wake)
        if route.lost > (before.lost if before else 0):
            # Which one it was is not said. A stream that is cut at an engine that lives goes on elsewhere as well.
            for engine in self._earlier:
                if engine.speculates:
                    engine.cut_all()
        self.wake()

    def _find(self, route: Route) -> Engine:
        """The engine it names; one that was named before is the same one still."""
        for engine in self._earlier:
            if (engine.number, engine.address) == (route.engine, route.address):
                self._earlier.remove(engine)
                return engine
        return Engine(route.engine, route.address, speculates=route.speculates, now=self._loop.time())

    def turn_away(self) -> None:
        """Whoever waits, or loses its engine, is told that the gateway ends."""
        self.closed = True
        self.wake()

    def close(self) -> None:
        """Whoever runs, too."""
        self.turn_away()
        for engine in self.all:
            engine.cut_all()

    def wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def take(self, *, resumed: bool, until: float) -> Engine:
        """The engine to send a request to. TimeoutError where there is none `until` then, Refused where the gateway ends."""
        while True:
            self.check_open()
            engine = self.current
            if engine is not None and (resumed or not self._let_pass()):
                return engine
            async with asyncio.timeout_at(until):
                await self._change()

    async def change(self, seconds: float) -> None:
        """Wait until something changes, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._change()
        except TimeoutError:
            return

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def check_open(self) -> None:
        if self.closed:
            raise Refused.by_stop()

    def lost_by(self, stream: object) -> None:
        self._resuming.add(stream)

    def runs_again(self, stream: object) -> None:
        """Or has ended."""
        if stream in self._resuming:
            self._resuming.discard(stream)
            if not self._resuming:
                self.wake()

    def _let_pass(self) -> bool:
        return bool(self._resuming) and self._loop.time() < self._resumed_first_until
