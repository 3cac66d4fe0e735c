"""The keeper: nothing it started outlives it, or whoever holds its lifeline."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from spec_toolkit.launch import keeper

DEADLINE_SECONDS = 15.0

# A process that starts a child of its own, which starts an orphan in a session of its own; each writes its process id.
TREE = """
import os, signal, subprocess, sys, time
from pathlib import Path
me, folder = sys.argv[1], Path(sys.argv[2])
if "{ignore}": signal.signal(signal.SIGTERM, signal.SIG_IGN)
if me == "root":
    subprocess.Popen([sys.executable, __file__, "child", str(folder)])
elif me == "child":
    subprocess.Popen([sys.executable, __file__, "orphan", str(folder)], start_new_session=True)
(folder / f"{{me}}.new").write_text(str(os.getpid()))
(folder / f"{{me}}.new").rename(folder / f"{{me}}.pid")
if me == "child": sys.exit(0)
if me == "root" and "{ends}":
    while not (folder / "orphan.pid").exists(): time.sleep(0.01)
    {ends}
time.sleep(600)
"""


@contextmanager
def kept(
    folder: Path, *, ignore: str = "", ends: str = "", grace: float = 5.0
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    script = folder / "tree.py"
    script.write_text(TREE.format(ignore=ignore, ends=ends))
    theirs, ours = os.pipe()
    command = [
        sys.executable,
        keeper.__file__,
        str(theirs),
        str(grace),
        "--",
        sys.executable,
        str(script),
        "root",
        str(folder),
    ]
    process = subprocess.Popen(command, pass_fds=(theirs,), start_new_session=True)
    os.close(theirs)
    try:
        yield process, ours
    finally:
        with suppress(OSError):
            os.close(ours)
        with suppress(subprocess.TimeoutExpired):
            process.wait(DEADLINE_SECONDS)
        process.kill()
        process.wait()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come"
        time.sleep(0.01)


def pid_of(folder: Path, who: str) -> int:
    until((folder / f"{who}.pid").exists)
    return int((folder / f"{who}.pid").read_text())


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_closed_lifeline_ends_the_whole_tree_orphans_in_their_own_session_too(tmp_path: Path) -> None:
    with kept(tmp_path) as (process, lifeline):
        pids = [pid_of(tmp_path, "root"), pid_of(tmp_path, "orphan")]
        os.close(lifeline)
        assert process.wait(DEADLINE_SECONDS) == 137
        until(lambda: not any(runs(pid) for pid in pids))


def test_an_engine_that_ends_takes_its_orphans_with_it_and_its_exit_code_is_passed_on(tmp_path: Path) -> None:
    with kept(tmp_path, ends="sys.exit(41)") as (process, _):
        orphan = pid_of(tmp_path, "orphan")
        assert process.wait(DEADLINE_SECONDS) == 41
        until(lambda: not runs(orphan))


def test_an_engine_ended_by_a_signal_is_told_as_128_plus_the_signal(tmp_path: Path) -> None:
    with kept(tmp_path, ends="os.kill(os.getpid(), signal.SIGKILL)") as (process, _):
        assert process.wait(DEADLINE_SECONDS) == 128 + signal.SIGKILL


def test_asked_to_stop_it_lets_the_engine_finish(tmp_path: Path) -> None:
    ends = (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); (folder / 'waits.pid').write_text('0'); time.sleep(600)"
    )
    with kept(tmp_path, ends=ends) as (process, _):
        pid_of(tmp_path, "waits")
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 7


def test_an_engine_that_does_not_listen_is_killed_after_its_grace(tmp_path: Path) -> None:
    with kept(tmp_path, ignore="yes", grace=0.3) as (process, _):
        pids = [pid_of(tmp_path, "root"), pid_of(tmp_path, "orphan")]
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 137
        until(lambda: not any(runs(pid) for pid in pids))


def test_a_lifeline_that_closes_during_the_grace_ends_it_at_once(tmp_path: Path) -> None:
    with kept(tmp_path, ignore="yes", grace=600.0) as (process, lifeline):
        pids = [pid_of(tmp_path, "root"), pid_of(tmp_path, "orphan")]
        process.terminate()
        os.close(lifeline)
        assert process.wait(DEADLINE_SECONDS) == 137
        until(lambda: not any(runs(pid) for pid in pids))


def test_signals_while_the_tree_is_ended_leave_nothing_of_it(tmp_path: Path) -> None:
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with kept(folder, ends="sys.exit(0)") as (process, _):
            orphan = pid_of(folder, "orphan")
            while process.poll() is None:
                process.terminate()
            until(lambda: not runs(orphan))  # noqa: B023 - called before the next turn


def test_the_first_process_dies_with_a_keeper_that_is_killed(tmp_path: Path) -> None:
    with kept(tmp_path) as (process, _):
        root = pid_of(tmp_path, "root")
        process.kill()
        until(lambda: not runs(root))
        orphan = pid_of(tmp_path, "orphan")
        os.kill(orphan, signal.SIGKILL)  # what nobody above was left to do


@pytest.mark.parametrize("arguments", [["5", "--", "x"], ["--", "x"]], ids=["no-grace", "nothing"])
def test_wrong_arguments_end_it_without_starting_anything(arguments: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, keeper.__file__, *arguments], capture_output=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert ended.returncode != 0
