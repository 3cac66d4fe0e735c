"""What a drill sees, on files that a deployment would have written."""

import asyncio
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from spec_toolkit.handover import Report, Role, encode_report, list_sha256, report_folder
from spec_toolkit.launch.deployment import Folder, Status, identify
from spec_toolkit.launch.events import Event, Kind
from spec_toolkit.prove.drills.outcome import Moment
from spec_toolkit.prove.drills.stage import DrillFailed, Stage
from spec_toolkit.sidecar.files import write_snapshot
from spec_toolkit.sidecar.records import Snapshot, Taken


def now() -> str:
    return datetime.now(UTC).isoformat()  # noqa: TID251 - what the writers of these files do


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "drilled")
    made.create()
    return made


@pytest.mark.parametrize(
    ("ago", "mode"),
    [
        pytest.param(2.0, "full", id="fresh"),
        pytest.param(60.0, "", id="old"),
        pytest.param(-60.0, "", id="yet-to-come"),
    ],
)
def test_a_snapshot_is_believed_by_the_age_its_machines_clock_gives_it(folder: Folder, ago: float, mode: str) -> None:
    wall_s = time.time() - ago  # noqa: TID251 - what the writer of this file does
    write_snapshot(
        folder,
        Snapshot(
            run="run-a",
            at=now(),
            at_s=wall_s + 3600,  # the policy's clock, after the machine's was set back
            wall_s=wall_s,
            mode="full",
            steps=3,
            since_s=0.0,
            signal="",
            held=False,
            why="",
            address="http://127.0.0.1:9",
        ),
    )
    assert Stage(folder, "http://127.0.0.1:9", {}, lambda _: None).mode() == mode


def test_what_supervisor_and_sidecar_write_meanwhile_becomes_the_timeline(folder: Folder) -> None:
    told: list[Moment] = []
    stage = Stage(folder, "http://127.0.0.1:9", {}, told.append)
    folder.append_event(Event(at=now(), elapsed_seconds=0, kind=Kind.READY, text="before it was looked at"))

    async def scene() -> None:
        async with stage.telling():
            await asyncio.sleep(0)  # the first look notes where the files end
            stage.strike("struck")
            folder.append_event(Event(at=now(), elapsed_seconds=1, kind=Kind.PHASE, text="a phase is not told"))
            folder.append_event(Event(at=now(), elapsed_seconds=1, kind=Kind.LOST, text="engine lost"))
            with folder.decisions_file.open("ab") as file:
                file.write(b'{"half": \n')
                for moved in (False, True):
                    line = Taken(
                        at=now(),
                        why=f"moved {moved}",
                        before="full",
                        rung="zero_draft",
                        signal="load_high",
                        moved=moved,
                        confirmed_ms=125.0 if moved else None,
                        rounds=2,
                    )
                    file.write(msgspec.json.encode(line) + b"\n")
            await stage.until("the decision", lambda: len(told) == 3, 10)

    asyncio.run(scene())
    assert [(moment.who, moment.text) for moment in told] == [
        ("drill", "struck"),
        ("supervisor", "engine lost"),
        ("sidecar", "moved True [all ranks 125 ms after the window, 2 rounds]"),
    ]
    outcome = stage.outcome("x", "")
    assert (outcome.slowest_fall_ms, outcome.slowest_fall_rounds) == (125.0, 2)


def test_what_does_not_come_is_told_with_the_time_it_had(folder: Folder) -> None:
    stage = Stage(folder, "http://127.0.0.1:9", {}, lambda _: None)
    with pytest.raises(DrillFailed, match=r"waiting for full: not within 0.01 s; the mode is unknown"):
        asyncio.run(stage.until_mode("full", 0.01))


def test_the_scheduler_is_the_one_that_reported_its_patches_and_lives(folder: Folder) -> None:
    stage = Stage(folder, "http://127.0.0.1:9", {}, lambda _: None)
    with pytest.raises(DrillFailed, match="0 schedulers live"):
        stage.scheduler()
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    for number, (role, pid) in enumerate(((Role.SCHEDULER, ended.pid), (Role.LAUNCHER, os.getpid())), start=1):
        _report(folder.engines / str(number) / "patches.json", role, pid)
    with pytest.raises(DrillFailed, match="0 schedulers live"):
        stage.scheduler()
    _report(folder.engines / str(3) / "patches.json", Role.SCHEDULER, os.getpid())
    assert stage.scheduler() == os.getpid()
    _report(folder.engines / str(4) / "patches.json", Role.SCHEDULER, os.getppid())
    with pytest.raises(DrillFailed, match="2 schedulers live"):
        stage.scheduler()


def _report(patch_list: Path, role: Role, pid: int) -> None:
    patch_list.parent.mkdir(parents=True, exist_ok=True)
    patch_list.write_bytes(b"[]")
    report = Report(role=role, ranks={}, pid=pid, list_sha256=list_sha256(b"[]"), applied=())
    report_folder(patch_list).mkdir(mode=0o700)
    (report_folder(patch_list) / f"{role.value}-{pid}.json").write_bytes(encode_report(report))


def test_a_sidecar_is_looked_for_in_the_sessions_of_this_deployment_alone(folder: Folder) -> None:
    stage = Stage(folder, "http://127.0.0.1:9", {}, lambda _: None)
    word = "spec_toolkit.sidecar.service"
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()', sys.argv[1]])"
    with subprocess.Popen([sys.executable, "-c", code, word], stdin=subprocess.PIPE, start_new_session=True) as leader:
        found = identify(leader.pid)
        assert found is not None
        folder.write_status(Status(name="drilled", recipe="r", recipe_sha256="sha256:0"))
        with pytest.raises(DrillFailed, match="0 sidecars run"):
            stage.sidecar()
        folder.write_status(Status(name="drilled", recipe="r", recipe_sha256="sha256:0", keepers=(found,)))
        asyncio.run(stage.until("the child", lambda: len(stage._sidecars()) == 1, 10))
        assert stage.sidecar() != leader.pid
        leader.communicate(b"\n", timeout=10)


def test_an_outcome_without_a_fallback_says_so(folder: Folder) -> None:
    stage = Stage(folder, "http://127.0.0.1:9", {}, lambda _: None)
    began = time.monotonic()
    stage.strike("struck")
    stage.is_back()
    outcome = stage.outcome("x", "")
    assert outcome.fallback_seconds is None
    assert outcome.rearmed_seconds is not None
    assert 0 <= outcome.rearmed_seconds <= time.monotonic() - began
