"""The gateway before real engines: A speculates, B does not, and A's scheduler is killed under open streams."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import aiohttp
import pytest

from spec_toolkit.engine.patch_reports import read_reports
from spec_toolkit.handover import Role
from spec_toolkit.launch.forked import Forked
from spec_toolkit.launch.route import Route
from spec_toolkit.prove.streams import Answer, Ask, Endpoint, ask, judge
from tests.engine.serving import serving
from tests.gateway.front import Front, fronting, until

pytestmark = pytest.mark.engine

TOKENS = 96
STREAMS = 16
BEGUN = 1000  # bytes forwarded of a stream: a few of its up to TOKENS events
SECONDS = 240.0


@dataclass
class Engines:
    a: Forked
    b: Forked


@pytest.fixture(scope="module")
def fallback(nursery, tmp_path_factory) -> Iterator[Forked]:
    with serving(nursery, tmp_path_factory.mktemp("b"), speculate=False) as engine:
        yield engine


@pytest.fixture
def engines(nursery, fallback, tmp_path) -> Iterator[Engines]:
    with serving(nursery, tmp_path / "a", speculate=True) as engine:
        yield Engines(engine, fallback)


def asks() -> list[Ask]:
    return [
        Ask(Endpoint.CHAT if n % 2 else Endpoint.GENERATE, f"Tell me about number {n} and what follows.", TOKENS)
        for n in range(STREAMS)
    ]


def route(engine: Forked | None, number: int, *, lost: int = 0) -> Route:
    return Route(
        generation=number, address=engine.address if engine else "", engine=number if engine else 0,
        speculates=number == 1, steps=0, lost=lost,
    )  # fmt: skip


def scheduler_of(engine: Forked) -> int:
    reports = read_reports(engine.folder / "patches.json")
    [pid] = [report.pid for report in reports if report.role is Role.SCHEDULER]
    return pid


async def every(address: str) -> list[Answer]:
    return list(await asyncio.gather(*(ask(address, each) for each in asks())))


async def kill_under_streams(engines: Engines, front: Front, *, told: bool) -> list[Answer]:
    """Answers of streams under which A's scheduler was killed. `told`: the Route says so at once, else A's end shows it."""
    running = asyncio.create_task(every(front.address))

    def half_are_in_the_middle() -> bool:
        streams = front.proxy.streams
        begun = [stream.journal.forwarded for stream in streams if stream.journal.forwarded]
        assert len(streams) == STREAMS or not begun, "a stream ended before half were under way"
        return sum(forwarded >= BEGUN for forwarded in begun) >= STREAMS // 2

    await until(half_are_in_the_middle, SECONDS)
    os.kill(scheduler_of(engines.a), signal.SIGKILL)
    if told:
        front.engines.follow(route(None, 2, lost=1))
        front.engines.follow(route(engines.b, 3, lost=1))
    else:
        front.engines._named = None  # nothing new goes to A; its streams are not told
        await until(lambda: front.counters.losses.total() >= 1, SECONDS)
        front.engines.follow(route(engines.b, 3, lost=1))
    return await running


@pytest.mark.parametrize(
    "told", [pytest.param(True, id="the-route-says-so"), pytest.param(False, id="the-engine-ends")]
)
def test_sixteen_mixed_streams_outlive_their_engine_with_the_answers_they_would_have_had(engines, told):
    async def test() -> None:
        async with fronting(running=8, waiting=64, deadline=120.0) as front:
            front.engines.follow(route(engines.b, 2))
            from_b = await every(front.address)
            front.engines.follow(route(engines.a, 1))
            whole = await every(front.address)
            assert not [judge(answer, answer) for answer in whole + from_b if judge(answer, answer)]
            # What the two engines say alike undisturbed they must say alike when a stream moves from one to the other.
            alike = [a.text == b.text for a, b in zip(whole, from_b, strict=True)]
            answers = await kill_under_streams(engines, front, told=told)
            wrong = [
                judge(answer, reference)
                for answer, reference, same in zip(answers, whole, alike, strict=True)
                if same or answer.problem
            ]
            silent = sorted(max(later - one for one, later in pairwise(answer.arrivals)) for answer in answers)
            sys.stdout.write(
                f"\n{STREAMS} streams, {front.counters.resumed} resumed, {front.counters.remade} remade, "
                f"{sum(map(bool, wrong))} wrong, {alike.count(True)} compared; losses {dict(front.counters.losses)}; "
                f"longest silence of a stream {silent[0]:.2f} to {silent[-1]:.2f} s; load {os.getloadavg()[0]:.1f}\n"
            )
            assert [each for each in wrong if each] == []
            assert front.counters.resumed + front.counters.remade >= STREAMS
            assert front.counters.resumed >= STREAMS // 2
            assert front.counters.resume_failed == 0
            assert alike.count(True) >= STREAMS // 2

    asyncio.run(asyncio.wait_for(test(), SECONDS * 2))


def test_the_wire_is_what_the_fake_engine_speaks(engines):
    """Names, records, refusals: what the tests on the fake engine stand on."""

    async def test() -> None:
        async with fronting() as front, aiohttp.ClientSession() as session:
            front.engines.follow(route(engines.a, 1))
            body = {**asks()[1].body(), "rid": "mine", "custom_params": {"resume_records": True}}
            async with session.post(engines.a.address + "/v1/chat/completions", json=body) as answer:
                said = await answer.read()
            assert b"\n\n: resume {" in said
            assert said.count(b'"id":"mine"') == said.count(b"data: {")
            assert said.endswith(b"data: [DONE]\n\n")
            status, said, _ = await front.post("/v1/chat/completions", {**body, "n": 2})
            assert status == 200
            assert b"resume" not in said
            status, said, _ = await front.post("/v1/chat/completions", {**body, "max_tokens": -3})
            assert status == 400
            for path in ("/model_info", "/v1/models"):
                assert (await front.get(path))[0] == 200
            assert (await front.post("/tokenize", {"prompt": "hello", "model": "default"}))[0] == 200
            for bad in ({"resume_ids": [10**6]}, {"resume_ids": []}):
                params = {"temperature": 0, "max_new_tokens": 8, "custom_params": bad}
                async with session.post(
                    engines.a.address + "/generate", json={"text": "x", "sampling_params": params, "stream": True}
                ) as answer:
                    said = await answer.read()
                assert b"[resume." in said
                assert b"error" in said

    asyncio.run(asyncio.wait_for(test(), SECONDS))
