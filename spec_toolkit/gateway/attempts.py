"""One request at engine after engine: taking one, losing it, waiting for the next, all before one deadline. Touches the network.

What a request does with an engine's answer is for `stream` and `whole`.
"""

import asyncio
import logging
import random
import re
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from spec_toolkit.gateway.counters import Counters
from spec_toolkit.gateway.engines import Engine, Engines
from spec_toolkit.gateway.journal import AbortedError, MalformedError
from spec_toolkit.gateway.refusal import Reason, Refused

LOG = logging.getLogger("spec_toolkit.gateway")

MOST_LOSSES = 3  # engines that were lost under one request; one more, and it may be the request that ends them
MOST_LOSSES_UNMADE = (
    2  # where no token of it was made: each engine that takes it may be held up by it, and ended for that
)
CONNECT_SECONDS = 5.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0
_RETRY_SECONDS = 10  # for a client that met no engine

_PLAIN = re.compile(r"[!-~]{1,200}")  # what may stand in a header, whoever wrote it
LOSSES = (aiohttp.ClientError, TimeoutError, OSError, AbortedError)  # whatever shows that an engine will not answer


class EndedEarlyError(aiohttp.ClientError):
    """The engine closed the connection before the answer was whole."""


class NotTakingError(aiohttp.ClientError):
    """The engine answers, and takes no requests: it starts or ends."""


# The request did not reach the engine: no engine was lost under it. (One that ended its engine before a byte of an answer was.)
_NOT_REACHED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, NotTakingError)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What all requests share."""

    engines: Engines
    counters: Counters
    session: aiohttp.ClientSession
    deadline_seconds: float  # from arrival, or from a loss, until an engine goes on


class Attempts:
    def __init__(self, exchange: Exchange, path: str, headers: Mapping[str, str]) -> None:
        self.exchange = exchange
        self.path = path
        self.headers = headers
        self.attempt = 0
        self.losses = 0
        self.made = False  # a token of it is known to have been made
        self._lost_unmade: set[int] = set()  # engines that were lost before
        self.lost_at: float | None = None
        self.loop = asyncio.get_running_loop()
        self._deadline = self.loop.time() + exchange.deadline_seconds
        self._in_a_row = 0  # attempts that came to nothing
        self._upstream: aiohttp.ClientResponse | None = None
        self._is_cut = False
        self._posting: asyncio.Timeout | None = None

    def cut(self) -> None:
        """Makes whatever is awaited of the engine break off."""
        self._is_cut = True
        if self._upstream is not None:
            self._upstream.close()
        elif self._posting is not None and not self._posting.expired():
            self._posting.reschedule(self.loop.time())

    async def engine(self, *, until: float | None = None) -> Engine:
        """TimeoutError only where `until` comes before the deadline."""
        self.exchange.counters.waiting += 1
        last = self._deadline if until is None else min(until, self._deadline)
        try:
            return await self.exchange.engines.take(resumed=self.lost_at is not None, until=last)
        except TimeoutError:
            if last < self._deadline:
                raise
            raise self.out_of_time() from None
        finally:
            self.exchange.counters.waiting -= 1

    @asynccontextmanager
    async def post(
        self, engine: Engine, body: bytes, *, silent_seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """`silent_seconds`: at most between two pieces of its answer, the first included."""
        self._is_cut = False
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silent_seconds)
        with engine.holding(self, self.loop.time()):
            try:
                async with asyncio.timeout(None) as self._posting:
                    upstream = await self.exchange.session.post(
                        engine.address + self.path, data=body, headers=self.headers, timeout=timeout
                    )
            finally:
                self._posting = None
            self._upstream = upstream
            try:
                if self._is_cut:
                    raise EndedEarlyError("its engine is lost")
                engine.last_byte = self.loop.time()
                yield upstream
            finally:
                self._upstream = None
                upstream.release()  # closes the connection where the answer was not read to its end

    def taken(self) -> None:
        """The engine answers the request."""
        self._in_a_row = 0
        self.exchange.engines.runs_again(self)

    def lost(self, engine: Engine, error: BaseException) -> None:
        """Raises Refused where there is to be no other attempt."""
        kind = kind_of(error)
        self.exchange.counters.losses[kind] += 1
        self.attempt += 1
        self._in_a_row += 1
        had_it = not isinstance(error, _NOT_REACHED)
        if had_it and self.lost_at is None:
            self.lost_at = self.loop.time()
            self._deadline = self.lost_at + self.exchange.deadline_seconds
            self.exchange.engines.lost_by(self)
        self.exchange.engines.check_open()
        if had_it:
            self.losses += 1
            LOG.info("engine %d lost under a request: %s", engine.number, kind)
            if not isinstance(error, AbortedError):  # which lives, and says so
                self._lost_unmade.add(engine.number)
        if not self.made and len(self._lost_unmade) >= MOST_LOSSES_UNMADE:
            raise _lost_too_often(f"{len(self._lost_unmade)} engines were lost under it, and no token of it is known.")
        if self.losses > MOST_LOSSES:
            raise _lost_too_often(f"Its engine was lost {self.losses} times.")

    async def pause(self) -> None:
        """Before the next attempt; a change of the Route ends it."""
        seconds = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(self._in_a_row - 1, 10))
        seconds *= random.uniform(0.5, 1.5)  # noqa: S311 - so that requests which lost one engine do not come back as one
        now = self.loop.time()
        if now >= self._deadline:
            raise self.out_of_time()
        self.exchange.counters.waiting += 1
        try:
            await self.exchange.engines.change(min(seconds, self._deadline - now))
        finally:
            self.exchange.counters.waiting -= 1

    def goes_on(self) -> float | None:
        """Something came of the attempt; seconds since the loss, None where there was none."""
        if self.lost_at is None:
            return None
        seconds = self.loop.time() - self.lost_at
        self.lost_at = None
        return seconds

    def request_id(self, rid: str | None) -> dict[str, str]:
        """What a client finds the request again by: its own name for it, else the engine's."""
        name = self.headers.get("x-request-id") or rid or ""
        return {"X-Request-Id": name} if _PLAIN.fullmatch(name) else {}

    def close(self) -> None:
        self.exchange.engines.runs_again(self)

    def out_of_time(self) -> Refused:
        return Refused(
            Reason.NO_ENGINE,
            f"No engine {'took the request' if self.lost_at is None else 'went on with it'} "
            f"within {self.exchange.deadline_seconds:g} s.",
            "Send it again later.",
            retry_after=_RETRY_SECONDS,
        )


def _lost_too_often(found: str) -> Refused:
    return Refused(
        Reason.LOST_TOO_OFTEN,
        f"{found} This request may be what ends the engines.",
        "Send it again later, once; if that repeats, do not.",
    )


async def read_whole(upstream: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    pieces, size = [], 0
    while piece := await upstream.content.readany():
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            raise MalformedError(f"an answer of more than {most_bytes >> 20} MiB")
    return b"".join(pieces)


def log_defect(error: Exception) -> None:
    """Where, and not what: a message may hold a prompt."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    LOG.error("a defect: %s at %s:%s in %s", type(error).__name__, where.filename, where.lineno, where.name)


def kind_of(error: BaseException) -> str:
    match error:
        case EndedEarlyError():
            return "ended early"
        case NotTakingError():
            return "not taking requests"
        case AbortedError():
            return "aborted"
        case aiohttp.ClientConnectorError():
            return "no connection"
        case TimeoutError():
            return "silent"
    return "connection lost"
