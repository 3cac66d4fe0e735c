"""The sidecar's own process against a real engine: what it does to it, and what people see of that."""

import asyncio
import os
import signal
import sys
import time

import psutil
import pytest

from spec_toolkit.engine.patch_reports import read_reports
from spec_toolkit.handover import Role
from spec_toolkit.launch import control
from spec_toolkit.launch.deployment import write_json
from spec_toolkit.terms import KnobMode, Mode
from tests.sidecar.deployed import Deployed, engine_with_few_places, quick_limits, streams

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def engine(nursery, tmp_path_factory):
    with engine_with_few_places(nursery, tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.fixture
def deployed(engine, tmp_path):
    made = Deployed(tmp_path, engine.address)
    made.write()
    made.set_full()
    owned = made.folder.own()  # it runs, for whoever asks
    yield made
    os.close(owned)


def test_load_lowers_the_steps_and_then_drafts_nothing_and_both_come_back(deployed):
    with deployed.sidecar():
        deployed.wait_for_mode("full")
        with streams(deployed.address, 8):
            deployed.wait_for_mode("reduced(1)")
            deployed.wait_for_mode("zero_draft")
            assert {rank.steps for rank in deployed.ranks()} == {0}
        deployed.wait_for_mode("full")
    assert {(rank.mode, rank.steps) for rank in deployed.ranks()} == {(KnobMode.FULL, 3)}
    moves = [line for line in deployed.decisions() if line.moved]
    assert deployed.moves() == [
        "full -> reduced(1) load_high",
        "reduced(1) -> zero_draft load_high",
        "zero_draft -> reduced(1) profit_possible",
        "reduced(1) -> full profit_possible",
    ]
    for line in moves:
        sys.stdout.write(
            f"\n{line.why}: on every rank {line.confirmed_ms:.0f} ms and {line.rounds} rounds after the window"
        )
        assert line.confirmed_ms is not None
        assert line.rounds is not None
    lowering = moves[:2]
    assert all("queue depth at least" in line.why for line in lowering)


def test_limits_are_read_again_and_a_bad_file_keeps_the_old_ones(deployed):
    with deployed.sidecar():
        deployed.wait_for_mode("full")
        write_json(deployed.folder.limits, quick_limits(modes=(Mode.REDUCED, Mode.ZERO_DRAFT, Mode.AUTOREGRESSIVE)))
        deployed.wait_for_mode("reduced(1)")
        deployed.folder.limits.write_text('{"identity": "engine-test", "steps": [1], "modes": []}')
        bad = deployed.wait("the bad file is told", lambda seen: bool(seen.limits_problem))
        assert "candidates ascend from 0" in bad.limits_problem
        assert "what was in force stays" in bad.limits_problem
        first = time.monotonic()
        while time.monotonic() < first + 2.5:
            assert deployed.snapshot().mode == "reduced(1)"
            time.sleep(0.2)
        assert deployed.log().count("candidates ascend from 0") == 1
        write_json(deployed.folder.limits, quick_limits())
        good = deployed.wait_for_mode("full")
        assert good.limits_problem == ""


def test_a_person_holds_a_rung_and_releases_it(deployed):
    with deployed.sidecar():
        deployed.wait_for_mode("full")
        wrong = deployed.command("hold", deployed.folder.name, "reduced(2)")
        assert wrong.returncode == 2
        assert "It has autoregressive, zero_draft, reduced(1), full." in wrong.stderr
        assert not deployed.folder.hold.exists()
        assert deployed.command("hold", deployed.folder.name, "zero_draft").returncode == 0
        seen = deployed.wait_for_mode("zero_draft")
        assert seen.held
        assert deployed.ranks()[0].steps == 0
        shown = deployed.command("status", deployed.folder.name).stdout
        assert "zero_draft" in shown
        assert "held" in shown
        assert deployed.command("release", deployed.folder.name).returncode == 0
        deployed.wait_for_mode("full")
    assert deployed.moves()[0] == "full -> zero_draft held"


def test_a_sidecar_killed_at_once_leaves_the_engine_and_the_next_carries_on(deployed):
    with deployed.sidecar() as first:
        deployed.wait_for_mode("full")
        deployed.command("hold", deployed.folder.name, "reduced(1)")
        deployed.wait_for_mode("reduced(1)")
        before = deployed.carried()
        first.kill()
        first.wait(10)
    assert deployed.ranks()[0].steps == 1
    epoch = deployed.ranks()[0].epoch
    deployed.folder.sidecar_snapshot.unlink()
    with deployed.sidecar():
        seen = deployed.wait_for_mode("reduced(1)")
        assert seen.held
        assert seen.since_s == before.state.since_s
    assert deployed.ranks()[0].epoch == epoch, "nothing had to be commanded"
    assert deployed.moves() == ["full -> reduced(1) held"]


def test_a_command_the_engine_refuses_is_told_and_the_mode_stays(deployed):
    write_json(deployed.folder.limits, quick_limits(steps=(0, 2, 3)))
    with deployed.sidecar():
        deployed.wait_for_mode("full")
        deployed.command("hold", deployed.folder.name, "reduced(2)")
        seen = deployed.wait("the refusal is told", lambda seen: bool(seen.act_problem))
        assert "asked for reduced(2), the engine still reports full" in seen.act_problem
        assert "unknown_steps" in seen.act_problem
        assert "Mode stays full. [act.not-taken]" in seen.act_problem
        assert seen.mode == "full"
    assert deployed.moves() == []


@pytest.mark.parametrize("how", ["its standard input closes", "SIGTERM"])
def test_it_ends_within_a_second_and_leaves_the_engine_as_it_is(deployed, how):
    with deployed.sidecar() as sidecar:
        deployed.wait_for_mode("full")
        began = time.monotonic()
        if how == "SIGTERM":
            sidecar.send_signal(signal.SIGTERM)
        else:
            sidecar.stdin.close()
        assert sidecar.wait(10) == 0
        seconds = time.monotonic() - began
    sys.stdout.write(f"\n{how}: ended after {seconds:.2f} s")
    assert seconds < 2, "twice the promise, on a busy machine"
    assert deployed.ranks()[0].steps == 3


def _scheduler(engine) -> psutil.Process:
    reports = read_reports(engine.folder / "patches.json")
    [pid] = [report.pid for report in reports if report.role is Role.SCHEDULER]
    return psutil.Process(pid)


async def _asked_of_the_supervisor(deployed, sidecar_hangs_until: float) -> dict[str, object]:
    asked: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()

    def handle(verb, arguments):
        if not asked.done():
            asked.set_result({"do": verb, **arguments})
        return {"ok": True}

    async with control.listening(deployed.folder, handle):
        return await asyncio.wait_for(asked, sidecar_hangs_until)


def test_an_engine_that_hangs_is_given_up_through_its_supervisor(deployed, engine):
    deployed.write(hang_seconds=4.0)
    with deployed.sidecar():
        deployed.wait_for_mode("full")
        scheduler = _scheduler(engine)
        scheduler.suspend()
        try:
            began = time.monotonic()
            asked = asyncio.run(_asked_of_the_supervisor(deployed, 30))
            sys.stdout.write(f"\nhung for {time.monotonic() - began:.1f} s until the supervisor was asked, limit 4")
            seen = deployed.wait_for_mode("autoregressive")
        finally:
            scheduler.resume()
    assert asked["do"] == "restart"
    assert asked["speculate"] is False
    assert "no rank of engine 1 has answered" in str(asked["why"])
    assert seen.signal == "engine_lost"
