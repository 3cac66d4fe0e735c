"""A deployment as the sidecar sees it, without its supervisor: a folder, a real engine, and the sidecar's own process on a pipe."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.ranks import RankState
from spec_toolkit.launch.deployment import Folder, Status, write_json, write_private
from spec_toolkit.launch.forked import Forked, forked, wait_until_ready
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.record import Front, Launch
from spec_toolkit.launch.route import Route, encode_route
from spec_toolkit.planning.limits import Limits
from spec_toolkit.recipe.load import LoadedRecipe
from spec_toolkit.sidecar.records import Carried, Snapshot, Taken
from spec_toolkit.terms import Comeback, KnobMode, Mode
from tests.engine.serving import ADMIN_KEY, launch_spec, rehearsal_recipe

NAME = "sidecar-test"
RUNNING = 4  # the engine's admission cap: one more waits
PATIENCE_SECONDS = 40.0  # for what takes two on a quiet machine
EVERY_MODE = (Mode.FULL, Mode.REDUCED, Mode.ZERO_DRAFT, Mode.AUTOREGRESSIVE)


def quick_limits(**changed: Any) -> Limits:
    """Windows of a second, a move every two."""
    chosen: dict[str, Any] = {
        "identity": "engine-test",
        "steps": (0, 1, 3),
        "modes": EVERY_MODE,
        "dwell_seconds": 2.0,
        "window_seconds": 1.0,
        "min_rounds": 10,
        "queue_high": 2,
        "probe_seconds": 2.0,
        "probe_share": 1.0,
        "cool_down_seconds": 3.0,
        "crash_cool_down_seconds": 3.0,
        "back_off_maximum_seconds": 60.0,
    }
    return Limits(**{**chosen, **changed})


@contextmanager
def engine_with_few_places(nursery: Nursery, folder: Path) -> Iterator[Forked]:
    """The rehearsal, with an admission cap that a handful of streams exceeds."""
    loaded = rehearsal_recipe()
    capped = msgspec.structs.replace(loaded.recipe.limits, max_running_requests=RUNNING)
    recipe = msgspec.structs.replace(loaded.recipe, limits=capped)
    loaded = LoadedRecipe(recipe=recipe, path=loaded.path, text=loaded.text, sha256=loaded.sha256, lines=loaded.lines)
    spec = launch_spec(folder, loaded, speculate=True)
    with forked(nursery, folder, spec) as engine:
        wait_until_ready(nursery, engine)
        yield engine


class Deployed:
    """A deployment's folder under a state folder of its own, and a sidecar to start and end."""

    def __init__(self, state: Path, address: str) -> None:
        self.state = state
        self.address = address
        self.folder = Folder(state / "spec-toolkit" / "deployments" / NAME)
        self.folder.create()
        self._epoch = 0

    def write(self, *, hang_seconds: float = 40.0, limits: Limits | None = None) -> None:
        launch = Launch(
            status=Status(name=NAME, recipe="r.yaml", recipe_sha256="0", run="run-a"),
            attempts=(),
            tokenizer=None,
            ready_seconds=60.0,
            drain_seconds=5.0,
            front=Front(
                port=1,
                max_running_requests=4,
                max_waiting_requests=4,
                resume_deadline_seconds=10.0,
                context_tokens=4096,
            ),
            comeback=Comeback.BESIDE,
            hang_seconds=hang_seconds,
        )
        write_json(self.folder.launch, launch)
        self.folder.write_status(launch.status)
        write_private(self.folder.admin_key, f"{ADMIN_KEY}\n".encode())
        write_json(self.folder.limits, limits or quick_limits())
        for file in (
            self.folder.hold,
            self.folder.policy_state,
            self.folder.decisions_file,
            self.folder.sidecar_snapshot,
        ):
            file.unlink(missing_ok=True)

    @contextmanager
    def sidecar(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Started and told where the engine is; ended by the closing of its standard input."""
        with (self.folder.path / "sidecar.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "spec_toolkit.sidecar.service", str(self.folder.path)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        assert process.stdin is not None
        try:
            process.stdin.write(encode_route(self.route()))
            process.stdin.flush()
            yield process
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(10)
            finally:
                process.kill()
                process.wait(10)

    def route(self) -> Route:
        return Route(generation=1, address=self.address, engine=1, speculates=True, steps=3)

    def snapshot(self) -> Snapshot:
        return msgspec.json.decode(self.folder.sidecar_snapshot.read_bytes(), type=Snapshot)

    def carried(self) -> Carried:
        return msgspec.json.decode(self.folder.policy_state.read_bytes(), type=Carried)

    def decisions(self) -> list[Taken]:
        lines = self.folder.decisions_file.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Taken) for line in lines]

    def moves(self) -> list[str]:
        return [f"{line.before} -> {line.rung} {line.signal}".strip() for line in self.decisions() if line.moved]

    def log(self) -> str:
        return (self.folder.path / "sidecar.log").read_text()

    def wait(self, what: str, is_so: Callable[[Snapshot], bool], seconds: float = PATIENCE_SECONDS) -> Snapshot:
        """Until the snapshot says so."""
        deadline, seen = time.monotonic() + seconds, None
        while time.monotonic() < deadline:
            if self.folder.sidecar_snapshot.exists() and is_so(seen := self.snapshot()):
                return seen
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds:g} s: {what}; {seen}\n{self.log()[-3000:]}")

    def wait_for_mode(self, mode: str, seconds: float = PATIENCE_SECONDS) -> Snapshot:
        return self.wait(f"mode {mode}", lambda seen: seen.mode == mode, seconds)

    def ranks(self) -> tuple[RankState, ...]:
        return asyncio.run(self._ranks())

    async def _ranks(self) -> tuple[RankState, ...]:
        async with EngineClient(self.address, admin_key=ADMIN_KEY) as engine:
            return await engine.ranks()

    def set_full(self) -> None:
        """The engine as it starts."""
        asyncio.run(self._command(KnobMode.FULL, 3))

    async def _command(self, mode: KnobMode, steps: int) -> None:
        async with EngineClient(self.address, admin_key=ADMIN_KEY) as engine:
            epoch = max(rank.epoch for rank in await engine.ranks()) + 1
            assert await engine.command(epoch=epoch, mode=mode, steps=steps, seconds=30)

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """`spec-toolkit ...` as a person types it."""
        return subprocess.run(
            [sys.executable, "-m", "spec_toolkit.cli.main", *words],
            env={**os.environ, "XDG_STATE_HOME": str(self.state)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@contextmanager
def streams(address: str, count: int, tokens: int = 2000) -> Iterator[list[int]]:
    """So many at a time, each begun anew when it ends, until left; the lengths of those that ended."""
    ended: list[int] = []
    stop = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_streams(address, count, tokens, stop, ended)))
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


async def _streams(address: str, count: int, tokens: int, stop: threading.Event, ended: list[int]) -> None:
    async with EngineClient(address) as engine:

        async def one(number: int) -> None:
            while not stop.is_set():
                request = {
                    "text": f"The lamp number {number}",
                    "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
                }
                async for event in engine.stream(request, seconds=60):
                    if stop.is_set():
                        return
                    if event["meta_info"]["finish_reason"]:
                        ended.append(event["meta_info"]["completion_tokens"])

        await asyncio.gather(*(one(number) for number in range(count)))


def as_dict(limits: Limits) -> dict[str, Any]:
    return dict(json.loads(msgspec.json.encode(limits)))
