"""What the client sends, to a server that writes it down."""

import asyncio

from aiohttp import web

from spec_toolkit.engine.client import EngineClient
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
