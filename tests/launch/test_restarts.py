"""The supervisor when engines end, return and are asked for: with processes, ports and a route that services are told of."""

import asyncio
import os
import signal
import time

import pytest
import requests

from spec_toolkit.launch import control
from spec_toolkit.launch import services as rooms
from spec_toolkit.launch.back_off import BackOff
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.launch.ending import look, stop
from spec_toolkit.launch.events import ENDS, Event, Kind
from spec_toolkit.launch.ports import free_ports
from spec_toolkit.launch.record import Service
from spec_toolkit.launch.supervisor import Supervisor
from spec_toolkit.terms import Comeback
from tests.launch.supervised import (
    DEADLINE_SECONDS,
    attempt,
    launch_of,
    notes,
    processes,
    routes,
    service,
    texts,
    until,
)

pytestmark = pytest.mark.slow  # real processes, each with its own imports


def ask(folder: Folder, *, speculate: bool, why: str = "the test asks", hung: bool = False) -> dict[str, object]:
    return asyncio.run(control.ask(folder, "restart", speculate=speculate, why=why, hung=hung))


def both(folder: Folder) -> tuple:
    return attempt(folder), attempt(folder, speculates=False)


@pytest.mark.parametrize(
    ("victim", "how"),
    [("scheduler", signal.SIGKILL), ("detokenizer", signal.SIGKILL), ("launcher", signal.SIGSEGV)],
)
def test_a_part_of_an_engine_that_ends_is_named_and_one_without_speculation_serves(folder, run, victim, how) -> None:
    running = run(*both(folder), services=(service(folder, "sidecar"),))
    running.until(Kind.READY)
    os.kill(running.engine_pid(1, victim), how)
    events = running.until(Kind.MOVED)
    [lost] = [event for event in events if event.kind is Kind.LOST]
    assert ("exit code 139 (SIGSEGV)" if victim == "launcher" else f"engine: {victim}") in lost.text
    assert (lost.runbook, "See runbooks/engine-lost.md" in lost.text) == ("runbooks/engine-lost.md", True)
    status = running.until_phase("ready")
    assert (status.mode, status.serves) == ("autoregressive", True)
    assert "runbooks/engine-lost.md" in status.reason
    until(lambda: routes(folder, "sidecar")[-1].engine == 2)
    assert [(route.engine, route.lost) for route in routes(folder, "sidecar")] == [(1, 0), (0, 1), (2, 1)]
    assert stop(folder).kind is Kind.STOPPED


def test_an_engine_that_is_stopped_in_its_tracks_can_be_replaced(folder, run) -> None:
    running = run(*both(folder))
    running.until(Kind.READY)
    for who in ("launcher", "scheduler"):
        os.kill(running.engine_pid(1, who), signal.SIGSTOP)
    first = processes(folder)
    assert ask(folder, speculate=False, why="engine 1 hangs", hung=True) == {"ok": True}
    running.until(Kind.MOVED)
    assert not {*first} & {*processes(folder)}
    assert look(folder).reason == "engine 1 hangs"


@pytest.mark.parametrize("comeback", [Comeback.BESIDE, Comeback.IN_PLACE])
def test_speculation_returns_at_the_lowest_rung(folder, run, comeback) -> None:
    running = run(*both(folder), services=(service(folder, "sidecar"),), comeback=comeback)
    running.until(Kind.READY)
    assert ask(folder, speculate=False) == {"ok": True}
    running.until(Kind.MOVED)
    until(lambda: ask(folder, speculate=True) == {"ok": True})
    running.until(Kind.MOVED, times=2)
    status = running.until_phase("ready")
    assert (status.mode, status.attempts) == ("zero_draft", 3)
    [row] = requests.get(f"{status.engine_address}/server_info", timeout=10).json()["internal_states"][0].values()
    assert (row[0]["epoch"], row[0]["steps"]) == (1, 0)
    until(lambda: routes(folder, "sidecar")[-1].engine == 3)
    told = [(route.engine, route.returning) for route in routes(folder, "sidecar")]
    between = [(2, True)] if comeback is Comeback.BESIDE else [(0, True)]
    assert told == [(1, False), (0, True), (2, False), *between, (3, False)]
    until(lambda: len(look(folder).keepers) == 2)  # the engine before has ended: one engine and the sidecar
    log = folder.engine_log.read_text()
    assert all(f"{number}| [" in log for number in (1, 2, 3)), "a line does not say whose it is"
    assert [path.name for path in sorted(folder.engines.iterdir())] == ["1", "2", "3"]


def test_an_engine_that_takes_no_command_does_not_return(folder, run) -> None:
    running = run(attempt(folder, "--no-knob"), attempt(folder, speculates=False))
    running.until(Kind.READY)
    ask(folder, speculate=False)
    running.until(Kind.MOVED)
    until(lambda: ask(folder, speculate=True) == {"ok": True})
    events = running.until(Kind.COMEBACK, times=2)
    assert "did not come back" in events[-1].text
    status = running.until_phase("ready")
    assert (status.mode, status.engine_address.startswith("http")) == ("autoregressive", True)
    assert look(folder).serves


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({}, "takes speculate (true or false) and why (a text)"),
        ({"speculate": 1, "why": "x"}, "takes speculate"),
        ({"speculate": True, "why": None}, "takes speculate"),
        ({"speculate": True, "why": "x", "more": 1}, "takes speculate"),
        ({"speculate": False, "why": "x", "hung": 1}, "without speculation also hung (true or false)"),
        ({"speculate": True, "why": "x", "hung": True}, "without speculation also hung (true or false)"),
        ({"speculate": True, "why": "x"}, "the engine that serves was started with speculation"),
    ],
)
def test_what_is_asked_wrongly_is_answered(folder, run, request_, said) -> None:
    running = run(*both(folder))
    running.until(Kind.READY)
    answer = asyncio.run(control.ask(folder, "restart", **request_))
    assert (answer["ok"], said in str(answer["why"])) == (False, True)


@pytest.mark.parametrize("moment", ["starting", "serving", "replacing", "returning", "in-place"])
def test_a_supervisor_killed_at_any_moment_leaves_nothing(folder, run, moment) -> None:
    slow = attempt(folder, "--silent")
    attempts = {"starting": (slow,), "replacing": (attempt(folder), attempt(folder, "--silent", speculates=False))}
    comeback = Comeback.IN_PLACE if moment == "in-place" else Comeback.BESIDE
    [port] = free_ports(1)
    services = (service(folder, "gateway", "--port", str(port)), service(folder, "sidecar"))
    running = run(*attempts.get(moment, both(folder)), services=services, port=port, comeback=comeback)
    if moment == "starting":
        running.until(Kind.PHASE)
    else:
        running.until(Kind.READY)
    if moment in ("replacing", "returning", "in-place"):
        os.kill(running.engine_pid(1), signal.SIGKILL)
        running.until(Kind.ATTEMPT, times=2)
    if moment in ("returning", "in-place"):
        running.until(Kind.MOVED)
        until(lambda: ask(folder, speculate=True) == {"ok": True})
        running.until(Kind.ATTEMPT, times=3)
    assert processes(folder)
    running.process.kill()
    running.process.wait()
    assert "supervisor: ended without a word (killed?)" in running.until(*ENDS)[-1].text
    until(lambda: not processes(folder))
    status = look(folder)
    assert (status.phase, status.address, status.keepers) == ("failed", "", ())


@pytest.mark.parametrize("moment", ["replacing", "returning", "in-place"])
def test_a_stop_during_a_move_ends_everything_soon(folder, run, moment) -> None:
    comeback = Comeback.IN_PLACE if moment == "in-place" else Comeback.BESIDE
    silent = moment == "replacing"
    second = attempt(folder, *(("--silent",) if silent else ()), speculates=False)
    running = run(
        attempt(folder), second, comeback=comeback, ready_seconds=600.0, services=(service(folder, "sidecar"),)
    )
    running.until(Kind.READY)
    os.kill(running.engine_pid(1), signal.SIGKILL)
    running.until(Kind.PHASE, times=5)
    if moment != "replacing":
        running.until(Kind.MOVED)
        until(lambda: ask(folder, speculate=True) == {"ok": True})
        running.until(Kind.COMEBACK)
    began = time.monotonic()
    assert stop(folder).kind is Kind.STOPPED
    assert time.monotonic() - began < DEADLINE_SECONDS / 2
    assert not processes(folder)


def test_requests_come_in_through_the_gateway_and_it_ends_first(folder, run) -> None:
    [port] = free_ports(1)
    gateway = service(folder, "gateway", "--port", str(port), "--drains", "0.5")
    running = run(*both(folder), services=(gateway, service(folder, "sidecar")), port=port, drain_seconds=30.0)
    running.until(Kind.READY)
    status = look(folder)
    assert status.address == f"http://127.0.0.1:{port}"
    assert status.engine_address not in ("", status.address)
    assert [route.engine for route in routes(folder, "gateway")] == [0, 1]
    pid = running.engine_pid(1, "launcher")
    asyncio.run(control.ask(folder, "stop"))
    until(lambda: "asked to end" in notes(folder, "gateway"))
    os.kill(pid, 0)  # the engine serves what the gateway still streams
    assert "asked to end" not in notes(folder, "sidecar")
    assert running.until(*ENDS)[-1].kind is Kind.STOPPED
    assert notes(folder, "gateway")[-1] == "ends"


def supervised_to_its_end(folder: Folder, gateway: Service, port: int) -> list[Event]:
    """A good engine behind such a gateway; every event up to the last."""

    async def whole() -> int:
        launch = launch_of(folder, both(folder), services=(gateway,), port=port)
        return await asyncio.wait_for(Supervisor(folder, launch).run(), DEADLINE_SECONDS)

    assert asyncio.run(whole()) == 3
    assert not processes(folder)
    return folder.events()


def test_behind_a_gateway_that_never_answers_nothing_is_called_ready_and_the_deployment_says_why(
    folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "_ANSWER_SECONDS", 0.5)
    [port] = free_ports(1)
    events = supervised_to_its_end(folder, service(folder, "gateway"), port)
    assert not texts(events, Kind.READY)
    assert events[-1].kind is Kind.FAILED
    assert events[-1].text.startswith(f"http://127.0.0.1:{port}: the gateway gives no healthy answer 0.5 s after")
    assert "[gateway.no-answer]" in events[-1].text
    assert events[-1].runbook == "runbooks/engine-lost.md"
    told = [route.engine for route in routes(folder, "gateway")]
    assert told == [0, 1, 0], "whoever waits there is not told that no engine will come"


def test_a_gateway_that_always_ends_ends_the_deployment_with_its_last_words(
    folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def soon(*, most: int, first_seconds: float, longest_seconds: float) -> BackOff:
        return BackOff(most=2, first_seconds=0.01, longest_seconds=0.01)

    monkeypatch.setattr(rooms, "BackOff", soon)
    [port] = free_ports(1)
    gateway = service(folder, "gateway", "--exit", "5", "--say", "OSError: address in use")
    events = supervised_to_its_end(folder, gateway, port)
    assert not texts(events, Kind.READY)
    assert events[-1].kind is Kind.FAILED
    assert 'gateway: ended with exit code 5, last words "OSError: address in use" after' in events[-1].text
    assert "it is not started again" in events[-1].text
    assert folder.log_of("gateway").stat().st_mode & 0o777 == 0o600


def test_a_stop_lets_an_engine_finish_that_was_finishing_for_another_to_take_its_place(folder, run) -> None:
    stand_in = attempt(folder, "--drains", "2", speculates=False)
    running = run(attempt(folder), stand_in, comeback=Comeback.IN_PLACE, drain_seconds=30.0)
    running.until(Kind.READY)
    assert ask(folder, speculate=False) == {"ok": True}
    running.until(Kind.MOVED)
    until(lambda: ask(folder, speculate=True) == {"ok": True})
    running.until(Kind.COMEBACK)
    assert stop(folder).kind is Kind.STOPPED
    assert "2| everything has finished" in folder.engine_log.read_text()
    assert texts(folder.events(), Kind.ATTEMPT)[2:] == []


def test_a_service_that_ends_is_started_again_and_told_where_things_stand(folder, run) -> None:
    running = run(*both(folder), services=(service(folder, "sidecar"),))
    running.until(Kind.READY)
    until(lambda: bool(routes(folder, "sidecar")))
    pid = int(notes(folder, "sidecar")[0].split()[1])
    os.kill(pid, signal.SIGKILL)
    until(lambda: len(routes(folder, "sidecar")) == 2)
    assert routes(folder, "sidecar")[1] == routes(folder, "sidecar")[0]
    assert "sidecar: ended with exit code 137 (SIGKILL)" in " ".join(texts(folder.events(), Kind.SERVICE))
    assert look(folder).serves
