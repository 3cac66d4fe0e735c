"""The fork-after-import start against the stock launcher: same answers, sooner, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from spec_toolkit.handover import report_folder
from spec_toolkit.launch.nursery import engine_environment
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.shipped import rehearsal
from tests.rehearsal.rehearsed import arguments, ask, greedy, patched, wait_ready

pytestmark = pytest.mark.engine

SERVE = [sys.executable, str(rehearsal() / "serve.py")]
STOCK = [sys.executable, "-m", "sglang.launch_server"]


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    ready_seconds: float
    cpu_seconds: float  # of all its processes, until it was ready
    folder: Path

    def tree(self) -> list[psutil.Process]:
        main = psutil.Process(self.process.pid)
        return [main, *main.children(recursive=True)]

    def reports(self) -> list[str]:
        return sorted(report.stem for report in report_folder(self.folder / "patches.json").iterdir())


@contextmanager
def served(launcher: list[str], folder: Path, *more: str, **environ: str) -> Iterator[Server]:
    port, log = free_engine_port(), folder / "engine.log"
    environment = {**os.environ, **engine_environment(), **patched(folder), **environ}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*launcher, *arguments(port, *more)], env=environment, cwd=folder, stdout=output, stderr=output
        )
    server = Server(process, port, 0.0, 0.0, folder)
    family: list[psutil.Process] = []
    try:
        server.ready_seconds = wait_ready(port, process.poll, log)
        family = server.tree()
        server.cpu_seconds = sum(sum(one.cpu_times()[:2]) for one in family)
        yield server
    finally:
        if not family and process.poll() is None:
            family = server.tree()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(90)
        finally:
            for one in psutil.wait_procs(family, timeout=5)[1]:
                one.kill()


def gone(family: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those of the family that still run after `seconds`."""
    deadline = time.monotonic() + seconds
    left = family
    while left and time.monotonic() < deadline:
        left = [one for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
        time.sleep(0.05)
    return left


@pytest.mark.matrix
def test_it_costs_at_most_sixty_percent_of_the_stock_launchers_processor_time(tmp_path, capsys):
    """Processor time, because a neighbour's load may fall on one of the two; the wall times are printed beside it."""
    prompt, seconds, outputs = [5, 6, 7, 8, 9], {}, {}
    for name, launcher in (("stock", STOCK), ("serve", SERVE)):
        folder = tmp_path / name
        folder.mkdir()
        with served(launcher, folder) as server:
            seconds[name], outputs[name] = server.cpu_seconds, greedy(server.port, prompt)[0]
            with capsys.disabled():
                sys.stdout.write(
                    f"\n  {name}: ready after {server.ready_seconds:.1f} s, {server.cpu_seconds:.1f} CPU s\n"
                )
            assert {"launcher", "scheduler", "detokenizer"} <= {report.split("-")[0] for report in server.reports()}
    assert outputs["serve"] == outputs["stock"]
    assert seconds["serve"] <= 0.6 * seconds["stock"], seconds


def test_it_ends_like_the_stock_launcher_and_leaves_no_process(tmp_path):
    with served(SERVE, tmp_path) as server:
        family = server.tree()
        assert len(family) >= 3
        # The schedulers' counters arrive through files that each process opens after the fork.
        greedy(server.port, [5, 6, 7, 8, 9])
        assert b"sglang:spec_accept_length{" in ask(server.port, "GET", "/metrics")[1]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(90) == 0
        assert gone(family, 5) == []


def test_a_killed_launcher_takes_every_process_with_it(tmp_path):
    # 'taskset'-like core lists, one per rank: without them the ranks would fight over the same cores.
    layout = ["--tp", "2", "--dp", "2", "--enable-dp-attention"]
    with served(SERVE, tmp_path, *layout, SGLANG_CPU_OMP_THREADS_BIND="0|1") as server:
        family = server.tree()
        assert {"dp_controller", "scheduler"} <= {report.split("-")[0] for report in server.reports()}
        assert len([report for report in server.reports() if report.startswith("scheduler")]) == 2
        assert greedy(server.port, [5, 6, 7, 8, 9])[1]["spec_verify_ct"] > 0
        server.process.send_signal(signal.SIGKILL)
        assert gone(family, 5) == []
