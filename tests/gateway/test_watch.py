"""An engine that hangs: silence and an unhealthy answer together, never one of them alone."""

import asyncio
import json

import pytest

from tests.gateway.fake_engine import FakeEngine
from tests.gateway.front import Front, chat, check_whole, fronting, generate, run, until


async def rounds(front: Front, count: int = 3) -> None:
    for _ in range(count):
        await front.watch.round()
        await asyncio.gather(*front.watch._probes.values())


@pytest.mark.parametrize("ask", [chat, generate])
def test_streams_of_an_engine_that_hangs_go_on_elsewhere(ask):
    async def test() -> None:
        async with (
            FakeEngine(1, stalls_after=3, healthy=False).serving() as a,
            FakeEngine(2).serving() as b,
            fronting(hang=0.0) as front,
        ):
            front.route(a)
            asked = asyncio.create_task(front.ask(ask()))
            await until(lambda: any(stream.journal.forwarded for stream in front.proxy.streams))
            await rounds(front)
            await until(lambda: a.cancelled == 1)
            assert (await front.get("/health"))[0] == 503
            waiting = asyncio.create_task(front.ask(ask("new")))
            await until(lambda: front.counters.waiting == 2)
            assert len(a.requests) == 1
            front.route(b)
            check_whole(await asked)
            check_whole(await waiting, "new")

    run(test())


def test_a_silent_engine_that_is_healthy_is_left_alone():
    async def test() -> None:
        async with FakeEngine(1, stalls_after=3).serving() as engine, fronting(hang=0.0) as front:
            front.route(engine)
            asked = asyncio.create_task(front.ask(chat()))
            await until(lambda: any(stream.journal.forwarded for stream in front.proxy.streams))
            await rounds(front)
            assert engine.cancelled == 0
            assert front.engines.current is not None
            asked.cancel()

    run(test())


def test_an_unhealthy_engine_that_is_not_silent_is_left_alone():
    async def test() -> None:
        async with FakeEngine(1, stalls_after=3, healthy=False).serving() as engine, fronting(hang=60.0) as front:
            front.route(engine)
            asked = asyncio.create_task(front.ask(chat()))
            await until(lambda: any(stream.journal.forwarded for stream in front.proxy.streams))
            await rounds(front)
            assert engine.cancelled == 0
            asked.cancel()

    run(test())


def test_an_engine_that_hung_takes_requests_again_once_it_is_healthy():
    async def test() -> None:
        async with FakeEngine(1, stalls_after=3, healthy=False).serving() as engine, fronting(hang=0.0) as front:
            front.route(engine)
            asked = asyncio.create_task(front.ask(chat()))
            await until(lambda: any(stream.journal.forwarded for stream in front.proxy.streams))
            await rounds(front)
            assert front.engines.current is None
            engine.healthy, engine.stalls_after = True, None
            await rounds(front)
            check_whole(await asked)
            assert front.counters.resumed == 1

    run(test())


def test_a_client_that_does_not_read_holds_up_no_round_and_is_told_nothing_more(monkeypatch):
    """Nor does a line that it did not take count as a write that is under way: its stream would lose the client for it."""

    async def test() -> None:
        monkeypatch.setattr("spec_toolkit.gateway.watch.KEEP_ALIVE_SECONDS", 0.0)
        async with FakeEngine(1, stalls_after=3).serving() as engine, fronting() as front:
            front.route(engine)
            host, port = front.address.removeprefix("http://").split(":")
            writers = []
            for _ in range(3):
                _, writer = await asyncio.open_connection(host, int(port), limit=1024)
                body = json.dumps(chat()).encode()
                writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
                writer.write(body)
                writers.append(writer)
            await until(lambda: sum(stream.journal.forwarded > 0 for stream in front.proxy.streams) == 3)
            for stream in front.proxy.streams:  # as where the client's side is full
                stream.http.transport.write(b"x" * 30_000_000)
                stream.response._payload_writer.buffer_size = 1 << 20  # so that its next write would wait
                assert stream.http.transport.get_write_buffer_size() > 1_000_000
            async with asyncio.timeout(2.0):
                await rounds(front)
            for stream in front.proxy.streams:
                assert stream.writing_since is None
                stream.http.transport.abort()
            for writer in writers:
                writer.transport.abort()
            await until(lambda: front.admission.in_flight == 0)

    run(test())
