"""What comes in: which paths there are, who is let in, and how every answer ends. Touches the network."""

import asyncio
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from aiohttp import web

from spec_toolkit.gateway import wire
from spec_toolkit.gateway.admission import Admission
from spec_toolkit.gateway.attempts import Exchange, log_defect
from spec_toolkit.gateway.counters import Snapshot, prometheus
from spec_toolkit.gateway.http_log import http_log
from spec_toolkit.gateway.refusal import Reason, Refused
from spec_toolkit.gateway.stream import ClientGoneError, Stream
from spec_toolkit.gateway.whole import Whole, ask

MOST_BODY_BYTES = 32 << 20
BODY_BYTES = 1 << 20  # whatever the context: parameters, schemas, tools
BYTES_OF_A_TOKEN = 64  # at most, of text that can fit: an engine tokenises any, and answers nobody meanwhile
MOST_ASKED_BYTES = 1 << 20  # of text to be tokenised: the engine does that where it also takes requests
BODY_SECONDS = 60.0  # for a request to arrive
MOST_ARRIVING = 128  # requests of which a part is here; they hold no place of those in flight
MOST_ASKED = 16  # at once, of what engines answer from memory
_SOON_SECONDS = 1  # for those that come when so many do
_TOKENS = {kind.value: kind for kind in wire.Kind}
_ASKED = {  # harmless, and alike at every engine
    "/v1/models": "GET",
    "/model_info": "GET",
    "/get_model_info": "GET",
    "/tokenize": "POST",
    "/v1/tokenize": "POST",
    "/detokenize": "POST",
    "/v1/detokenize": "POST",
}
# A name may have slashes, but no part that climbs: what is passed on must be what was looked at.
_ONE_MODEL = re.compile(r"/v1/models(/(?!\.+(/|$))[A-Za-z0-9._:-]+)+")
_HEALTH = frozenset(("/health", "/health_generate", "/ready", "/ping"))
# Whoever reaches these changes or reads one engine, under the feet of its supervisor.
_ADMIN = {
    "/server_info": "`spec-toolkit status NAME` shows what serves",
    "/get_server_info": "`spec-toolkit status NAME` shows what serves",
    "/metrics": "the gateway's own are at /gateway/metrics; scrape each engine at its own address",
    "/set_internal_state": "`spec-toolkit hold NAME` pins a mode",
    "/update_weights_from_disk": "change the recipe and `spec-toolkit deploy RECIPE --replace`",
    "/abort_request": "close the request's connection",
    "/pause_generation": "`spec-toolkit stop NAME` ends the deployment",
}
# An Authorization header is for whatever stands before the gateway: an engine is not told, so that nobody tries an admin key there.
_PASSED_ON = ("content-type", "x-request-id", "traceparent", "tracestate", "x-smg-routing-key", "x-sglext-ids-framed")


class Proxy:
    def __init__(
        self, exchange: Exchange, admission: Admission, look: Callable[[], Snapshot], *, context_tokens: int
    ) -> None:
        self._exchange = exchange
        self._context_tokens = context_tokens
        self._admission = admission
        self._look = look
        self._loop = asyncio.get_running_loop()
        self.draining = False  # nothing new is taken
        self.streams: set[Stream] = set()
        self.idle = asyncio.Event()  # nothing is in flight
        self.idle.set()
        self._arriving = _Places(MOST_ARRIVING, "requests are arriving")
        self._asked = _Places(MOST_ASKED, "questions of this kind are being answered")
        self._own: Mapping[str, Callable[[web.BaseRequest], web.Response]] = {
            "/gateway": self._counters,
            "/gateway/metrics": self._metrics,
            **dict.fromkeys(_HEALTH, self._health),
        }

    def server(self) -> web.Server:
        """For a TCP site. A client that goes away cancels its request, and so the engine's."""
        return web.Server(
            self.handle, handler_cancellation=True, access_log=None, logger=http_log(), keepalive_timeout=75.0
        )

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(http)
        except Refused as refused:
            self._exchange.counters.reasons[refused.reason.value] += 1
            response = _refusal(refused)
            if http.content.exception() is not None:  # the connection ends with it
                response.force_close()
            return response
        except ClientGoneError:
            raise asyncio.CancelledError from None
        except Exception as error:  # noqa: BLE001 - aiohttp would log its message, which may hold a prompt
            log_defect(error)
            return _refusal(Refused.by_defect())

    async def _answer(self, http: web.BaseRequest) -> web.StreamResponse:
        path = http.path
        kind = _TOKENS.get(path)
        if kind is not None:
            _check_method(http, "POST")
            return await self._admitted(http, kind)
        own = self._own.get(path)
        if own is not None:
            return own(http)
        method = _ASKED.get(path) or ("GET" if _ONE_MODEL.fullmatch(path) else None)
        if method is not None:
            _check_method(http, method)
            with self._asked.one():
                most = MOST_ASKED_BYTES
                body = await _read(http, most, "the most that is tokenised here") if method == "POST" else b""
                return await ask(self._exchange, method, path, body, _headers(http))
        if path in _ADMIN:
            raise Refused(Reason.ADMIN_ONLY, f"{path} is not for clients: {_ADMIN[path]}.", "See runbooks/streams.md.")
        served = ", ".join((*_TOKENS, *_ASKED, "/health"))
        raise Refused(Reason.NOT_SERVED, "The gateway does not serve this path.", f"Served are {served}.")

    async def _admitted(self, http: web.BaseRequest, kind: wire.Kind) -> web.StreamResponse:
        body = await self._arrived(http)
        self._check_taking()
        self._admission.enter(self._loop.time())
        self.idle.clear()
        completed, stream = False, None
        try:
            request = wire.read_request(kind, body)
            if not request.stream:
                response = await Whole(self._exchange, request, _headers(http)).run()
                completed = response.status < 400
                return response
            stream = Stream(self._exchange, http, request, _headers(http))
            return await self._streamed(stream)
        except (asyncio.CancelledError, ClientGoneError):
            # Many close the connection as soon as they have read the last event: they have their answer.
            self._exchange.counters.client_gone += stream is None or not stream.journal.finished
            raise
        finally:
            completed = completed or (stream is not None and stream.journal.finished)
            self._admission.leave(self._loop.time(), completed=completed)
            self._exchange.counters.completed += completed
            if not self._admission.in_flight:
                self.idle.set()

    async def _arrived(self, http: web.BaseRequest) -> bytes:
        self._check_taking()
        self._admission.check(self._loop.time())  # what would be refused need not arrive
        most, why = body_bound(self._context_tokens)
        if http.content.is_eof():  # as most do, with their head
            return await _read(http, most, why)
        try:
            with self._arriving.one():
                return await _read(http, most, why)
        except asyncio.CancelledError:
            self._exchange.counters.client_gone += 1
            raise

    def _check_taking(self) -> None:
        if self.draining:
            raise Refused.by_stop()
        self._exchange.engines.check_open()

    async def _streamed(self, stream: Stream) -> web.StreamResponse:
        self.streams.add(stream)
        self._exchange.counters.streams += 1
        try:
            return await stream.run()
        finally:
            self.streams.discard(stream)
            self._exchange.counters.streams -= 1

    def _health(self, _http: web.BaseRequest) -> web.Response:
        """Of the deployment: whether a request would be sent to an engine now."""
        engines = self._exchange.engines
        good = engines.current is not None and not engines.closed and not self.draining
        return web.json_response(
            {"engine": engines.current.number if engines.current else 0}, status=200 if good else 503
        )

    def _counters(self, http: web.BaseRequest) -> web.Response:
        _check_near(http)
        return web.Response(body=msgspec.json.encode(self._look()), content_type="application/json")

    def _metrics(self, http: web.BaseRequest) -> web.Response:
        _check_near(http)
        return web.Response(text=prometheus(self._look()), content_type="text/plain")


class _Places:
    """So many at once, and no queue for more."""

    def __init__(self, most: int, of_what: str) -> None:
        self._left = self._most = most
        self._of_what = of_what

    @contextmanager
    def one(self) -> Iterator[None]:
        if not self._left:
            found = f"{self._most} {self._of_what}, the most allowed."
            raise Refused(Reason.OVERLOADED, found, f"Try again in {_SOON_SECONDS} s.", retry_after=_SOON_SECONDS)
        self._left -= 1
        try:
            yield
        finally:
            self._left += 1


def body_bound(context_tokens: int) -> tuple[int, str]:
    """Bytes that a request for tokens may have, and why no more."""
    fits = BODY_BYTES + BYTES_OF_A_TOKEN * context_tokens
    if fits >= MOST_BODY_BYTES:
        return MOST_BODY_BYTES, "the most that is taken"
    return fits, f"no text so long fits the {context_tokens:,} tokens that one request may have"


async def _read(http: web.BaseRequest, most_bytes: int, why: str) -> bytes:
    pieces, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            if (
                http.headers.get("Expect", "").lower() == "100-continue"
            ):  # clients with large bodies wait a second for it
                await http.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            while piece := await http.content.readany():
                pieces.append(piece)
                size += len(piece)
                if size > most_bytes:
                    found = f"The request's body is larger than {most_bytes:,} bytes: {why}."
                    raise Refused(Reason.TOO_LARGE, found, "Send less.")
            return b"".join(pieces)
    except web.RequestPayloadError as error:
        raise Refused(
            Reason.BAD_REQUEST,
            "The request's body cannot be read: it is not what its Content-Encoding or Transfer-Encoding says.",
            "Send it as it is, or mend the encoding.",
        ) from error
    except TimeoutError as error:
        raise Refused(
            Reason.TOO_SLOW, f"The request did not arrive within {BODY_SECONDS:g} s.", "Send it again."
        ) from error


def _headers(http: web.BaseRequest) -> dict[str, str]:
    given = http.headers
    return {name: given[name] for name in _PASSED_ON if name in given and given[name].isascii()}


def _check_method(http: web.BaseRequest, method: str) -> None:
    if http.method != method:
        raise Refused(Reason.NOT_SERVED, f"{http.method} is not served at this path.", f"Use {method}.")


def _check_near(http: web.BaseRequest) -> None:
    try:
        near = ipaddress.ip_address(http.remote or "").is_loopback
    except ValueError:
        near = False
    if not near:
        raise Refused(Reason.ADMIN_ONLY, "Counters are told on this machine only.", "Ask over the loopback address.")


def _refusal(refused: Refused) -> web.Response:
    headers = {} if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
    return web.Response(status=refused.status, body=refused.body(), headers=headers, content_type="application/json")
