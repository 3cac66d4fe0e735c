"""Services in the hands of the supervisor's own loop: what is told, what is read, when it is given up."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable

import pytest

from spec_toolkit.launch import services as room
from spec_toolkit.launch.back_off import BackOff
from spec_toolkit.launch.deployment import Folder, Status
from spec_toolkit.launch.events import Kind
from spec_toolkit.launch.record import Front, Launch, Record, Service
from spec_toolkit.launch.route import Routes
from spec_toolkit.launch.services import Services
from spec_toolkit.terms import Comeback
from tests.launch.supervised import KEY, notes, processes, routes, service, texts

pytestmark = pytest.mark.slow  # real processes, each with its own imports

SECONDS = 30.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.01)


def play(folder: Folder, kept: tuple[Service, ...], scenario: Callable[[Services, Routes, Record], Awaitable[None]]):
    launch = Launch(
        status=Status(name="d", recipe="r", recipe_sha256="s"),
        attempts=(),
        tokenizer=None,
        ready_seconds=1.0,
        drain_seconds=1.0,
        front=Front(
            port=1, max_running_requests=1, max_waiting_requests=1, resume_deadline_seconds=1.0, context_tokens=4096
        ),
        comeback=Comeback.BESIDE,
        hang_seconds=1.0,
        services=kept,
    )

    async def whole() -> None:
        record = Record(folder, launch.status)
        services = Services(folder, launch, record, KEY)
        made = Routes(services.tell)
        services.start("gateway", "sidecar")
        try:
            await scenario(services, made, record)
        finally:
            await services.close()
        assert record.status.keepers == ()

    asyncio.run(whole())
    assert not processes(folder)


def test_each_change_is_told_in_order_and_what_was_missed_is_not_told_again(folder) -> None:
    async def scenario(services: Services, made: Routes, record: Record) -> None:
        await until(lambda: len(routes(folder, "sidecar")) == 1)
        for number in (1, 2, 3):
            made.change(engine=number, why="x" * 9000)
        await until(lambda: len(routes(folder, "sidecar")) == 4)
        assert [route.generation for route in routes(folder, "sidecar")] == [1, 2, 3, 4]

    play(folder, (service(folder, "sidecar"),), scenario)


def test_what_changes_while_one_is_being_started_is_told_to_it(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[Callable[[], None]] = []
    start = room.KeptProcess.start

    async def slow_start(*arguments: object, **more: object) -> object:
        kept = await start(*arguments, **more)  # type: ignore[arg-type]
        for change in changes:
            change()
        changes.clear()
        return kept

    monkeypatch.setattr(room.KeptProcess, "start", slow_start)

    async def scenario(services: Services, made: Routes, record: Record) -> None:
        await until(lambda: len(routes(folder, "sidecar")) == 1)
        changes.append(lambda: made.change(engine=7))
        os.kill(int(notes(folder, "sidecar")[0].split()[1]), signal.SIGKILL)
        await until(lambda: len(routes(folder, "sidecar")) == 3)
        assert [route.engine for route in routes(folder, "sidecar")] == [0, 0, 7]

    play(folder, (service(folder, "sidecar"),), scenario)


def test_one_that_does_not_read_is_killed_and_started_again(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "FIRST_READ_SECONDS", 2.0)

    async def scenario(services: Services, made: Routes, record: Record) -> None:
        await until(lambda: sum(note.startswith("started") for note in notes(folder, "sidecar")) == 2)
        assert "sidecar: did not read what it was told after" in " ".join(texts(folder.events(), Kind.SERVICE))

    play(folder, (service(folder, "sidecar", "--unread"),), scenario)


def test_one_that_reads_no_more_is_found_by_the_next_line(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "READ_SECONDS", 1.0)
    reads_one = "import sys, time; sys.stdin.readline(); print('read', flush=True); time.sleep(600)"
    kept = Service(name="sidecar", command=(sys.executable, "-u", "-c", reads_one, str(folder.path)))

    async def scenario(services: Services, made: Routes, record: Record) -> None:
        log = folder.log_of("sidecar")
        await until(lambda: log.exists() and log.read_text() == "read\n")
        made.change(engine=1)
        await until(lambda: log.read_text() == "read\nread\n")

    play(folder, (kept,), scenario)


def test_a_full_pipe_never_stops_the_supervisor(folder) -> None:
    async def scenario(services: Services, made: Routes, record: Record) -> None:
        await until(lambda: len(notes(folder, "sidecar")) == 1)
        for number in range(1000):  # some 300 bytes each, into 64 KiB
            made.change(engine=number)
        await until(lambda: sum(note.startswith("started") for note in notes(folder, "sidecar")) == 2)

    play(folder, (service(folder, "sidecar", "--unread"),), scenario)


@pytest.mark.parametrize("name", ["gateway", "sidecar"])
def test_one_that_always_ends_is_given_up_and_without_a_gateway_there_is_no_way_in(
    folder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(room, "MOST_ENDS", 2)

    def soon(*, most: int, first_seconds: float, longest_seconds: float) -> BackOff:
        return BackOff(most=most, first_seconds=0.01, longest_seconds=0.01)

    monkeypatch.setattr(room, "BackOff", soon)

    async def scenario(services: Services, made: Routes, record: Record) -> None:
        await until(lambda: "it is not started again" in " ".join(texts(folder.events(), Kind.SERVICE)))
        assert sum(note.startswith("started") for note in notes(folder, name)) == 3
        assert services.given_up.done() is (name == "gateway")
        assert record.status.without.startswith("sidecar: ended" if name == "sidecar" else "")

    play(folder, (service(folder, name, "--exit", "1"),), scenario)


def test_a_key_that_one_writes_is_struck(folder) -> None:
    async def scenario(services: Services, made: Routes, record: Record) -> None:
        log = folder.log_of("sidecar")
        await until(lambda: log.exists() and bool(log.read_text()))
        assert log.read_text() == "key <redacted>\n"

    play(folder, (service(folder, "sidecar", "--say", f"key {KEY}"),), scenario)


def test_ends_are_counted_within_the_hour_and_waits_grow() -> None:
    now = [0.0]
    back_off = BackOff(most=3, first_seconds=1.0, longest_seconds=3.0, now=lambda: now[0], jitter=lambda: 0.5)
    assert [back_off.wait_after_end() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert back_off.wait_after_end() is None
    now[0] = 3601.0
    assert back_off.wait_after_end() == 1.0
