"""The order of moves, with engines that do what the test says, when it says so."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from spec_toolkit.errors import ActError, EngineError
from spec_toolkit.launch.back_off import BackOff
from spec_toolkit.launch.deployment import Folder, Status
from spec_toolkit.launch.engines import OnPhase
from spec_toolkit.launch.events import Kind
from spec_toolkit.launch.failure import EngineGone, Failure
from spec_toolkit.launch.fleet import Fleet
from spec_toolkit.launch.order import Order, Step
from spec_toolkit.launch.record import Front, Launch, Record
from spec_toolkit.launch.route import Route, Routes
from spec_toolkit.launch.smoke import Smoke
from spec_toolkit.launch.spec import LaunchSpec
from spec_toolkit.launch.succession import Succession
from spec_toolkit.terms import Comeback

SECONDS = 10.0
BACK = Order(True, "the cool-down is over")
AWAY = Order(False, "asked to")
HUNG = Order(False, "it hangs", hung=True)


def spec(*, speculates: bool) -> LaunchSpec:
    return LaunchSpec(
        command=("x",),
        set_environment={},
        unset_environment=(),
        address="",
        speculates=speculates,
        processes=(),
    )


WITH, WITHOUT = spec(speculates=True), spec(speculates=False)


class Scripted:
    """An engine whose start, end and death are the test's to say."""

    def __init__(self, number: int, of: LaunchSpec, *, lowers: bool) -> None:
        self.number, self.spec = number, replace(of, address=f"http://engine-{number}")
        self.ready: asyncio.Future[Smoke] = asyncio.get_running_loop().create_future()
        self.death: asyncio.Future[EngineGone] = asyncio.get_running_loop().create_future()
        self.drained = asyncio.Event()
        self.steps: int | None = None
        self.alive = True
        self._lowers = lowers
        self.tail: list[str] = []
        self.age_seconds = 1.0

    async def become_ready(self, seconds: float, on_phase: OnPhase) -> Smoke:
        return await self.ready

    async def lower(self, steps: int, most: int) -> None:
        if not self._lowers:
            raise ActError.of("act.not-taken", "engine", "still drafts")
        self.steps = steps

    async def gone(self) -> EngineGone:
        return await asyncio.shield(self.death)

    async def end(self, seconds: float, at_once: asyncio.Event) -> None:
        await self.drained.wait()
        self.alive = False

    async def kill(self) -> int:
        self.alive = False
        return 137

    def passes(self) -> None:
        self.ready.set_result(Smoke(emitted_tokens=32, rounds=10, emitted_length=3.2))

    def fails(self, *, final: bool = False) -> None:
        self.ready.set_exception(EngineGone("it broke", final=final))

    def dies(self, *, final: bool = False) -> None:
        self.death.set_result(EngineGone("scheduler ended", final=final))


class World:
    def __init__(self, folder: Folder, attempts: tuple[LaunchSpec, ...], comeback: Comeback, *, lowers: bool) -> None:
        self.folder = folder
        self.launch = Launch(
            status=Status(name="d", recipe="r", recipe_sha256="s"),
            attempts=attempts,
            tokenizer=None,
            ready_seconds=60.0,
            drain_seconds=30.0,
            front=Front(
                port=1, max_running_requests=1, max_waiting_requests=1, resume_deadline_seconds=1.0, context_tokens=4096
            ),
            comeback=comeback,
            hang_seconds=1.0,
            steps=(0, 1, 3),
            entry_steps=3,
            return_steps=0,
        )
        self.record = Record(folder, self.launch.status)
        self.started: list[Scripted] = []
        self.routes: list[Route] = []
        self.opened = 0
        self._lowers = lowers

        async def start(number: int, of: LaunchSpec) -> Scripted:
            self.started.append(Scripted(number, of, lowers=lowers))
            return self.started[-1]

        async def opened() -> None:
            self.opened += 1

        self.at_once = asyncio.Event()
        self.fleet = Fleet(self.launch, self.record, start, self.at_once)
        back_off = BackOff(most=3, first_seconds=0.001, longest_seconds=0.01)
        self.succession = Succession(self.launch, self.record, Routes(self.routes.append), self.fleet, opened, back_off)
        self.task = asyncio.create_task(self.succession.run())

    async def engine(self, number: int) -> Scripted:
        await until(lambda: len(self.started) >= number)
        return self.started[number - 1]

    async def serving(self, number: int) -> Scripted:
        await until(lambda: self.succession.step is Step.SERVING and self.routes[-1].engine == number)
        return self.started[number - 1]

    async def first(self) -> Scripted:
        (await self.engine(1)).passes()
        return await self.serving(1)

    async def standing_in(self) -> Scripted:
        """Engine 1, which speculated, died; engine 2 stands in."""
        (await self.first()).dies()
        (await self.engine(2)).passes()
        return await self.serving(2)

    def kinds(self) -> list[Kind]:
        return [event.kind for event in self.folder.events()]

    def living(self) -> list[int]:
        return [engine.number for engine in self.started if engine.alive]

    async def failed(self) -> Failure:
        return await asyncio.wait_for(asyncio.shield(self.task), SECONDS)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - there is nothing to wait for but what others set
            await asyncio.sleep(0.001)


@pytest.fixture
def play(tmp_path: Path):
    """Run one scenario; whatever it ends in, nothing lives after it."""

    def run(
        scenario: Callable[[World], Awaitable[None]],
        attempts: tuple[LaunchSpec, ...] = (WITH, WITH, WITHOUT),
        comeback: Comeback = Comeback.BESIDE,
        *,
        lowers: bool = True,
    ) -> None:
        async def whole() -> None:
            folder = Folder(tmp_path / "d")
            folder.create()
            world = World(folder, attempts, comeback, lowers=lowers)
            await scenario(world)
            world.task.cancel()
            await asyncio.gather(world.task, return_exceptions=True)
            await world.fleet.close()
            assert world.living() == []
            numbers = [route.generation for route in world.routes]
            assert numbers == list(range(1, len(numbers) + 1))

        asyncio.run(whole())

    return run


def test_a_lost_speculating_engine_is_followed_by_one_without_and_requests_wait_meanwhile(play) -> None:
    async def scenario(world: World) -> None:
        first = await world.first()
        assert world.routes[-1].address == "http://engine-1"
        assert (world.routes[-1].speculates, world.routes[-1].steps, world.routes[-1].lost) == (True, 3, 0)
        first.dies()
        second = await world.engine(2)
        assert (world.routes[-1].address, world.routes[-1].engine, world.routes[-1].lost) == ("", 0, 1)
        assert world.record.status.phase == "restarting"
        assert not first.alive, "two engines where there is room for one"
        second.passes()
        await world.serving(2)
        assert (world.routes[-1].speculates, world.routes[-1].steps) == (False, 0)
        status = world.record.status
        assert (status.phase, status.mode, status.engine_address) == ("ready", "autoregressive", "http://engine-2")
        assert "scheduler ended" in status.reason
        assert world.kinds()[-3:] == [Kind.LOST, Kind.ATTEMPT, Kind.MOVED]
        assert world.opened == 1

    play(scenario)


def test_an_engine_that_hangs_is_killed_at_once_and_not_counted_twice(play) -> None:
    async def scenario(world: World) -> None:
        first = await world.first()
        assert world.succession.ask(HUNG) == ""
        (await world.engine(2)).passes()
        await world.serving(2)
        assert not first.alive
        assert world.routes[-1].lost == 0, "whoever says that it hangs has counted it"
        assert world.record.status.reason == "it hangs"

    play(scenario)


def test_asked_to_restart_without_speculation_it_lets_run_what_runs_and_counts_nothing_as_lost(play) -> None:
    async def scenario(world: World) -> None:
        first = await world.first()
        assert world.succession.ask(AWAY) == ""
        await until(lambda: world.routes[-1].address == "")
        await asyncio.sleep(0.01)
        assert first.alive, "what it runs may be what cannot go on elsewhere"
        assert len(world.started) == 1, "two engines where there is room for one"
        first.drained.set()
        (await world.engine(2)).passes()
        await world.serving(2)
        assert not first.alive
        assert world.routes[-1].lost == 0
        assert world.record.status.reason == "asked to"

    play(scenario)


def test_an_engine_that_returns_beside_takes_over_at_the_lowest_rung_and_the_old_one_finishes(play) -> None:
    async def scenario(world: World) -> None:
        second = await world.standing_in()
        assert world.succession.ask(BACK) == ""
        third = await world.engine(3)
        assert (world.routes[-1].engine, world.routes[-1].returning) == (2, True)
        assert world.living() == [2, 3]
        third.passes()
        await world.serving(3)
        assert third.steps == 0
        route = world.routes[-1]
        assert (route.address, route.speculates, route.steps, route.returning) == ("http://engine-3", True, 0, False)
        assert world.record.status.mode == "zero_draft"
        assert world.living() == [2, 3], "it finishes what it runs"
        third.dies()  # before the old one has finished: what follows must not wait for it
        await world.engine(4)
        second.drained.set()
        await until(lambda: world.living() == [4])

    play(scenario)


def test_while_the_old_engine_finishes_no_other_returns(play) -> None:
    async def scenario(world: World) -> None:
        await world.standing_in()
        world.succession.ask(BACK)
        (await world.engine(3)).passes()
        third = await world.serving(3)
        third.dies()
        (await world.engine(4)).passes()
        await world.serving(4)
        assert world.succession.ask(BACK) == "the engine that served before still finishes what it runs"
        world.started[1].drained.set()
        await until(lambda: world.succession.ask(BACK) == "")

    play(scenario)


def test_an_engine_that_returns_in_place_starts_after_the_old_one_has_finished(play) -> None:
    async def scenario(world: World) -> None:
        second = await world.standing_in()
        world.succession.ask(BACK)
        await until(lambda: world.routes[-1].address == "")
        assert world.routes[-1].returning
        assert len(world.started) == 2
        second.drained.set()
        third = await world.engine(3)
        assert world.living() == [3]
        third.passes()
        await world.serving(3)
        assert third.steps == 0

    play(scenario, comeback=Comeback.IN_PLACE)


@pytest.mark.parametrize("how", ["fails", "patches", "does-not-lower"])
def test_an_engine_that_does_not_return_beside_leaves_the_other_serving_and_says_so(play, how: str) -> None:
    async def scenario(world: World) -> None:
        second = await world.standing_in()
        world.succession.ask(BACK)
        third = await world.engine(3)
        third.passes() if how == "does-not-lower" else third.fails(final=how == "patches")
        await until(lambda: world.succession.step is Step.SERVING)
        route = world.routes[-1]
        assert (route.engine, route.returning, route.lost) == (2, False, 2)
        assert "did not come back" in route.why
        assert world.record.status.mode == "autoregressive"
        assert world.living() == [second.number]
        assert world.kinds()[-1] is Kind.COMEBACK

    play(scenario, lowers=how != "does-not-lower")


def test_an_engine_that_does_not_return_in_place_is_followed_by_one_without(play) -> None:
    async def scenario(world: World) -> None:
        (await world.standing_in()).drained.set()
        world.succession.ask(BACK)
        (await world.engine(3)).fails(final=True)
        (await world.engine(4)).passes()
        await world.serving(4)
        assert (world.routes[-1].speculates, world.routes[-1].lost) == (False, 2)

    play(scenario, comeback=Comeback.IN_PLACE)


@pytest.mark.parametrize("returns", [True, False])
def test_a_stand_in_that_dies_while_another_returns_is_followed_by_whichever_comes(play, returns: bool) -> None:
    async def scenario(world: World) -> None:
        second = await world.standing_in()
        world.succession.ask(BACK)
        third = await world.engine(3)
        second.dies()
        await until(lambda: world.routes[-1].address == "")
        if returns:
            third.passes()
            await world.serving(3)
        else:
            third.fails()
            (await world.engine(4)).passes()
            await world.serving(4)
            assert world.record.status.mode == "autoregressive"
        assert world.kinds().count(Kind.LOST) == 2, "each end is told once"

    play(scenario)


@pytest.mark.parametrize("returns", [True, False])
def test_a_stand_in_that_hangs_while_another_returns_is_killed_and_followed_by_whichever_comes(
    play, returns: bool
) -> None:
    async def scenario(world: World) -> None:
        second = await world.standing_in()
        world.succession.ask(BACK)
        third = await world.engine(3)
        assert world.succession.ask(HUNG) == ""
        await until(lambda: world.routes[-1].address == "")
        await until(lambda: not second.alive)
        assert world.routes[-1].lost == 1, "a stand-in is no speculating engine"
        assert world.succession.ask(HUNG) == "a speculating engine is being started to take over"
        if returns:
            third.passes()
            await world.serving(3)
        else:
            third.fails()
            (await world.engine(4)).passes()
            await world.serving(4)
            assert world.record.status.mode == "autoregressive"
        assert "it hangs" in [event.text for event in world.folder.events() if event.kind is Kind.LOST][-1]

    play(scenario)


def test_a_stand_in_that_is_said_to_hang_as_the_other_comes_is_not_let_finish(play) -> None:
    async def scenario(world: World) -> None:
        second = await world.standing_in()
        world.succession.ask(BACK)
        (await world.engine(3)).passes()
        assert world.succession.ask(HUNG) == ""
        await world.serving(3)
        assert not second.alive

    play(scenario)


def test_an_engine_that_comes_back_by_hand_takes_the_place_of_the_other(play) -> None:
    async def scenario(world: World) -> None:
        second = await world.standing_in()
        assert world.succession.ask(BACK) == ""
        await until(lambda: world.routes[-1].address == "")
        assert world.living() == [2], "room for two is promised by `beside` alone"
        second.drained.set()
        (await world.engine(3)).passes()
        await world.serving(3)

    play(scenario, comeback=Comeback.BY_HAND)


def test_stand_ins_that_keep_ending_are_given_up(play) -> None:
    async def scenario(world: World) -> None:
        await world.standing_in()
        for number in (2, 3, 4):
            (await world.serving(number)).dies()
            (await world.engine(number + 1)).passes()
        (await world.serving(5)).dies()
        failed = await world.failed()
        assert "That was engine 4 within an hour" in failed.text
        assert world.routes[-1].address == ""

    play(scenario)


def test_where_only_speculation_is_allowed_a_lost_engine_is_followed_by_another_at_the_lowest_rung(play) -> None:
    async def scenario(world: World) -> None:
        for number in (1, 2, 3):
            (await world.engine(number)).passes()
            (await world.serving(number)).dies()
        (await world.engine(4)).passes()
        await world.serving(4)
        assert world.started[3].steps == 0
        assert (world.routes[-1].lost, world.record.status.mode) == (3, "zero_draft")
        world.started[3].dies()
        assert "within an hour" in (await world.failed()).text

    play(scenario, attempts=(WITH, WITH))


def test_where_every_engine_speculates_none_is_replaced_but_for_a_hang(play) -> None:
    async def scenario(world: World) -> None:
        first = await world.first()
        assert world.succession.ask(AWAY) == "the recipe does not let an engine run without speculation"
        assert world.succession.ask(HUNG) == ""
        (await world.engine(2)).passes()
        await world.serving(2)
        assert not first.alive
        assert world.routes[-1].speculates

    play(scenario, attempts=(WITH, WITH))


@pytest.mark.parametrize("when", ["serving", "standing-in", "replacing"])
def test_what_no_other_engine_can_mend_ends_the_deployment(play, when: str) -> None:
    async def scenario(world: World) -> None:
        if when == "serving":
            (await world.first()).dies(final=True)
        elif when == "standing-in":
            (await world.standing_in()).dies(final=True)
        else:
            (await world.first()).dies()
            (await world.engine(2)).fails(final=True)
        assert (await world.failed()).final

    play(scenario)


def test_one_move_at_a_time(play) -> None:
    async def scenario(world: World) -> None:
        ask = world.succession.ask
        assert ask(AWAY) == "the first engine is being started"
        first = await world.first()
        assert ask(BACK) == "the engine that serves was started with speculation"
        first.drained.set()
        assert ask(AWAY) == ""
        assert ask(AWAY) == "another restart was just asked for"
        second = await world.engine(2)
        assert ask(BACK) == "the engine is being replaced"
        second.passes()
        await world.serving(2)
        assert ask(BACK) == ""
        third = await world.engine(3)
        for order in (AWAY, BACK):
            assert ask(order) == "a speculating engine is being started to take over"
        third.passes()
        assert not first.alive

    play(scenario)


def test_a_recipe_that_never_speculates_has_nothing_to_return_to(play) -> None:
    async def scenario(world: World) -> None:
        await world.first()
        assert world.succession.ask(BACK) == "the recipe does not let an engine speculate"
        assert world.record.status.mode == "autoregressive"

    play(scenario, attempts=(WITHOUT,))


def test_a_first_engine_below_the_highest_rung_is_lowered_before_it_serves(play) -> None:
    async def scenario(world: World) -> None:
        world.launch = world.succession._launch = world.fleet._launch = replace(world.launch, entry_steps=1)
        first = await world.first()
        assert first.steps == 1
        assert (world.routes[-1].steps, world.record.status.mode) == (1, "reduced")

    play(scenario)


def test_failed_starts_with_speculation_are_told_as_lost(play) -> None:
    async def scenario(world: World) -> None:
        (await world.engine(1)).fails()
        (await world.engine(2)).fails()
        (await world.engine(3)).passes()
        await world.serving(3)
        assert (world.routes[-1].lost, world.routes[-1].speculates) == (2, False)
        assert "speculation could not start" in world.record.status.reason

    play(scenario)


@pytest.mark.parametrize("moment", ["first", "replacing", "returning", "in-place-drain", "retiring"])
def test_cancelled_at_any_moment_it_leaves_nothing(play, moment: str) -> None:
    async def scenario(world: World) -> None:
        if moment == "first":
            await world.engine(1)
        elif moment == "replacing":
            (await world.first()).dies()
            await world.engine(2)
        else:
            await world.standing_in()
            world.succession.ask(BACK)
            if moment == "in-place-drain":
                await until(lambda: world.routes[-1].address == "")
            else:
                await world.engine(3)
            if moment == "retiring":
                world.started[2].passes()
                await world.serving(3)

    play(scenario, comeback=Comeback.IN_PLACE if moment == "in-place-drain" else Comeback.BESIDE)


def test_an_engine_that_does_not_die_ends_the_deployment_and_is_told(play) -> None:
    async def scenario(world: World) -> None:
        first = await world.first()

        async def undead() -> int:
            raise EngineError.of("engine.undead", "engine", "processes 7 do not end on SIGKILL")

        first.kill, kill = undead, first.kill  # type: ignore[method-assign]
        first.dies()
        failed = await world.failed()
        assert failed.final
        assert "do not end on SIGKILL" in failed.text
        first.kill = kill  # type: ignore[method-assign]

    play(scenario)
