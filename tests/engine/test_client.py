"""What the client sends, to a server that writes it down."""

import asyncio

import pytest
from aiohttp import web

from spec_toolkit.engine import client as clients
from spec_toolkit.engine.client import EngineClient
from spec_toolkit.errors import EngineError
from spec_toolkit.terms import FaultPoint, KnobMode

KEY = "k3y-that-nobody-may-see"


def test_the_admin_key_goes_with_what_changes_the_engine_and_with_nothing_else() -> None:
    async def whole() -> dict[str, bool]:
        with_key: dict[str, bool] = {}

        async def answer(request: web.BaseRequest) -> web.Response:
            with_key[request.path] = any(KEY in value for value in request.headers.values())
            said = {
                "/set_internal_state": [True],
                "/server_info": {"internal_states": []},
                "/v1/chat/completions": {"choices": [{"message": {}}]},
            }
            return web.json_response(said.get(request.path, {}))

        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            [(host, port, *_)] = runner.addresses
            async with EngineClient(f"http://{host}:{port}", admin_key=KEY) as engine:
                await engine.is_healthy()
                await engine.server_info()
                await engine.ranks()
                await engine.generate({"text": "x"})
                await engine.chat("x", max_tokens=1)
                assert with_key
                assert not any(with_key.values())
                assert await engine.command(epoch=1, mode=KnobMode.FULL, steps=3)
                assert with_key.pop("/set_internal_state")
                assert await engine.inject(FaultPoint.DRAFT_BEFORE)
                return with_key
        finally:
            await runner.cleanup()

    assert [path for path, keyed in asyncio.run(whole()).items() if keyed] == ["/set_internal_state"]


async def events_of(said: bytes) -> list[dict[str, object]]:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(body=said, content_type="text/event-stream")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        [(host, port, *_)] = runner.addresses
        async with asyncio.timeout(20), EngineClient(f"http://{host}:{port}") as engine:
            return [event async for event in engine.stream({"text": "x"})]
    finally:
        await runner.cleanup()


def test_lines_that_say_only_that_a_stream_lives_are_no_events() -> None:
    said = b': waiting\n\ndata: {"text":"a"}\n\n: waiting\n\n:\n\ndata: {"text":":b"}\n\ndata: [DONE]\n\n'
    assert asyncio.run(events_of(said)) == [{"text": "a"}, {"text": ":b"}]


@pytest.mark.parametrize(
    "said", [pytest.param(b"data: {\n\n", id="no-json"), pytest.param(b"x" * 300_000, id="a-line-without-end")]
)
def test_what_is_no_stream_is_told_as_a_refusal(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(clients, "_EVENT_BYTES", 1 << 16)
    with pytest.raises(EngineError, match=r"engine\.refused"):
        asyncio.run(events_of(said))


async def many_of(said: object, status: int = 200) -> list[dict[str, object]]:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.json_response(said, status=status)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        [(host, port, *_)] = runner.addresses
        async with asyncio.timeout(20), EngineClient(f"http://{host}:{port}") as engine:
            return await engine.generate_all({"input_ids": [[1], [2]]})
    finally:
        await runner.cleanup()


def test_a_list_of_prompts_has_a_list_of_answers() -> None:
    assert asyncio.run(many_of([{"output_ids": [1]}, {"output_ids": [2]}])) == [
        {"output_ids": [1]},
        {"output_ids": [2]},
    ]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        pytest.param({"output_ids": [1]}, 200, id="one-answer"),
        pytest.param([1], 200, id="no-answers"),
        pytest.param([{}], 400, id="refused"),
    ],
)
def test_what_is_no_list_of_answers_is_told_as_a_refusal(said: object, status: int) -> None:
    with pytest.raises(EngineError, match=r"engine\.refused"):
        asyncio.run(many_of(said, status))
