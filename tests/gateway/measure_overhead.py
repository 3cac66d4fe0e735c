"""What the gateway adds to a stream: `python -m tests.gateway.measure_overhead [--streams 32] [--pairs 5]`.

Paced streams of a fake engine, directly and through the gateway's own process, in turns, so that a machine that grows slower does so for
both. An event carries when the engine made it; what is measured is how old it is when a client has it. Nothing is asserted: figures from
a busy machine are upper bounds, and their ratio says more than they do. Streams begin one after another over a second.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp
import orjson
import uvloop
from aiohttp import web

from tests.gateway.fake_engine import FakeEngine
from tests.gateway.test_service import Process, process

START_SECONDS = 60.0
SPREAD_SECONDS = 1.0  # over which the streams begin: together they would measure how requests queue
_RECORD = b': resume {"ids":[%d],"chars":4}\n\n'


async def _serve(tell: Connection, pace: float, tokens: int) -> None:
    async def stream(http: web.BaseRequest) -> web.StreamResponse:
        body = orjson.loads(await http.read())
        rid = body.get("rid", "direct").encode()
        records = bool(body.get("custom_params"))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        begin = time.monotonic()
        for number in range(tokens):
            await asyncio.sleep(max(0.0, begin + number * pace - time.monotonic()))
            said = (
                b'data: {"id":"%b","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"%.6f"},"finish_reason":null}]}\n\n'
                % (
                    rid,
                    time.monotonic(),
                )
            )
            await response.write(said + (_RECORD % number if records else b""))
        await response.write(b"data: [DONE]\n\n")
        return response

    runner = web.ServerRunner(web.Server(stream, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    tell.send(runner.addresses[0][1])
    await asyncio.Event().wait()


def _engine(tell: Connection, pace: float, tokens: int) -> None:
    uvloop.run(_serve(tell, pace, tokens))


@contextmanager
def _engine_process(pace: float, tokens: int) -> Iterator[str]:
    told, tell = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("spawn").Process(target=_engine, args=(tell, pace, tokens), daemon=True)
    child.start()
    try:
        assert told.poll(START_SECONDS), "the engine did not start"
        yield f"http://127.0.0.1:{told.recv()}"
    finally:
        child.kill()
        child.join()


async def _client(session: aiohttp.ClientSession, address: str, delay: float) -> list[float]:
    """Seconds from each event's making to its arrival; of the first, from the request."""
    await asyncio.sleep(delay)
    ages: list[float] = []
    first, begin = None, time.monotonic()
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    async with session.post(address + "/v1/chat/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        rest = b""
        async for piece in answer.content.iter_any():
            now = time.monotonic()
            *events, rest = (rest + piece).split(b"\n\n")
            made = [orjson.loads(event[6:]) for event in events if event.startswith(b"data: {")]
            ages += [now - float(event["choices"][0]["delta"]["content"]) for event in made]
            first = first if first is not None or not made else now - begin
    assert first is not None
    ages[0] = first
    return ages


async def _round(session: aiohttp.ClientSession, address: str, streams: int) -> list[list[float]]:
    return await asyncio.gather(*(_client(session, address, SPREAD_SECONDS * n / streams) for n in range(streams)))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _share(values: list[float], share: float) -> float:
    return 1000 * sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _line(name: str, rounds: list[list[list[float]]]) -> str:
    first = [row[0] for one in rounds for row in one]
    ages = [age for one in rounds for row in one for age in row[1:]]
    return (
        f"{name:8} first token p50 {_share(first, 0.5):6.2f} p99 {_share(first, 0.99):6.2f}   "
        f"later tokens p50 {_share(ages, 0.5):6.2f} p99 {_share(ages, 0.99):6.2f} ms"
    )


async def _measure(gateway: Process, direct: str, options: argparse.Namespace) -> list[str]:
    rounds: dict[str, list[list[list[float]]]] = {"direct": [], "gateway": []}
    ratios, cpu = [], []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await gateway.healthy(session)
        for address in (direct, gateway.address):
            await _round(session, address, options.streams)  # warm
        for _ in range(options.pairs):
            rounds["direct"].append(await _round(session, direct, options.streams))
            before = _cpu_seconds(gateway.child.pid)
            rounds["gateway"].append(await _round(session, gateway.address, options.streams))
            cpu.append((_cpu_seconds(gateway.child.pid) - before) * 10_000 / (options.streams * options.tokens))
            middle = [statistics.median(age for row in rounds[name][-1] for age in row) for name in rounds]
            ratios.append(middle[1] / middle[0])
    said = f"{options.streams} streams, {options.rate:g} tokens/s each, {options.tokens} tokens, paced and spread"
    every = " ".join(f"{value:.2f}" for value in cpu)
    return [
        f"{said}; {options.pairs} pairs; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        *(_line(name, rows) for name, rows in rounds.items()),
        f"age of an event, gateway over direct: median of pairs {statistics.median(ratios):.2f}",
        f"gateway's CPU seconds per 10,000 tokens: {every}, median {statistics.median(cpu):.2f}",
    ]


async def _main(options: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        _engine_process(1 / options.rate, options.tokens) as direct,
    ):
        async with process(Path(folder), cap=options.streams) as gateway:
            gateway.tell(FakeEngine(1, address=direct), 1)
            sys.stdout.write("\n".join(await _measure(gateway, direct, options)) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rate", type=float, default=50.0, help="tokens a second of each stream")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=5)
    uvloop.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
