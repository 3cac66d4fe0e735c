"""One client's stream, through as many engines as it takes. Touches the network.

The client's headers go out with the first event that is committed, so that until then a refusal has its status; or after
`PATIENCE_SECONDS` without an engine, so that proxies in between do not take the wait for a dead connection.
"""

import asyncio

import orjson
from aiohttp import ClientResponse, web

from spec_toolkit.gateway import wire
from spec_toolkit.gateway.attempts import (
    LOG,
    LOSSES,
    Attempts,
    EndedEarlyError,
    Exchange,
    NotTakingError,
    log_defect,
    read_whole,
)
from spec_toolkit.gateway.engines import Engine
from spec_toolkit.gateway.journal import (
    ChatJournal,
    GenerateJournal,
    Journal,
    MalformedError,
    PassingJournal,
    ResumptionRefusedError,
)
from spec_toolkit.gateway.refusal import Reason, Refused

PATIENCE_SECONDS = 30.0
SILENT_SECONDS = 1800.0  # of one stream whose engine answers others: it may wait long in that engine's queue
_LAST_SECONDS = 1.0  # for the end of an answer that is whole
_REFUSAL_BYTES = 1 << 20
KEEP_ALIVE = b": waiting\n\n"


class ClientGoneError(Exception):
    """Nobody reads the stream any more."""


def journal_for(request: wire.Request) -> Journal:
    journal: Journal
    if request.cannot:
        journal = PassingJournal(request.cannot)
    else:
        journal = ChatJournal() if request.kind is wire.Kind.CHAT else GenerateJournal()
    journal.names = request.names
    return journal


class Stream(Attempts):
    def __init__(
        self, exchange: Exchange, http: web.BaseRequest, request: wire.Request, headers: dict[str, str]
    ) -> None:
        super().__init__(exchange, request.kind.value, headers)
        self.http = http
        self.request = request
        self.journal = journal_for(request)
        self.response: web.StreamResponse = web.StreamResponse(headers={"Cache-Control": "no-cache"})
        self.begun = False
        self.ended = False
        self.last_sent = self.loop.time()
        self.writing_since: float | None = None  # a write that the client does not read
        self._patient_until = self.last_sent + PATIENCE_SECONDS
        self._from = 0  # committed tokens that the attempt goes on after

    async def run(self) -> web.StreamResponse:
        """The response, sent; Refused where nothing was sent, and the answer is an error of ours."""
        try:
            await self._safely()
        except Refused as refused:
            if self.lost_at is not None:
                self.exchange.counters.resume_failed += 1
                LOG.info("a stream ends: %s; %d bytes were sent", refused.reason.value, self.journal.forwarded)
            if not self.begun:
                raise
            self.exchange.counters.reasons[refused.reason.value] += 1
            await self._send(refused.event())
        finally:
            self.close()
        return self.response

    async def keep_alive(self) -> None:
        """Where the client has all that was sent: so this waits for nobody. One that has not is behind, and knows that it lives."""
        transport = self.http.transport
        if not self.begun or self.ended or self.writing_since is not None:
            return
        if transport is None or transport.get_write_buffer_size():
            return
        self.last_sent = self.loop.time()
        try:
            await self.response.write(KEEP_ALIVE)
        except OSError as error:
            raise ClientGoneError from error

    async def _safely(self) -> None:
        try:
            await self._until_whole()
        except (Refused, ClientGoneError):
            raise
        except Exception as error:
            log_defect(error)
            raise Refused.by_defect() from error

    async def _until_whole(self) -> None:
        while not self.journal.finished:
            engine = await self._patiently()
            try:
                if await self._try(engine):
                    return
            except LOSSES as error:
                await self._go_elsewhere(engine, error)
            except (MalformedError, ResumptionRefusedError) as error:
                raise _unusable(error) from error

    async def _patiently(self) -> Engine:
        try:
            return await self.engine(until=None if self.begun else self._patient_until)
        except TimeoutError:
            await self._begin()
            return await self.engine()

    async def _try(self, engine: Engine) -> bool:
        """True where the client has its whole answer, whatever that is; False where another attempt is to be made at once."""
        async with self.post(engine, self._body(), silent_seconds=SILENT_SECONDS) as upstream:
            if upstream.status != 200:
                return await self._answered_no(upstream)
            self.taken()
            await self._forward(engine, upstream)
            await self._end()
            async with asyncio.timeout(_LAST_SECONDS):  # so that the connection can be used again
                await upstream.content.readany()
        return True

    def _body(self) -> bytes:
        if self.attempt == 0:
            return self.request.body
        resumption = self.journal.resumption()
        self._from = 0 if resumption is None else len(resumption.ids)
        body, self.journal.names = wire.again(self.request, resumption)
        return body

    async def _forward(self, engine: Engine, upstream: ClientResponse) -> None:
        """Until the answer is whole. The hot path: a few lookups, one split and one write a piece."""
        read, take, clock = upstream.content.readany, self.journal.take, self.loop.time
        while piece := await read():
            engine.last_byte = clock()
            if said := take(piece):
                if (seconds := self.goes_on()) is not None:
                    self._went_on(engine, seconds)
                await self._send(said)
            if self.journal.trouble is not None:
                raise self.journal.trouble
            if self.journal.finished:
                return
        raise EndedEarlyError("the stream ended before its end was said")

    def _went_on(self, engine: Engine, seconds: float) -> None:
        counters = self.exchange.counters
        if not self._from:
            counters.remade += 1
            return
        counters.resumed += 1
        counters.resume_seconds.append(round(seconds, 3))
        LOG.info("a stream goes on at engine %d after %d tokens and %.2f s", engine.number, self._from, seconds)

    async def _go_elsewhere(self, engine: Engine, error: BaseException) -> None:
        if self.journal.finished:  # a client has its whole answer; only the connection's end was not heard
            return
        self.journal.cut()
        if self.journal.finished:
            await self._send(wire.DONE + b"\n\n")
            return
        self.made = bool(self.journal.forwarded) or self.journal.resumption() is not None
        self.lost(engine, error)
        if self.journal.why_not and self.journal.forwarded:
            raise Refused(
                Reason.NOT_RESUMABLE,
                f"The engine was lost, and this request cannot go on at another: it {self.journal.why_not}.",
                "Send it again.",
            )
        await self.pause()

    async def _answered_no(self, upstream: ClientResponse) -> bool:
        status = upstream.status
        body = wire.renamed(await read_whole(upstream, _REFUSAL_BYTES), self.journal.names)
        if status == 503:
            raise NotTakingError
        if self.journal.forwarded:
            if status >= 500:
                self.taken()
                raise EndedEarlyError(f"HTTP {status}")
            raise _unusable(ResumptionRefusedError(body[:500].decode(errors="replace")))
        if status == 400 and not self.request.cannot and wire.is_resumption_refusal(body):
            self.request = wire.without_records(self.request)
            self.journal = journal_for(self.request)
            return False
        if self.begun:
            await self._send(_as_event(body) + wire.DONE + b"\n\n")
            await self._end()
        else:
            self.response = web.Response(status=status, body=body, content_type=upstream.content_type)
        return True

    async def _begin(self) -> None:
        headers = self.response.headers
        headers["Content-Type"] = "text/event-stream; charset=utf-8"
        headers.update(self.request_id(self.request.rid))
        await self.response.prepare(self.http)
        self.begun = True
        self.last_sent = self.loop.time()

    async def _end(self) -> None:
        self.ended = True
        self.writing_since = self.loop.time()
        try:
            await self.response.write_eof()
        except OSError as error:
            raise ClientGoneError from error
        self.writing_since = None

    async def _send(self, said: bytes) -> None:
        self.writing_since = self.loop.time()
        try:
            if not self.begun:
                await self._begin()
            await self.response.write(said)
        except OSError as error:
            raise ClientGoneError from error
        self.writing_since = None
        self.last_sent = self.loop.time()


def _unusable(error: Exception) -> Refused:
    if isinstance(error, MalformedError):
        return Refused(Reason.MALFORMED, f"The engine sent {error}.", "Tell whoever runs it.")
    return Refused(
        Reason.RESUME_REFUSED, f"The engine was lost, and the next one does not go on: {error}", "Send it again."
    )


def _as_event(body: bytes) -> bytes:
    """An engine's refusal, for a stream that has begun."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = body.decode(errors="replace")
    error = said if isinstance(said, dict) and "error" in said else {"error": said}
    return b"data: " + orjson.dumps(error) + b"\n\n"
