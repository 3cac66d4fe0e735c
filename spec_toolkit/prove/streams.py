"""What a client of a deployment sees: streamed answers, token by token, with every rule a stream must keep. Asks a deployment.

A drill lets many of these run while something breaks. A stream is judged by what reached the client and nothing else: no token taken
back, none missing, none twice, an end with a reason, and the count the server bills equal to what came.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any

import aiohttp

SILENCE_SECONDS = (
    180.0  # the longest wait for any byte; keep-alive comments come more often, however long an engine takes
)
_CONNECT_SECONDS = 10.0
_EVENT_BYTES = 8 * 2**20
_DONE = "[DONE]"


class Endpoint(Enum):
    GENERATE = "/generate"
    CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Ask:
    """One greedy request; of the same one the same answer is expected."""

    endpoint: Endpoint
    prompt: str  # for chat a user's message
    tokens: int  # exactly so many are made: the end of the text is ignored

    def body(self) -> dict[str, Any]:
        if self.endpoint is Endpoint.GENERATE:
            sampling = {"temperature": 0, "max_new_tokens": self.tokens, "ignore_eos": True}
            return {"text": self.prompt, "sampling_params": sampling, "stream": True}
        return {
            "model": "default",
            "messages": [{"role": "user", "content": self.prompt}],
            "temperature": 0,
            "max_tokens": self.tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


@dataclass(slots=True)
class Answer:
    """One stream as it reached the client."""

    ask: Ask
    began: float  # seconds on the monotonic clock, like every time below
    text: str = ""
    ids: tuple[int, ...] = ()  # empty for chat, whose stream names no token
    counted: int | None = None  # completion tokens, as the server says at the end; None: it did not
    finish: str = ""  # why the server ended it; empty: it did not say
    problem: str = ""  # what went wrong; empty: nothing
    refused: bool = False  # answered 429 before anything was made: nothing was lost
    arrivals: list[float] = field(default_factory=list)  # of each event that brought text
    waited: int = 0  # keep-alive comments
    ended: float = 0.0

    def first_after(self, moment: float) -> float | None:
        """Seconds from that moment to the next text; None where none came."""
        return next((arrival - moment for arrival in self.arrivals if arrival > moment), None)


async def ask(address: str, request: Ask, seen: list[Answer] | None = None) -> Answer:
    """Never raises for what a server does: it stands in `problem`. `seen` gets the answer as it begins, to be looked at while it grows."""
    answer = Answer(request, time.monotonic())
    if seen is not None:
        seen.append(answer)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, read_bufsize=_EVENT_BYTES) as session,
            session.post(address + request.endpoint.value, json=request.body()) as reply,
        ):
            if reply.status != 200:
                answer.refused = reply.status == 429
                answer.problem = f"HTTP {reply.status}: {(await reply.text())[:200]}"
            else:
                await _read(answer, reply.content)
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError, AttributeError) as error:
        # The last four: an event that is not what this endpoint's events are.
        answer.problem = f"{type(error).__name__}: {error}"
    answer.ended = time.monotonic()
    return answer


async def _read(answer: Answer, lines: aiohttp.StreamReader) -> None:
    done = False
    async for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if line.startswith(":"):
            answer.waited += 1
        elif line.startswith("data:"):
            data = line.removeprefix("data:").strip()
            if done:
                answer.problem = "an event came after the end"
            done = done or data == _DONE
            if data != _DONE and not answer.problem:
                _take(answer, json.loads(data))
    if not done and not answer.problem:
        answer.problem = "the stream broke off"
    if not answer.problem and not answer.finish:
        answer.problem = "the stream ended without a reason"


def _take(answer: Answer, event: Mapping[str, Any]) -> None:
    if "error" in event:
        answer.problem = f"error event: {json.dumps(event['error'])[:200]}"
    elif answer.ask.endpoint is Endpoint.GENERATE:
        _take_generate(answer, event)
    else:
        _take_chat(answer, event)


def _take_generate(answer: Answer, event: Mapping[str, Any]) -> None:
    """Each event holds the whole answer so far."""
    text, ids, meta = event["text"], tuple(event["output_ids"]), event["meta_info"]
    if not text.startswith(answer.text) or ids[: len(answer.ids)] != answer.ids:
        answer.problem = f"what was sent was taken back after {len(answer.ids)} tokens"
        return
    if len(ids) > len(answer.ids):
        answer.arrivals.append(time.monotonic())
    answer.text, answer.ids = text, ids
    if meta.get("finish_reason"):
        answer.finish, answer.counted = meta["finish_reason"]["type"], meta["completion_tokens"]


def _take_chat(answer: Answer, event: Mapping[str, Any]) -> None:
    """Each event holds what is new."""
    for choice in event["choices"]:
        added = choice["delta"].get("content") or ""
        if added:
            answer.arrivals.append(time.monotonic())
        answer.text += added
        answer.finish = choice.get("finish_reason") or answer.finish
    if event.get("usage"):
        answer.counted = event["usage"]["completion_tokens"]


def judge(answer: Answer, whole: Answer) -> str:
    """What is wrong with it, against the same request's undisturbed answer; empty where nothing is."""
    if answer.problem:
        return answer.problem
    if answer.counted != answer.ask.tokens:
        return f"{answer.counted} tokens counted, {answer.ask.tokens} asked for"
    if answer.ids and len(answer.ids) != answer.counted:
        return f"{len(answer.ids)} tokens came, {answer.counted} counted"
    if answer.text != whole.text or answer.ids != whole.ids:
        same = next((at for at, (a, b) in enumerate(zip(answer.text, whole.text, strict=False)) if a != b), None)
        where = "the shorter one's end" if same is None else f"character {same}"
        return f"the text parts from the undisturbed answer's at {where}"
    return ""


async def keep_asking(
    address: str,
    asks: Sequence[Ask],
    *,
    at_once: int,
    enough: asyncio.Event,
    seen: list[Answer] | None = None,
) -> list[Answer]:
    """`at_once` requests always, in turns over `asks`, until `enough`; those under way then are seen to their end."""
    answers: list[Answer] = [] if seen is None else seen
    turn = count()

    async def one() -> None:
        while not enough.is_set():
            request = asks[next(turn) % len(asks)]
            answer = await ask(address, request, answers)
            if answer.problem:
                await asyncio.sleep(0.2)  # a client that is refused does not come back in the same breath

    await asyncio.gather(*(one() for _ in range(at_once)))
    return answers
