"""A request that is answered whole: made again, from its beginning, where its engine is lost before it answered. Touches the network.

Nothing of it was sent, so nothing can be doubled; and the answer is one engine's own, to the byte. Taking it as a stream inside, to keep
the tokens made so far, would mean to put the answer together here as the engine would have.
"""

import asyncio

from aiohttp import ClientResponse, web

from spec_toolkit.gateway import wire
from spec_toolkit.gateway.attempts import CONNECT_SECONDS, LOSSES, Attempts, Exchange, NotTakingError, read_whole
from spec_toolkit.gateway.engines import Engine
from spec_toolkit.gateway.journal import AbortedError, MalformedError
from spec_toolkit.gateway.refusal import Reason, Refused

ANSWER_SECONDS = 3600.0  # an engine that makes it says nothing meanwhile
ASKED_SECONDS = 30.0  # of what an engine answers from memory
_ANSWER_BYTES = 256 << 20


class Whole(Attempts):
    def __init__(self, exchange: Exchange, request: wire.Request, headers: dict[str, str]) -> None:
        super().__init__(exchange, request.kind.value, headers)
        self.request = request
        self._body, self._names = request.body, request.names

    async def run(self) -> web.Response:
        try:
            while True:
                engine = await self.engine()
                try:
                    return await self._try(engine)
                except LOSSES as error:
                    self.lost(engine, error)
                    await self.pause()
                    self._body, self._names = wire.again(self.request, None)
                except MalformedError as error:
                    raise Refused(Reason.MALFORMED, f"The engine sent {error}.", "Ask for less.") from error
        finally:
            self.close()

    async def _try(self, engine: Engine) -> web.Response:
        async with self.post(engine, self._body, silent_seconds=ANSWER_SECONDS) as upstream:
            if upstream.status == 503:
                raise NotTakingError
            self.taken()
            body = await read_whole(upstream, _ANSWER_BYTES)
            engine.last_byte = self.loop.time()
            if wire.is_abort(body):
                raise AbortedError
            if self.goes_on() is not None:
                self.exchange.counters.remade += 1
            answer = _answer(upstream, wire.renamed(body, self._names))
            answer.headers.update(self.request_id(self.request.rid))
            return answer


async def ask(exchange: Exchange, method: str, path: str, body: bytes, headers: dict[str, str]) -> web.Response:
    """What any engine answers alike, from memory: asked once, of the one that serves."""
    try:
        async with asyncio.timeout(ASKED_SECONDS):
            engine = await exchange.engines.take(
                resumed=True, until=asyncio.get_running_loop().time() + CONNECT_SECONDS
            )
            async with exchange.session.request(
                method, engine.address + path, data=body or None, headers=headers
            ) as upstream:
                return _answer(upstream, await read_whole(upstream, _ANSWER_BYTES))
    except (*LOSSES, MalformedError) as error:
        raise Refused(
            Reason.NO_ENGINE, "No engine answers now.", "Ask again later.", retry_after=int(CONNECT_SECONDS)
        ) from error


def _answer(upstream: ClientResponse, body: bytes) -> web.Response:
    return web.Response(status=upstream.status, body=body, content_type=upstream.content_type)
