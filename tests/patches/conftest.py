"""Real engines for these tests: one process imports SGLang, each test forks an engine from it."""

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.engine.patches import choose_patches, installed_engine, patches_folder, read_patches, resolve
from spec_toolkit.handover import LIST_VARIABLE, HandedHook, encode_list
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.shipped import rehearsal, shipped

ADMIN_KEY = "an-admin-key-nobody-may-repeat-31"
READY_SECONDS = 120.0

ARGUMENTS = """
    --device cpu --attention-backend intel_amx --dtype float32 --mem-fraction-static 0.1 --max-total-tokens 4096
    --max-running-requests 8 --skip-server-warmup --disable-cuda-graph --enable-metrics --host 127.0.0.1
    --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
""".split()  # noqa: SIM905 - a command line is read as one


@dataclass
class Engine:
    """One server forked from the nursery, in a folder of its own."""

    nursery: Nursery
    pid: int
    port: int
    folder: Path
    admin_key: str = ADMIN_KEY

    @property
    def patch_list(self) -> Path:
        return self.folder / "patches.json"

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def messages(self) -> list[str]:
        """What our plugin said, in any of the engine's processes."""
        return [
            line.removeprefix("spec-toolkit: ") for line in self.log().splitlines() if line.startswith("spec-toolkit: ")
        ]

    def wait(self) -> int:
        return int(self.nursery.wait(self.pid, READY_SECONDS))

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            assert self.nursery.exit_code(self.pid) is None, self.log()[-3000:]
            status, _ = self.get("/health_generate") if "fired up" in self.log() else (0, b"")
            if status == 200:
                return
            time.sleep(0.2)
        raise AssertionError(f"not ready: {self.log()[-3000:]}")

    def get(self, path: str) -> tuple[int, bytes]:
        return self._ask(urllib.request.Request(self._address(path)))  # noqa: S310 - our own loopback address

    def post(self, path: str, body: Mapping[str, object]) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        return self._ask(urllib.request.Request(self._address(path), json.dumps(body).encode(), headers))  # noqa: S310 - our own loopback address

    def _address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def _ask(self, request: urllib.request.Request) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own loopback address
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def stop(self) -> None:
        if self.nursery.exit_code(self.pid) is None:
            self.nursery.kill(self.pid, signal.SIGKILL)  # SIGTERM drains for seconds
            self.wait()


@pytest.fixture(scope="session")
def hooks() -> tuple[HandedHook, ...]:
    """What a rehearsal of the DeepSeek family is handed."""
    patches = read_patches(patches_folder(shipped("patches"), installed_engine() or ""))
    return resolve(choose_patches(patches, family=Family.DEEPSEEK, rehearsal=True))


@pytest.fixture
def start(nursery: Nursery, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Start an engine with the list of these hooks; every engine is stopped after the test."""
    started: list[Engine] = []

    def start_one(handed: tuple[HandedHook, ...], *more: str) -> Engine:
        folder = tmp_path / f"engine-{len(started)}"
        folder.mkdir(mode=0o700)
        config = folder / "engine.yaml"
        config.touch(mode=0o600)
        config.write_text(f"admin-api-key: {ADMIN_KEY}\n")
        (folder / "patches.json").write_bytes(encode_list(handed))
        port = free_engine_port()
        model = rehearsal() / "models" / "deepseek_v3_tiny"
        argv = ["--config", str(config), *ARGUMENTS, "--model-path", str(model), "--port", str(port), *more]
        environment = {LIST_VARIABLE: str(folder / "patches.json")}
        pid = nursery.spawn(argv, environment, folder / "log")
        started.append(Engine(nursery, pid, port, folder))
        return started[-1]

    yield start_one
    for engine in started:
        engine.stop()
