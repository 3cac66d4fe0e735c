"""The gateway's own process: what it hears, what it writes, how it ends."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
import pytest

from spec_toolkit.gateway.counters import Snapshot
from spec_toolkit.launch.deployment import Folder, Status, write_json
from spec_toolkit.launch.ports import free_ports
from spec_toolkit.launch.record import Front, Launch
from spec_toolkit.launch.route import Route, encode_route
from spec_toolkit.terms import Comeback
from tests.gateway.client_side import fold
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.front import TOKENS, chat, check_whole, run, until

pytestmark = pytest.mark.slow  # real processes, each with its own imports

PROMPT = "a word nobody may find again"
CHUNKED = b"POST /generate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
GZIPPED = b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nContent-Encoding: gzip\r\n\r\n"


@dataclass
class Process:
    folder: Folder
    address: str
    child: asyncio.subprocess.Process
    log: Path

    def tell(self, engine: FakeEngine | None, generation: int, *, lost: int = 0) -> None:
        assert self.child.stdin is not None
        route = Route(
            generation=generation, address=engine.address if engine else "", engine=engine.seed if engine else 0,
            speculates=engine is not None, steps=0, lost=lost,
        )  # fmt: skip
        self.child.stdin.write(encode_route(route))

    def snapshot(self) -> Snapshot | None:
        try:
            return msgspec.json.decode(self.folder.gateway_snapshot.read_bytes(), type=Snapshot)
        except FileNotFoundError:
            return None

    async def healthy(self, session: aiohttp.ClientSession) -> None:
        while True:
            try:
                async with session.get(self.address + "/health") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectorError:
                pass
            await asyncio.sleep(0.02)


@asynccontextmanager
async def process(path: Path, *, drain: float = 5.0, cap: int = 8) -> AsyncIterator[Process]:
    folder = Folder(path / "one")
    folder.create()
    [port] = free_ports(1)
    launch = Launch(
        status=Status(name="one", recipe="x", recipe_sha256="x", run="run-a"), attempts=(), tokenizer=None, ready_seconds=1,
        drain_seconds=drain, comeback=Comeback.BY_HAND, hang_seconds=60.0,
        front=Front(port=port, max_running_requests=cap, max_waiting_requests=cap, resume_deadline_seconds=20, context_tokens=4096),
    )  # fmt: skip
    write_json(folder.launch, launch)
    log = path / "log"
    with log.open("wb") as said:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "spec_toolkit.gateway.service", str(folder.path),
            stdin=subprocess.PIPE, stderr=said, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
    try:
        yield Process(folder, launch.front.address, child, log)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def until_answering(gateway: Process, session: aiohttp.ClientSession) -> None:
    while True:
        try:
            async with session.get(gateway.address + "/health"):
                return
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.02)


async def streamed(session: aiohttp.ClientSession, address: str, prompt: str = PROMPT) -> bytes:
    async with session.post(address + "/v1/chat/completions", json=chat(prompt)) as answer:
        assert answer.status == 200
        return await answer.read()


def test_a_stream_goes_on_through_the_process_and_nothing_of_it_is_kept(tmp_path):
    async def test() -> None:
        async with (
            FakeEngine(1, pace_seconds=0.05).serving() as a,
            FakeEngine(2).serving() as b,
            process(tmp_path) as gateway,
            aiohttp.ClientSession() as session,
        ):
            gateway.tell(a, 1)
            await gateway.healthy(session)
            asked = asyncio.create_task(streamed(session, gateway.address))
            await until(lambda: a.streams == 1)
            await asyncio.sleep(0.2)
            await a.kill()
            gateway.child.stdin.write(b"no route\n")
            gateway.tell(b, 2, lost=1)
            check_whole(fold(await asked), PROMPT)
            await until(lambda: (told := gateway.snapshot()) is not None and told.completed == 1)
            told = gateway.snapshot()
            assert (told.resumed + told.remade, told.engine, told.route, told.in_flight) == (1, 2, 2, 0)
            assert (told.run, time.time() - told.wall_s < 60) == ("run-a", True)  # noqa: TID251 - the clock it goes by
            assert stat.S_IMODE(gateway.folder.gateway_snapshot.stat().st_mode) == 0o600
            gateway.child.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(gateway.child.wait(), 20) == 0
        log = gateway.log.read_text()
        assert "a line that is no route" in log
        kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        for word in (*PROMPT.split()[-2:], "w3 ", "resume_ids"):
            assert word.encode() not in kept

    run(test())


@pytest.mark.parametrize(
    "request_of",
    [
        pytest.param(lambda word: b"POST /generate HTTP/1.1\r\n" + word + b"\r\n\r\n", id="header"),
        pytest.param(lambda word: b"GET / HTTP/1.1\r\nX: " + word * 1000 + b"\r\n\r\n", id="long-header"),
        pytest.param(lambda word: b"GET /" + word * 1000 + b" HTTP/1.1\r\n\r\n", id="long-line"),
        pytest.param(lambda word: b"GET / HTTP/" + word + b"\r\n\r\n", id="line"),
        pytest.param(lambda word: CHUNKED + word + b"\r\n", id="chunk"),
        pytest.param(lambda word: CHUNKED + b"2\r\n{}" + word + b"\r\n", id="chunks-end"),
        pytest.param(lambda word: GZIPPED + word + b"0" * (100 - len(word)), id="gzip"),
        pytest.param(lambda word: GZIPPED.replace(b"gzip", b"deflate") + word + b"0" * (100 - len(word)), id="deflate"),
    ],
)
def test_what_cannot_be_read_of_a_client_is_a_line_without_a_word_of_it(tmp_path, request_of):
    async def test() -> None:
        async with process(tmp_path) as gateway, aiohttp.ClientSession() as session:
            host, port = gateway.address.removeprefix("http://").split(":")
            async with asyncio.timeout(20):
                await until_answering(gateway, session)
            before = gateway.log.read_bytes()
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request_of(b"somebodys-secret-words"))
            said = await asyncio.wait_for(reader.readuntil(b"\r\n"), 20)
            assert b" 400 " in said
            await asyncio.wait_for(reader.read(), 20)
            writer.close()
            gateway.child.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(gateway.child.wait(), 20) == 0
            log = gateway.log.read_bytes().removeprefix(before)
            assert b"secret" not in log
            assert b"Traceback" not in log
            assert log.count(b"\n") <= 2, log

    run(test())


def test_told_to_end_it_lets_streams_end_and_takes_no_more(tmp_path):
    async def test() -> None:
        async with (
            FakeEngine(1, pace_seconds=0.1).serving() as engine,
            process(tmp_path, drain=20) as gateway,
            aiohttp.ClientSession() as session,
        ):
            gateway.tell(engine, 1)
            await gateway.healthy(session)
            asked = asyncio.create_task(streamed(session, gateway.address))
            await until(lambda: engine.streams == 1)
            gateway.child.send_signal(signal.SIGTERM)
            await until(lambda: (told := gateway.snapshot()) is not None and told.stopping)
            try:
                async with session.post(gateway.address + "/v1/chat/completions", json=chat()) as answer:
                    assert answer.status == 503
            except aiohttp.ClientConnectorError:
                pass
            check_whole(fold(await asked), PROMPT)
            assert await asyncio.wait_for(gateway.child.wait(), 20) == 0

    run(test())


def test_told_to_end_it_refuses_new_requests_on_connections_that_are_open_too(tmp_path):
    async def test() -> None:
        async with (
            FakeEngine(1, stalls_after=3).serving() as engine,
            process(tmp_path, drain=20) as gateway,
            aiohttp.ClientSession() as session,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as warm,
        ):
            gateway.tell(engine, 1)
            await gateway.healthy(warm)
            running = asyncio.create_task(streamed(session, gateway.address))
            await until(lambda: engine.streams == 1)
            gateway.child.send_signal(signal.SIGTERM)
            await until(lambda: (told := gateway.snapshot()) is not None and told.stopping)
            async with warm.post(gateway.address + "/v1/chat/completions", json=chat("new")) as answer:
                assert answer.status == 503
                assert (await answer.json())["error"]["type"] == "gateway.stopping"
            async with warm.get(gateway.address + "/health") as answer:
                assert answer.status == 503
            assert len(engine.requests) == 1
            assert not running.done()
            running.cancel()
            assert await asyncio.wait_for(gateway.child.wait(), 20) == 0

    run(test())


def test_what_has_not_ended_when_the_drain_is_over_ends_with_a_typed_error(tmp_path):
    async def test() -> None:
        async with (
            FakeEngine(1, stalls_after=3).serving() as engine,
            process(tmp_path, drain=0.2) as gateway,
            aiohttp.ClientSession() as session,
        ):
            gateway.tell(engine, 1)
            await gateway.healthy(session)
            body = {**chat(), "max_tokens": TOKENS}
            async with session.post(gateway.address + "/v1/chat/completions", json=body) as answer:
                said = await answer.content.readany()
                gateway.child.send_signal(signal.SIGTERM)
                said += await answer.read()
            held = fold(said)
            assert [error["type"] for error in held.errors] == ["gateway.stopping"]
            assert held.done == 0
            assert await asyncio.wait_for(gateway.child.wait(), 20) == 0

    run(test())


def test_the_rate_of_answers_is_that_of_the_engine_that_serves(tmp_path):
    async def test() -> None:
        async with (
            FakeEngine(1).serving() as a,
            FakeEngine(2).serving() as b,
            process(tmp_path) as gateway,
            aiohttp.ClientSession() as session,
        ):
            gateway.tell(a, 1)
            await gateway.healthy(session)
            check_whole(fold(await streamed(session, gateway.address)), PROMPT)
            await until(lambda: (told := gateway.snapshot()) is not None and told.completions_per_second is not None)
            gateway.tell(a, 2)
            await until(lambda: (told := gateway.snapshot()) is not None and told.route == 2)
            assert gateway.snapshot().completions_per_second is not None
            gateway.tell(b, 3)
            await until(lambda: (told := gateway.snapshot()) is not None and told.route == 3)
            assert gateway.snapshot().completions_per_second is None

    run(test())


@pytest.mark.parametrize("route_is_told", ["before", "after"])
def test_told_to_end_while_no_engine_takes_requests_it_tells_at_once_whoever_waits(tmp_path, route_is_told):
    async def test() -> None:
        async with (
            FakeEngine(1, stalls_after=3).serving() as engine,
            process(tmp_path, drain=600) as gateway,
            aiohttp.ClientSession() as session,
        ):
            gateway.tell(engine, 1)
            await gateway.healthy(session)
            running = asyncio.create_task(streamed(session, gateway.address))
            await until(lambda: engine.streams == 1)
            if route_is_told == "before":
                gateway.tell(None, 2)
                waiting = asyncio.create_task(session.post(gateway.address + "/v1/chat/completions", json=chat()))
                await until(lambda: (told := gateway.snapshot()) is not None and told.waiting == 1)
            gateway.child.send_signal(signal.SIGTERM)
            if route_is_told == "before":
                async with await asyncio.wait_for(waiting, 20) as answer:
                    assert answer.status == 503
                    assert (await answer.json())["error"]["type"] == "gateway.stopping"
            else:
                await until(lambda: (told := gateway.snapshot()) is not None and told.stopping)
                gateway.tell(None, 2)
            assert not running.done(), "its engine may finish it"
            await engine.kill()
            errors = fold(await asyncio.wait_for(running, 20)).errors
            assert [error["type"] for error in errors] == ["gateway.stopping"]
            assert await asyncio.wait_for(gateway.child.wait(), 20) == 0

    run(test())


def test_it_ends_when_its_supervisor_does(tmp_path):
    async def test() -> None:
        async with (
            FakeEngine(1, stalls_after=3).serving() as engine,
            process(tmp_path, drain=600) as gateway,
            aiohttp.ClientSession() as session,
        ):
            gateway.tell(engine, 1)
            await gateway.healthy(session)
            asked = asyncio.create_task(streamed(session, gateway.address))
            await until(lambda: engine.streams == 1)
            gateway.child.stdin.close()
            assert await asyncio.wait_for(gateway.child.wait(), 20) == 0
            errors = fold(await asked).errors
            assert json.dumps(errors).count("gateway.stopping") == 2  # the type, and the message that ends in it

    run(test())
