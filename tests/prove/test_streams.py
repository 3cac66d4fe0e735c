"""A client's judgement of a stream, on streams that break every rule once."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from spec_toolkit.prove.streams import Answer, Ask, Endpoint, ask, judge, keep_asking

GENERATE = Ask(Endpoint.GENERATE, "a prompt", 3)
CHAT = Ask(Endpoint.CHAT, "a message", 3)
WORDS = ("one ", "two ", "three")


def so_far(
    tokens: int, *, finish: str | None = None, ids: list[int] | None = None, words: tuple[str, ...] = WORDS
) -> str:
    meta: dict[str, Any] = {"completion_tokens": tokens, "finish_reason": {"type": finish} if finish else None}
    event = {"text": "".join(words[:tokens]), "output_ids": ids or [5, 6, 7][:tokens], "meta_info": meta}
    return f"data: {json.dumps(event)}\n\n"


def new(text: str, *, finish: str | None = None) -> str:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}, 'finish_reason': finish}]})}\n\n"


def usage(tokens: int) -> str:
    return f"data: {json.dumps({'choices': [], 'usage': {'completion_tokens': tokens}})}\n\n"


DONE = "data: [DONE]\n\n"
GOOD_GENERATE = (so_far(1), ": waiting\n\n", so_far(3, finish="length"), DONE)
GOOD_CHAT = (new("one "), new("two "), ": waiting\n\n", new("three"), new("", finish="length"), usage(3), DONE)


async def answers_of(request: Ask, *streams: tuple[str, ...], status: int = 200) -> list[Answer]:
    """One answer for each stream that the server sends, in order."""
    turns = iter(streams)

    async def serve(got: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(status=status)
        await reply.prepare(got)
        for part in next(turns):
            await reply.write(part.encode())
        return reply

    app = web.Application()
    app.router.add_post(request.endpoint.value, serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [(host, port)] = [address[:2] for address in runner.addresses]
    try:
        return [await ask(f"http://{host}:{port}", request) for _ in streams]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(("request_", "good"), [(GENERATE, GOOD_GENERATE), (CHAT, GOOD_CHAT)], ids=["generate", "chat"])
def test_a_whole_stream_is_found_whole(request_: Ask, good: tuple[str, ...]) -> None:
    first, second = asyncio.run(answers_of(request_, good, good))
    assert judge(first, second) == ""
    assert (first.text, first.waited, first.finish) == ("one two three", 1, "length")


@pytest.mark.parametrize(
    ("request_", "bad", "says"),
    [
        pytest.param(GENERATE, (so_far(1), so_far(3, finish="length")), "broke off", id="no-end"),
        pytest.param(GENERATE, (so_far(1), so_far(3), DONE), "without a reason", id="no-reason"),
        pytest.param(GENERATE, (so_far(2), so_far(1), so_far(3, finish="stop"), DONE), "taken back", id="taken-back"),
        pytest.param(
            GENERATE, (so_far(2, ids=[5, 6]), so_far(3, ids=[5, 5, 6]), DONE), "taken back", id="another-token"
        ),
        pytest.param(
            GENERATE,
            (so_far(1), so_far(3, finish="length", words=("uno ", "two ", "three")), DONE),
            "taken back",
            id="another-text",
        ),
        pytest.param(GENERATE, (so_far(1), so_far(2, finish="stop"), DONE), "2 tokens counted, 3", id="one-lost"),
        pytest.param(
            GENERATE, (so_far(3, ids=[5, 6, 6, 7], finish="length"), DONE), "4 tokens came, 3 counted", id="one-doubled"
        ),
        pytest.param(GENERATE, (*GOOD_GENERATE, so_far(3)), "after the end", id="after-the-end"),
        pytest.param(
            CHAT, (new("one "), new("three"), new("", finish="length"), usage(3), DONE), "parts", id="chat-lost"
        ),
        pytest.param(CHAT, (*GOOD_CHAT[:2], new("two "), *GOOD_CHAT[2:]), "parts", id="chat-doubled"),
        pytest.param(CHAT, (*GOOD_CHAT[:5], DONE), "None tokens counted", id="chat-not-counted"),
        pytest.param(GENERATE, ('data: {"text": ""}\n\n', DONE), "KeyError", id="no-event-of-this-endpoint"),
        pytest.param(CHAT, (new("one "), 'data: {"error": {"type": "x"}}\n\n', DONE), "error event", id="chat-error"),
    ],
)
def test_what_breaks_a_rule_is_found(request_: Ask, bad: tuple[str, ...], says: str) -> None:
    good = GOOD_GENERATE if request_ is GENERATE else GOOD_CHAT
    [whole, broken] = asyncio.run(answers_of(request_, good, bad))
    assert says in judge(broken, whole)


def test_a_refusal_before_anything_was_made_is_told_apart() -> None:
    [answer] = asyncio.run(answers_of(CHAT, (), status=429))
    assert answer.refused
    assert answer.problem.startswith("HTTP 429")


def test_asking_ends_when_it_is_enough_and_sees_running_streams_to_their_end() -> None:
    async def scene() -> list[Answer]:
        enough, running = asyncio.Event(), asyncio.Event()

        async def serve(got: web.Request) -> web.StreamResponse:
            reply = web.StreamResponse()
            await reply.prepare(got)
            await reply.write(GOOD_CHAT[0].encode())
            running.set()
            await enough.wait()
            for part in GOOD_CHAT[1:]:
                await reply.write(part.encode())
            return reply

        app = web.Application()
        app.router.add_post(CHAT.endpoint.value, serve)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        asking = asyncio.create_task(keep_asking(f"http://{host}:{port}", [CHAT], at_once=2, enough=enough))
        await asyncio.wait_for(running.wait(), 10)
        enough.set()
        try:
            return await asyncio.wait_for(asking, 10)
        finally:
            await runner.cleanup()

    answers = asyncio.run(scene())
    assert [(answer.text, answer.problem) for answer in answers] == [("one two three", "")] * len(answers)
    assert 1 <= len(answers) <= 2
