"""A gateway in this process, before fake engines, and clients for it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from spec_toolkit.gateway.admission import Admission
from spec_toolkit.gateway.attempts import Exchange
from spec_toolkit.gateway.counters import Counters, Snapshot
from spec_toolkit.gateway.engines import Engines
from spec_toolkit.gateway.proxy import Proxy
from spec_toolkit.gateway.service import connector
from spec_toolkit.gateway.watch import Watch
from spec_toolkit.launch.route import Route
from tests.gateway.client_side import Held, fold
from tests.gateway.fake_engine import FakeEngine, answer_ids, text_of

SECONDS = 30.0  # of one test's wait for anything
TOKENS = 40


@dataclass
class Front:
    engines: Engines
    counters: Counters
    admission: Admission
    proxy: Proxy
    watch: Watch
    address: str
    session: aiohttp.ClientSession  # of the clients
    generation: int = 0
    lost: int = 0

    def route(self, engine: FakeEngine | None, *, lost: bool = False, speculates: bool = True) -> None:
        self.generation += 1
        self.lost += lost
        self.engines.follow(
            Route(
                generation=self.generation,
                address=engine.address if engine else "",
                engine=engine.seed if engine else 0,
                speculates=speculates and engine is not None,
                steps=0,
                lost=self.lost,
            )
        )

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, bytes, Any]:
        async with self.session.post(self.address + path, json=body, headers=headers) as answer:
            return answer.status, await answer.read(), answer.headers

    async def get(self, path: str) -> tuple[int, bytes, Any]:
        async with self.session.get(self.address + path) as answer:
            return answer.status, await answer.read(), answer.headers

    async def ask(self, body: dict[str, Any]) -> Held:
        status, said, _ = await self.post("/v1/chat/completions" if "messages" in body else "/generate", body)
        assert status == 200, said
        return fold(said)


def chat(prompt: str = "hello", **more: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], "max_tokens": TOKENS, "stream": True, **more}


def generate(prompt: str = "hello", **more: object) -> dict[str, Any]:
    return {"text": prompt, "sampling_params": {"max_new_tokens": TOKENS}, "stream": True, **more}


def check_whole(held: Held, prompt: str = "hello", tokens: int = TOKENS) -> None:
    """The answer, once, with one end and one name."""
    ids = answer_ids(prompt, tokens)
    assert not held.errors
    assert held.text == text_of(ids)
    assert held.finish == ["length"]
    assert held.done == 1
    assert len(held.names) == 1
    assert len(held.created) <= 1
    assert not held.ids or held.ids == ids
    assert held.ids or (held.roles, [usage["completion_tokens"] for usage in held.usage]) == (1, [tokens])


@asynccontextmanager
async def fronting(
    *, running: int = 64, waiting: int = 64, deadline: float = 10.0, hang: float = 60.0, context: int = 1 << 20
) -> AsyncIterator[Front]:
    loop = asyncio.get_running_loop()
    engines, counters = Engines(), Counters()
    admission = Admission(running_cap=running, waiting_cap=waiting, now=loop.time())
    async with (
        aiohttp.ClientSession(connector=connector()) as upstream,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=SECONDS), read_bufsize=1 << 22
        ) as session,
    ):
        exchange = Exchange(engines, counters, upstream, deadline)
        proxy = Proxy(exchange, admission, lambda: snapshot(counters, admission), context_tokens=context)
        watch = Watch(exchange, proxy, hang_seconds=hang)
        runner = web.ServerRunner(proxy.server())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield Front(engines, counters, admission, proxy, watch, address, session)
        finally:
            engines.close()
            watch.close()
            await runner.cleanup()


def snapshot(counters: Counters, admission: Admission) -> Snapshot:
    return Snapshot(
        run="", at="", wall_s=0.0, route=1, engine=1, stopping=False, in_flight=admission.in_flight, waiting=counters.waiting,
        cap=admission.cap, streams=counters.streams, completed=counters.completed, resumed=counters.resumed,
        resume_failed=counters.resume_failed, remade=counters.remade, refused=0, client_gone=counters.client_gone,
        reasons=dict(counters.reasons), losses=dict(counters.losses), resume_seconds=(), completions_per_second=None,
    )  # fmt: skip


async def until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions of a test, not of the code under it
            await asyncio.sleep(0.005)


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * SECONDS):
            await test

    asyncio.run(bounded())


def error_of(said: bytes) -> dict[str, Any]:
    return dict(json.loads(said)["error"])
