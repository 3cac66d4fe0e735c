"""The supervisor against an engine that misbehaves on purpose: what it tries, what it says, and that it leaves nothing."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from spec_toolkit.launch import control
from spec_toolkit.launch.deployment import Keeper, Status, identify
from spec_toolkit.launch.ending import follow, look, stop
from spec_toolkit.launch.events import ENDS, Event, Kind
from tests.launch.supervised import DEADLINE_SECONDS, KEY, attempt, processes, texts

pytestmark = pytest.mark.slow  # real processes, each with its own imports


def test_a_good_start_is_checked_before_it_is_called_ready(folder, run) -> None:
    running = run(attempt(folder))
    events = running.until(Kind.READY)
    assert [e.phase for e in events if e.kind is Kind.PHASE] == ["arguments resolved", "weights", "KV pool", "warm-up"]
    assert texts(events, Kind.CHECKED) == [
        "3 engine processes run patched: redact-keys",
        "the admin key is in nothing the engine says of itself",
        "speculating: 32 tokens in 10 rounds, emitted length 3.10",
    ]
    status = look(folder)
    assert (status.phase, status.mode, status.emitted_length) == ("ready", "full", 3.1)
    assert stop(folder).kind is Kind.STOPPED
    assert running.process.wait(DEADLINE_SECONDS) == 0


def test_an_engine_that_does_not_start_is_tried_once_more_and_then_without_speculation(folder, run) -> None:
    running = run(
        attempt(folder, "--exit", "1", "--say", "ValueError: no such head"),
        attempt(folder, "--exit", "1", "--say", "ValueError: no such head"),
        attempt(folder, speculates=False),
    )
    events = running.until(Kind.READY)
    assert [e.kind for e in events if e.kind in (Kind.ATTEMPT, Kind.RETRY, Kind.FALLBACK)] == [
        Kind.ATTEMPT,
        Kind.RETRY,
        Kind.ATTEMPT,
        Kind.FALLBACK,
        Kind.ATTEMPT,
    ]
    status = look(folder)
    assert (status.mode, status.attempts, status.emitted_length) == ("autoregressive", 3, None)
    assert "speculation could not start: engine: exit code 1 after" in status.reason
    assert 'Last words: "ValueError: no such head". See runbooks/engine-does-not-start.md' in status.reason


def test_there_is_no_crash_loop(folder, run) -> None:
    running = run(*[attempt(folder, "--exit", "3")] * 2)
    events = running.until(*ENDS)
    assert len(texts(events, Kind.ATTEMPT)) == 2
    assert events[-1].kind is Kind.FAILED
    assert events[-1].exit_code == 3
    assert running.process.wait(DEADLINE_SECONDS) == 3


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        pytest.param(
            ("--exit", "78", "--say", "spec-toolkit: t: changed [plugin.x]"),
            "spec-toolkit: t: changed",
            id="a-patch-refuses",
        ),
        pytest.param(("--no-report",), "scheduler-pp0-tp0: has not reported its patches", id="a-rank-without-its-list"),
        pytest.param(("--tell-key",), "engine /server_info: answers with the admin key", id="the-key-is-told"),
    ],
)
def test_what_another_attempt_cannot_mend_ends_the_deployment_at_once(folder, run, behaviour, said) -> None:
    events = run(attempt(folder, *behaviour), attempt(folder, speculates=False)).until(*ENDS)
    assert len(texts(events, Kind.ATTEMPT)) == 1
    assert said in events[-1].text
    assert KEY not in events[-1].text


def test_an_engine_that_does_not_speculate_has_not_started(folder, run) -> None:
    events = run(attempt(folder, "--no-speculation")).until(*ENDS)
    assert "the engine was started to speculate and does not" in events[-1].text


def test_a_start_that_takes_too_long_is_ended(folder, run) -> None:
    events = run(attempt(folder, "--silent"), ready_seconds=1.0).until(*ENDS)
    assert "it was not ready after 1 s" in events[-1].text


def test_a_key_in_the_log_is_struck_and_ends_the_engine(folder, run) -> None:
    events = run(attempt(folder, "--log-key-later")).until(*ENDS)
    assert "wrote its admin key to its log" in events[-1].text
    log = folder.engine_log.read_text()
    assert "admin_api_key='<redacted>'" in log
    assert KEY not in log


def test_a_killed_supervisor_takes_the_engine_with_it_and_the_next_look_says_so(folder, run) -> None:
    running = run(attempt(folder))
    running.until(Kind.READY)
    assert processes(folder)
    running.process.kill()
    running.process.wait()
    last = running.until(*ENDS)[-1]
    assert "supervisor: ended without a word (killed?)" in last.text
    assert look(folder).phase == "failed"
    deadline = time.monotonic() + DEADLINE_SECONDS
    while processes(folder):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_leash_of_a_command_that_died_ends_the_deployment(folder, run) -> None:
    running = run(attempt(folder))
    running.until(Kind.READY)
    os.close(running.leash)
    running.leash = -1
    assert running.until(*ENDS)[-1].text == "the command that started it ended"


def test_a_released_leash_does_not(folder, run) -> None:
    running = run(attempt(folder))
    running.until(Kind.READY)
    os.write(running.leash, b".")
    os.close(running.leash)
    running.leash = -1
    answer = asyncio.run(control.ask(folder, "nonsense"))  # it listens, so it lives
    assert answer == {"ok": False, "why": "no verb 'nonsense'; known: restart, stop"}
    assert stop(folder).kind is Kind.STOPPED


def test_stop_during_the_start_does_not_wait_for_it(folder, run) -> None:
    running = run(attempt(folder, "--silent"), ready_seconds=600.0, drain_seconds=600.0)
    running.until(Kind.PHASE)
    began = time.monotonic()
    assert stop(folder).kind is Kind.STOPPED
    assert time.monotonic() - began < DEADLINE_SECONDS


def test_an_engine_that_ignores_the_request_to_stop_is_killed_after_the_drain_time(folder, run) -> None:
    running = run(attempt(folder, "--deaf"), drain_seconds=0.5)
    running.until(Kind.READY)
    assert stop(folder).kind is Kind.STOPPED


def test_asked_twice_it_does_not_wait(folder, run) -> None:
    running = run(attempt(folder, "--deaf"), drain_seconds=600.0)
    running.until(Kind.READY)
    asyncio.run(control.ask(folder, "stop"))
    running.until(Kind.STOPPING)
    began = time.monotonic()
    os.close(running.leash)  # as a second Ctrl-C does
    running.leash = -1
    assert running.until(*ENDS)[-1].kind is Kind.STOPPED
    assert time.monotonic() - began < DEADLINE_SECONDS


def test_a_keeper_that_is_killed_takes_nothing_with_it_into_hiding(folder, run) -> None:
    running = run(attempt(folder))
    running.until(Kind.READY)
    [keeper] = look(folder).keepers
    first = processes(folder)
    os.kill(keeper.pid, signal.SIGKILL)
    running.until(Kind.LOST)
    assert not {*first} & {*processes(folder)}


def test_a_number_that_belongs_to_somebody_else_by_now_is_left_alone(folder) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        mine = identify(stranger.pid)
        assert mine is not None
        for keeper in (
            Keeper(pid=mine.pid, started=mine.started - 1, boot=mine.boot),  # an earlier process of this number
            Keeper(pid=mine.pid, started=mine.started, boot="an-earlier-boot"),
        ):
            folder.write_status(
                Status(name="d", recipe="r", recipe_sha256="s", run="1", phase="ready", keepers=(keeper,))
            )
            assert look(folder).phase == "failed"
            assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_whoever_follows_a_run_that_was_replaced_does_not_bury_the_next(folder) -> None:
    def status(run: str) -> Status:
        return Status(name="d", recipe="r", recipe_sha256="s", run=run, phase="starting")

    folder.write_status(status("first"))
    owner = folder.own()
    followed = follow(folder)
    folder.append_event(Event(at="", elapsed_seconds=0.0, kind=Kind.ATTEMPT, text="first"))
    assert next(followed).text == "first"
    os.close(owner)  # the first run's supervisor is gone, and the next one has not come up
    folder.clear()
    folder.write_status(status("second"))
    assert next(followed).text == "replaced by another command"
    assert folder.status() == status("second")
    assert folder.events() == []


def test_an_earlier_attempts_report_says_nothing_about_the_next(folder, run) -> None:
    events = run(attempt(folder, "--no-speculation"), attempt(folder, "--no-report")).until(*ENDS)
    assert "scheduler-pp0-tp0: has not reported its patches" in events[-1].text


def test_an_engine_that_breaks_off_during_the_checks_is_told_with_its_exit_code(folder, run) -> None:
    events = run(attempt(folder, "--break-off")).until(*ENDS)
    assert "engine: exit code 9 after" in events[-1].text
    assert "before it was ready" in events[-1].text


def test_a_fault_of_its_own_is_written_down(folder, run) -> None:
    events = run(attempt(folder, "--no-meta")).until(*ENDS)
    assert events[-1].text.startswith("supervisor: KeyError: 'meta_info'")
    assert look(folder).phase == "failed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_supervisor_is_a_request_to_stop(folder, run, number) -> None:
    running = run(attempt(folder))
    running.until(Kind.READY)
    running.process.send_signal(number)
    assert running.until(*ENDS)[-1].text == f"{number.name} to the supervisor"
    assert running.process.wait(DEADLINE_SECONDS) == 0


def test_only_one_supervisor_owns_a_deployment(folder, run) -> None:
    running = run(attempt(folder))
    running.until(Kind.READY)
    command = [sys.executable, "-P", "-m", "spec_toolkit.launch.supervisor", str(folder.path), "0"]
    second = subprocess.run(
        command, capture_output=True, timeout=DEADLINE_SECONDS, stdin=subprocess.DEVNULL, check=False
    )
    assert "BlockingIOError" in second.stderr.decode()
    assert look(folder).phase == "ready"
