"""Where requests go, by the supervisor's words and in which order."""

import asyncio

import pytest

from spec_toolkit.gateway import engines as engines_module
from spec_toolkit.gateway.engines import Engines
from spec_toolkit.gateway.refusal import Refused
from spec_toolkit.launch.route import Route
from tests.gateway.front import run


def route(number: int, generation: int, *, lost: int = 0, speculates: bool = True) -> Route:
    address = f"http://127.0.0.1:{number}" if number else ""
    return Route(
        generation=generation, address=address, engine=number, speculates=speculates and number > 0, steps=0, lost=lost
    )


class Request:
    def __init__(self) -> None:
        self.cuts = 0

    def cut(self) -> None:
        self.cuts += 1


@pytest.mark.parametrize(
    ("routes", "cuts"),
    [
        pytest.param([route(1, 1), route(2, 2)], 0, id="moved"),
        pytest.param([route(1, 1), route(0, 2)], 0, id="none-takes-requests"),
        pytest.param([route(1, 1), route(2, 2, lost=1)], 1, id="lost"),
        pytest.param([route(1, 1), route(0, 2, lost=1), route(2, 3, lost=1)], 1, id="lost-and-nothing-yet"),
        pytest.param([route(1, 1), route(0, 2), route(2, 3, lost=1)], 1, id="called-lost-later"),
        pytest.param([route(1, 1), route(1, 2, lost=1)], 0, id="another-was-lost"),
        pytest.param(
            [route(1, 1, speculates=False), route(2, 2), route(1, 3, lost=1)], 0, id="one-that-stays-is-not-cut"
        ),
        pytest.param([route(1, 1, speculates=False), route(2, 2, lost=1)], 0, id="lost-counts-speculating-ones"),
        pytest.param([route(1, 1, lost=3), route(2, 2, lost=3)], 0, id="lost-long-ago"),
    ],
)
def test_requests_are_cut_where_their_engine_is_lost(routes, cuts):
    async def test() -> None:
        engines = Engines()
        engines.follow(routes[0])
        request = Request()
        with engines.current.holding(request, 0.0):
            for each in routes[1:]:
                engines.follow(each)
            assert request.cuts == cuts

    run(test())


def test_an_engine_named_again_is_the_one_it_was():
    async def test() -> None:
        engines = Engines()
        engines.follow(route(1, 1))
        first = engines.current
        with first.holding(Request(), 0.0):
            engines.follow(route(2, 2))
            engines.follow(route(1, 3))
            assert engines.current is first
            assert [engine.number for engine in engines.all] == [1]

    run(test())


def test_new_requests_wait_for_resumed_streams_but_not_for_ever(monkeypatch):
    async def test() -> None:
        monkeypatch.setattr(engines_module, "RESUMED_FIRST_SECONDS", 0.2)
        engines = Engines()
        loop = asyncio.get_running_loop()
        stream = object()
        engines.lost_by(stream)
        fresh = asyncio.create_task(engines.take(resumed=False, until=loop.time() + 5))
        await asyncio.sleep(0)
        engines.follow(route(1, 1))
        assert (await engines.take(resumed=True, until=loop.time() + 5)).number == 1
        await asyncio.sleep(0.02)
        assert not fresh.done()
        assert (await fresh).number == 1  # the stream did not come: the time is over
        engines.follow(route(2, 2))
        fresh = asyncio.create_task(engines.take(resumed=False, until=loop.time() + 5))
        await asyncio.sleep(0)
        assert not fresh.done()
        began = loop.time()
        engines.runs_again(stream)
        await fresh
        assert loop.time() - began < 0.15

    run(test())


def test_who_waits_for_an_engine_is_told_when_the_time_is_over_or_the_gateway_ends():
    async def test() -> None:
        engines = Engines()
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            await engines.take(resumed=False, until=loop.time() + 0.02)
        waiting = asyncio.create_task(engines.take(resumed=False, until=loop.time() + 5))
        await asyncio.sleep(0)
        engines.close()
        with pytest.raises(Refused, match=r"gateway\.stopping"):
            await waiting
        cancelled = asyncio.create_task(engines.change(5))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert engines._waiters == []

    run(test())
