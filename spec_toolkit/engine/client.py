"""Talking to one engine over HTTP; every call has a deadline. Touches the world.

Used by the launcher's checks, by proofs, and by tests alike, so that what they send is what users send.
"""

import json
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp.http_exceptions import LineTooLong

from spec_toolkit.engine.loads import LOADS_PATH, Loads, read_loads
from spec_toolkit.engine.ranks import RankState, read_ranks
from spec_toolkit.errors import EngineError
from spec_toolkit.terms import FAULT_KEYS, KNOB_KEYS, FaultPoint, KnobMode

READ_SECONDS = 10.0  # for what the engine answers from memory
GENERATE_SECONDS = 300.0  # for one whole answer
_EVENT_BYTES = 8 * 2**20


class EngineClient:
    """`async with EngineClient("http://127.0.0.1:30000") as engine: ...`

    The admin key goes with the two calls that change the engine and with no other: nothing else needs it.
    """

    def __init__(self, address: str, *, admin_key: str | None = None) -> None:
        self.address = address
        self.answers = 0  # whole ones of /generate so far
        self._admin_key = admin_key
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # The pool's default limit of 100 connections would queue the 101st stream without a word.
        # An event of a stream holds the whole text so far: the default buffer takes lines of 128 KiB at most.
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=_EVENT_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def is_healthy(self) -> bool:
        try:
            status, _ = await self._call("GET", "/health", seconds=READ_SECONDS)
        except EngineError:
            return False
        return status == 200

    async def text(self, path: str) -> str:
        """The body of GET `path` whatever its status."""
        _, body = await self._call("GET", path, seconds=READ_SECONDS)
        return body

    async def server_info(self) -> dict[str, Any]:
        return await self._json("GET", "/server_info", seconds=READ_SECONDS)

    async def command(self, *, epoch: int, mode: KnobMode, steps: int, seconds: float = READ_SECONDS) -> bool:
        """Set the mode of the whole engine; whether every rank that answers took it. Why not stands in `ranks()`.

        A call that runs out of time may still have been taken: read the epoch back before the next one.
        """
        return await self._set(dict(zip(KNOB_KEYS, (epoch, int(mode), steps), strict=True)), seconds=seconds)

    async def inject(
        self, point: FaultPoint, *, rank: int = -1, after: int = 0, times: int = 1, seconds: float = READ_SECONDS
    ) -> bool:
        """Plant a fault in a rehearsal's draft; whether every rank that answers did. Others refuse, and log why.

        `rank`: of the tensor-parallel group, -1 for all; `after`: calls of the point that pass first; `times`: calls that fail then,
        0 to remove what is planted.
        """
        return await self._set(dict(zip(FAULT_KEYS, (int(point), rank, after, times), strict=True)), seconds=seconds)

    async def ranks(self, *, seconds: float = READ_SECONDS) -> tuple[RankState, ...]:
        """What every rank says is in force; empty for an engine without a knob. A rank that hangs lets the time run out."""
        info = await self._json("GET", "/server_info", seconds=seconds)
        try:
            return read_ranks(info)
        except ValueError as error:
            raise self._refused("/server_info", 200, str(error)) from error

    async def loads(self, *, seconds: float = READ_SECONDS) -> Loads:
        """Requests waiting and running, as the schedulers last wrote them down; waits for none of them."""
        answer = await self._json("GET", LOADS_PATH, seconds=seconds)
        try:
            return read_loads(answer)
        except ValueError as error:
            raise self._refused(LOADS_PATH, 200, str(error)) from error

    async def generate(self, request: Mapping[str, Any], *, seconds: float = GENERATE_SECONDS) -> dict[str, Any]:
        """One whole answer of `/generate`: `text`, `output_ids`, `meta_info`."""
        answer = await self._json("POST", "/generate", seconds=seconds, body=request)
        self.answers += 1
        return answer

    async def generate_all(
        self, request: Mapping[str, Any], *, seconds: float = GENERATE_SECONDS
    ) -> list[dict[str, Any]]:
        """A whole answer of `/generate` to each prompt of a list, in their order; `sampling_params` may be a list too."""
        status, text = await self._call("POST", "/generate", seconds=seconds, body=request)
        answers = _read_list(text) if status == 200 else None
        if answers is None or not all(isinstance(answer, dict) for answer in answers):
            raise self._refused("/generate", status, text)
        self.answers += len(answers)
        return answers

    async def chat(self, message: str, *, max_tokens: int, seconds: float = GENERATE_SECONDS) -> dict[str, Any]:
        """The first choice of one greedy chat answer: `message`, `finish_reason`, and `meta_info` as /generate has it."""
        request = {
            "model": "default",
            "messages": [{"role": "user", "content": message}],
            "temperature": 0,
            "max_tokens": max_tokens,
            "return_meta_info": True,
        }
        answer = await self._json("POST", "/v1/chat/completions", seconds=seconds, body=request)
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices:
            raise self._refused("/v1/chat/completions", 200, json.dumps(answer))
        return dict(choices[0])

    async def stream(
        self, request: Mapping[str, Any], *, seconds: float = GENERATE_SECONDS
    ) -> AsyncIterator[dict[str, Any]]:
        """The events of a streamed `/generate`; each holds the whole text so far. `seconds` bounds the silence between two."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=READ_SECONDS, sock_read=seconds)
        try:
            async with self._open.post(
                f"{self.address}/generate", json={**request, "stream": True}, timeout=timeout
            ) as answer:
                if answer.status != 200:
                    raise self._refused("/generate", answer.status, await answer.text())
                async for line in answer.content:
                    data = line.removeprefix(b"data: ").strip()
                    if data and data != b"[DONE]" and not data.startswith(b":"):  # a comment: a stream that waits
                        yield json.loads(data)
        except (ValueError, LineTooLong) as error:
            said = "no JSON in an event, or a line that the buffer does not hold"
            raise self._refused("/generate", 200, said) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._lost("/generate", error) from error

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("EngineClient is used outside its `async with`")
        return self._session

    async def _set(self, numbers: Mapping[str, int], *, seconds: float) -> bool:
        """One command to every rank; whether all that answer took it."""
        path = "/set_internal_state"
        key = {"Authorization": f"Bearer {self._admin_key}"} if self._admin_key else {}
        status, text = await self._call("POST", path, seconds=seconds, body={"server_args": numbers}, headers=key)
        answers = _read_booleans(text) if status == 200 else None
        if not answers:
            raise self._refused(path, status, text)
        return all(answers)

    async def _json(
        self, method: str, path: str, *, seconds: float, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        status, text = await self._call(method, path, seconds=seconds, body=body)
        if status != 200:
            raise self._refused(path, status, text)
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise self._refused(path, status, text) from error
        if not isinstance(answer, dict):
            raise self._refused(path, status, text)
        return answer

    async def _call(
        self,
        method: str,
        path: str,
        *,
        seconds: float,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._open.request(
                method, self.address + path, json=body, headers=headers, timeout=timeout
            ) as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._lost(path, error) from error

    def _refused(self, path: str, status: int, text: str) -> EngineError:
        return EngineError.of("engine.refused", f"{self.address}{path}", f"HTTP {status}: {text[:200]!r}")

    def _lost(self, path: str, error: Exception) -> EngineError:
        said = str(error) or "no answer in time"
        return EngineError.of("engine.lost", f"{self.address}{path}", f"{type(error).__name__}: {said}")


def _read_booleans(text: str) -> list[bool] | None:
    """One answer per data-parallel rank; None where the text is no such list."""
    answers = _read_list(text)
    return answers if answers is not None and all(isinstance(answer, bool) for answer in answers) else None


def _read_list(text: str) -> list[Any] | None:
    try:
        answers = json.loads(text)
    except ValueError:
        return None
    return answers if isinstance(answers, list) else None
