"""Engines for the matrix: one family at a depth, schedule, layout and rule of acceptance, with faults planted where asked."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

from spec_toolkit.engine import names
from spec_toolkit.engine.loads import LOADS_PATH
from spec_toolkit.engine.patches import choose_patches, patches_folder, read_patches, resolve
from spec_toolkit.handover import HandedHook, encode_list
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.shipped import shipped
from tests.rehearsal.families import TinyFamily
from tests.rehearsal.rehearsed import arguments, patched, wait_ready

IDLE_SECONDS = 30.0

LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "tp1": (),
    "tp2": ("--tp", "2"),
    "attention-dp": ("--tp", "2", "--dp", "2", "--enable-dp-attention"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How one engine is started; 0 steps: it does not speculate."""

    num_steps: int
    overlap: bool = True
    layout: str = "tp1"
    rejection: bool = False

    def arguments(self) -> list[str]:
        found = [*LAYOUTS[self.layout]]
        found += [] if self.overlap else ["--disable-overlap-schedule"]
        found += ["--speculative-use-rejection-sampling"] if self.rejection else []
        return found


# Without overlap: with it the engine counts penalties a token late, and there is no law to hold drafts to.
TARGET_ALONE = Shape(num_steps=0, overlap=False)


@dataclass(frozen=True, slots=True)
class Engine:
    address: str
    pid: int
    family: TinyFamily
    shape: Shape

    def cpu_seconds(self) -> float:
        every = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in every)

    def flush(self) -> None:
        """Empty the prefix cache; the engine refuses while it works."""
        deadline = time.monotonic() + IDLE_SECONDS
        while requests.post(f"{self.address}/flush_cache", timeout=30).status_code != 200:
            assert time.monotonic() < deadline, "the engine did not come to rest"
            time.sleep(0.05)

    def used_tokens(self) -> int:
        """Of the pools of all ranks, once nothing runs: what requests hold, the prefix cache left out."""
        deadline = time.monotonic() + IDLE_SECONDS
        while True:
            ranks = requests.get(f"{self.address}{LOADS_PATH}", timeout=30).json()["loads"]
            if not any(rank["num_running_reqs"] or rank["num_waiting_reqs"] for rank in ranks):
                return sum(rank["num_used_tokens"] for rank in ranks)
            assert time.monotonic() < deadline, "requests that were dropped still run"
            time.sleep(0.05)


@contextmanager
def started(
    nursery: Nursery,
    folder: Path,
    family: TinyFamily,
    shape: Shape,
    *,
    model: Path | None = None,
    planted: Sequence[HandedHook] = (),
    without: str = "",
) -> Iterator[Engine]:
    """`model`: a copy of the target's folder; `planted`: hooks that break something; `without`: a patch that is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = patched(folder, family.patches)
    if planted or without:
        every = [patch for patch in read_patches(patches_folder(shipped("patches"), "0.5.23")) if patch.id != without]
        hooks = resolve(choose_patches(every, family=family.patches, rehearsal=True))
        (folder / "patches.json").write_bytes(encode_list((*hooks, *planted)))
    if shape.layout != "tp1":
        environment[names.CPU_CORES_OF_RANKS] = "0|1"
    port, log = free_engine_port(), folder / "engine.log"
    argv = arguments(
        port, "--max-total-tokens", "32768", "--max-running-requests", "64", "--random-seed", "0", "--sleep-on-idle",
        *family.model_arguments(model or family.folder, drafts=shape.num_steps > 0), *shape.arguments(),
        num_steps=shape.num_steps, num_draft_tokens=shape.num_steps + 1,
    )  # fmt: skip
    pid = nursery.spawn(argv, environment, log)
    try:
        wait_ready(port, lambda: nursery.exit_code(pid), log)
        yield Engine(f"http://127.0.0.1:{port}", pid, family, shape)
    finally:
        if nursery.exit_code(pid) is None:
            nursery.kill(pid, 9)
            nursery.wait(pid, 30)
