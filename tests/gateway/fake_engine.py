"""An engine's outside, seeded, for speed and for faults the real one cannot be made to show; `test_real_engine.py` holds it to the real one.

It speaks the wire of `spec_toolkit.resumption`. Its answers depend on the prompt alone, as greedy ones do; how they are cut into steps
depends on the engine's seed, as it does where one drafts and the other does not. A resumption that does not carry exactly the tokens of
the answer, cut where this engine's text allows it, is refused: so a stream that goes on here lost nothing and doubled nothing.
"""

import asyncio
import hashlib
import itertools
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from spec_toolkit.resumption import (
    IDS_KEY,
    BadResumptionError,
    Resumption,
    Step,
    asks_records,
    decode_params,
    encode_record,
)

PROMPT_TOKENS = 5
DONE = b"data: [DONE]\n\n"
Body = Mapping[str, Any]


def answer_ids(prompt: str, count: int) -> list[int]:
    """Token ids; every seventh and the one behind it are the two halves of one character."""
    seed = hashlib.sha256(prompt.encode()).digest()
    ids = [3 + (seed[i % 32] * 31 + i * i * 7) % 900 for i in range(count)]
    for i in range(3, count, 7):
        ids[i] = 1
        if i + 1 < count:
            ids[i + 1] = 2
    return ids


def text_of(ids: list[int]) -> str:
    """An incomplete character at the end is not said yet."""
    halves = {1: b"\xc3", 2: b"\xa9"}
    return b"".join(halves.get(token, b"w%d " % token) for token in ids).decode(errors="ignore")


def prompt_of(body: Body) -> str:
    return str(body["messages"][-1]["content"]) if "messages" in body else str(body.get("text", body.get("input_ids")))


def limit_of(body: Body) -> int:
    return int(body.get("max_tokens") or (body.get("sampling_params") or {}).get("max_new_tokens") or 16)


def ends_of_steps(total: int, begin: int, seed: int) -> Iterator[int]:
    """Tokens after each step."""
    draw = random.Random(seed * 1009 + begin)  # noqa: S311 - seeded, so that a run repeats
    while begin < total:
        begin = min(total, begin + draw.randint(1, 4))
        yield begin


def sse(event: object) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def logprobs_of(ids: list[int], begin: int, seed: int) -> list[list[object]]:
    """Those before `begin` are placeholders; an engine's own carry its seed, so that one can tell who made them."""
    return [[0.0, 0, None] if i < begin else [-float(seed) - i, token, None] for i, token in enumerate(ids)]


def check_resumption(body: Body, params: object, *, chat: bool) -> Resumption | None:
    resumption = decode_params(params)
    if resumption is None:
        return None
    expected = answer_ids(prompt_of(body), limit_of(body))
    count = len(resumption.ids)
    if list(resumption.ids) != expected[:count] or count >= len(expected):
        raise BadResumptionError(
            f"these are not the first {count} of this answer's {len(expected)} tokens [resume.ids]"
        )
    if chat:
        done = 0
        text = 0
        for tokens, chars in resumption.cuts:
            done, text = done + tokens, text + chars
            if text != len(text_of(expected[:done])):
                raise BadResumptionError(f"{text} characters after {done} tokens [resume.steps]")
    return resumption


def chat_pieces(body: Body, seed: int, *, created: int = 1000) -> Iterator[bytes]:
    """The bytes of a chat stream, one piece a step; ends with the usage and [DONE]."""
    params = body.get("custom_params")
    resumption = check_resumption(body, params, chat=True)
    ids = answer_ids(prompt_of(body), limit_of(body))
    begin = 0 if resumption is None else len(resumption.ids)
    said = len(text_of(ids[:begin]))
    head = {
        "id": body["rid"],
        "object": "chat.completion.chunk",
        "created": created + seed,
        "model": body.get("model", "m"),
    }

    def chunk(delta: Mapping[str, object], finish: str | None = None) -> bytes:
        return sse({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    piece = chunk({"role": "assistant", "content": ""}) if resumption is None else b""
    for end in ends_of_steps(len(ids), begin, seed):
        text = text_of(ids[:end])
        if text[said:]:
            piece += chunk({"content": text[said:]})
        if end == len(ids):
            usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": len(ids)}
            yield piece + chunk({}, "length") + sse({**head, "choices": [], "usage": usage}) + b"data: [DONE]\n\n"
            return
        record = encode_record(Step(tuple(ids[begin:end]), len(text) - said)).encode() if asks_records(params) else b""
        yield piece + record
        piece, begin, said = b"", end, len(text)


def generate_pieces(body: Body, seed: int) -> Iterator[bytes]:
    sampling = body.get("sampling_params") or {}
    resumption = check_resumption(body, sampling.get("custom_params"), chat=False)
    ids = answer_ids(prompt_of(body), limit_of(body))
    begin = 0 if resumption is None else len(resumption.ids)
    for end in ends_of_steps(len(ids), begin, seed):
        meta: dict[str, object] = {
            "id": body.get("rid", "none"),
            "finish_reason": {"type": "length", "length": len(ids)} if end == len(ids) else None,
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": end,
        }
        if body.get("return_logprob"):
            meta["output_token_logprobs"] = logprobs_of(ids[:end], begin, seed)
        yield sse({"text": text_of(ids[:end]), "output_ids": ids[:end], "meta_info": meta})
    yield b"data: [DONE]\n\n"


def whole_answer(body: Body, *, chat: bool) -> dict[str, object]:
    ids = answer_ids(prompt_of(body), limit_of(body))
    if chat:
        choice = {"index": 0, "message": {"role": "assistant", "content": text_of(ids)}, "finish_reason": "length"}
        return {"id": body.get("rid", "none"), "object": "chat.completion", "choices": [choice]}
    meta = {"id": body.get("rid", "none"), "finish_reason": {"type": "length"}, "completion_tokens": len(ids)}
    return {"text": text_of(ids), "output_ids": ids, "meta_info": meta}


def abort_event(body: Body, *, chat: bool) -> bytes:
    """Ends a stream that was told to end, by a client that went away or by the beginning of its name."""
    if chat:
        choice = {"index": 0, "delta": {}, "finish_reason": "abort"}
        return sse({"id": body.get("rid", "none"), "created": 1, "choices": [choice]})
    meta = {"id": body.get("rid", "none"), "finish_reason": {"type": "abort", "message": "Aborted"}}
    return sse({"text": "", "output_ids": [], "meta_info": meta})


def refusal_event(body: Body, status: int, *, chat: bool) -> bytes:
    """A scheduler's, which comes when the stream has begun; /generate gives it the form of an answer's end."""
    if chat:
        return sse({"error": {"object": "error", "message": "as told", "code": status}})
    reason = {"type": "abort", "message": "as told", "status_code": status, "err_type": "BadRequestError"}
    meta = {"id": body.get("rid", "none"), "finish_reason": reason, "completion_tokens": 0}
    return sse({"text": "", "output_ids": [], "meta_info": meta})


@dataclass
class FakeEngine:
    """One engine; what it is to do wrong is set while it runs."""

    seed: int
    pace_seconds: float = 0.0  # between steps
    die_after: Callable[[int], int | None] = lambda number: (
        None
    )  # bytes of the n-th stream after which its connection breaks
    change: Callable[[int, bytes], bytes] = lambda step, piece: piece  # of each stream's steps
    stalls_after: int | None = None  # steps after which every stream falls silent
    healthy: bool = True
    status: int = 200  # of every request for tokens
    aborts: int = 0  # so many answers that are not streamed are given up first
    writes_records: bool = True
    refuses_records: bool = False
    scheduler_says: int | None = None  # the status of an abort in which each stream ends that it is to continue
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    open: int = 0  # streams and answers under way
    cancelled: int = 0
    streams: int = 0
    names: list[str] = field(default_factory=list)  # of the requests under way
    ended: set[str] = field(default_factory=set)  # names of those that an abort met
    address: str = ""
    _runner: web.AppRunner | None = None

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator["FakeEngine"]:
        await self.start(port)
        try:
            yield self
        finally:
            await self.kill()

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=64 << 20)
        for path in ("/generate", "/v1/chat/completions", "/v1/completions"):
            app.router.add_post(path, self._tokens)
        app.router.add_get("/health", self._health)
        app.router.add_get("/model_info", self._model_info)
        app.router.add_get("/server_info", self._model_info)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def kill(self) -> None:
        """As `kill -9`: every connection is reset."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        assert runner.server is not None
        for connection in runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)

    async def _model_info(self, _: web.Request) -> web.Response:
        return web.json_response({"model_path": "fake", "engine": self.seed})

    async def _tokens(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        self.requests.append(body)
        self.headers.append(dict(http.headers))
        name = body.get("rid")
        if isinstance(name, str) and name.startswith("HEALTH_CHECK") and self.open:
            await asyncio.Event().wait()  # a busy engine drops its own health checks, and answers them otherwise
        if name in self.names:
            return web.json_response({"error": {"message": f"Duplicate request ID {name}"}}, status=400)
        self.open += 1
        self.names += [name] if isinstance(name, str) else []
        try:
            return await self._answer(http, body)
        except asyncio.CancelledError:
            self.cancelled += 1
            if isinstance(name, str):
                self.ended.update(each for each in self.names if each.startswith(name))
            raise
        finally:
            self.open -= 1
            if isinstance(name, str):
                self.names.remove(name)

    async def _answer(self, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        chat = http.path != "/generate"
        if self.status != 200:
            return web.json_response({"object": "error", "message": "as told", "code": self.status}, status=self.status)
        if not body.get("stream"):
            await asyncio.sleep(self.pace_seconds)
            answer = whole_answer(body, chat=chat)
            if self.aborts:
                self.aborts -= 1
                answer |= (
                    {"choices": [{"finish_reason": "abort"}]}
                    if chat
                    else {"meta_info": {"finish_reason": {"type": "abort"}}}
                )
            return web.json_response(answer)
        if self.refuses_records and asks_records(body.get("custom_params")):
            return web.json_response({"message": "incremental: cannot be resumed [resume.unsupported]"}, status=400)
        if not self.writes_records:
            body.pop("custom_params", None)
        if http.path == "/v1/completions":
            body.setdefault("rid", "by-the-engine")
            body["messages"] = [{"content": body["prompt"]}]
        if self.scheduler_says is not None and IDS_KEY in str(body):
            return await self._stream(http, body, iter([refusal_event(body, self.scheduler_says, chat=chat), DONE]))
        pieces = chat_pieces(body, self.seed) if chat else generate_pieces(body, self.seed)
        try:
            first = next(pieces)
        except BadResumptionError as error:
            if chat:
                return web.json_response({"object": "error", "message": str(error), "code": 400}, status=400)
            first, pieces = sse({"error": {"message": str(error), "code": 400}}) + b"data: [DONE]\n\n", iter(())
        return await self._stream(http, body, itertools.chain([first], pieces))

    async def _stream(self, http: web.Request, body: Body, pieces: Iterator[bytes]) -> web.StreamResponse:
        left = self.die_after(self.streams)
        self.streams += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        for number, piece in enumerate(pieces):
            if self.stalls_after is not None and number >= self.stalls_after:
                await asyncio.Event().wait()
            if body.get("rid") in self.ended:
                await response.write(abort_event(body, chat=http.path != "/generate") + b"data: [DONE]\n\n")
                break
            said = self.change(number, piece)
            if left is not None and len(said) >= left:
                await response.write(said[:left]) if left else None
                assert http.transport is not None
                await asyncio.sleep(0.002)
                http.transport.abort()
                await asyncio.Event().wait()
            left = None if left is None else left - len(said)
            await response.write(said)
            if self.pace_seconds:
                await asyncio.sleep(self.pace_seconds)
        await response.write_eof()
        return response
