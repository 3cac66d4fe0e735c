"""An engine that a nursery forks as a plan asks: what `deploy` would start, without the supervisor. For rehearsals and tests.

Touches processes and the disk.
"""

import http.client
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from spec_toolkit.engine.flags import ADMIN_KEY
from spec_toolkit.engine.log import last_words
from spec_toolkit.engine.patch_reports import patched
from spec_toolkit.engine.patches import Patch, hand_over
from spec_toolkit.errors import EngineError
from spec_toolkit.launch.deployment import write_json, write_private
from spec_toolkit.launch.nursery import Nursery, NurseryError, NurseryGoneError
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.launch.spec import LaunchSpec, Place, steps_config, to_launch
from spec_toolkit.launch.start import locate
from spec_toolkit.planning.plan import Plan
from spec_toolkit.shipped import rehearsal

READY_SECONDS = 240.0  # from the fork; two seconds or so on a machine with nothing else to do
_END_SECONDS = 30.0  # from SIGKILL to the end of every process
_HEALTH_SECONDS = 5.0
_REPORT_SECONDS = 10.0  # from the first healthy answer to the last process's report
_LOOK_SECONDS = 0.05
_TAIL = 200  # lines of the log: every process of the engine ends with a traceback of its own
_WORDS = 400  # characters of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A forked engine."""

    name: str
    spec: LaunchSpec
    pid: int
    folder: Path  # holds patches.json and its reports
    began: float  # on the monotonic clock

    @property
    def address(self) -> str:
        return self.spec.address

    @property
    def log(self) -> Path:
        return self.folder / "engine.log"

    def tail(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()[-_TAIL:] if self.log.exists() else []


def write_launch(folder: Path, plan: Plan, patches: Sequence[Patch], *, key: str, speculate: bool) -> LaunchSpec:
    """What `deploy` would start, with its files in `folder`; the models must lie on this machine."""
    models = locate(plan.recipe, ask_hub=False)
    config, steps = folder / "engine.yaml", folder / "steps.json"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(config, f"{ADMIN_KEY}: {key}\n".encode())
    write_json(steps, steps_config(plan.steps))
    place = Place(
        python=sys.executable,
        rehearsal=str(rehearsal()),
        target=models.target,
        target_commit=models.target_commit,
        draft=models.draft,
        draft_commit=models.draft_commit,
        engine_config=str(config),
        steps_config=str(steps),
        patch_list=str(hand_over(patches, folder)),
        port=free_engine_port(),
        cores=len(os.sched_getaffinity(0)),
    )
    return to_launch(plan, place, speculate=speculate)


@contextmanager
def forked(nursery: Nursery, folder: Path, spec: LaunchSpec, *more: str, name: str = "engine") -> Iterator[Forked]:
    """Fork it at once, and end it and its processes on leaving. `more`: arguments behind the spec's own."""
    began = time.monotonic()
    log = folder / "engine.log"
    unset = dict.fromkeys(spec.unset_environment)
    # Without `python serve.py`: the nursery is both.
    pid = nursery.spawn([*spec.command[2:], *more], {**unset, **spec.set_environment}, log)
    try:
        yield Forked(name=name, spec=spec, pid=pid, folder=folder, began=began)
    except BaseException:
        with suppress(NurseryError):  # the first error is the one to tell; the nursery ends its engines when it ends
            _end(nursery, pid)
        raise
    _end(nursery, pid)


def wait_until_ready(nursery: Nursery, engine: Forked, seconds: float = READY_SECONDS) -> float:
    """Until it answers and every process of it has reported its patches; returns the seconds since the fork."""
    deadline = time.monotonic() + seconds
    while not _is_healthy(engine.address):
        code = nursery.exit_code(engine.pid)
        if code is not None:
            raise _failed(engine, f"ended with exit code {code}")
        if time.monotonic() > deadline:
            raise _failed(engine, f"was not ready after {seconds:.0f} s")
        time.sleep(_LOOK_SECONDS)
    reported = time.monotonic() + _REPORT_SECONDS
    while True:
        try:
            patched(engine.folder / "patches.json", engine.spec.processes)
        except EngineError:
            if time.monotonic() > reported:
                raise
        else:
            return time.monotonic() - engine.began
        time.sleep(_LOOK_SECONDS)


def _failed(engine: Forked, what: str) -> EngineError:
    return EngineError.of(
        "engine.start",
        engine.name,
        f'{what}. Last words: "{last_words(engine.tail(), most=_WORDS)}"',
        remedy="See runbooks/engine-does-not-start.md.",
    )


def _is_healthy(address: str) -> bool:
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_HEALTH_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end(nursery: Nursery, pid: int) -> None:
    """NurseryError where a nursery that runs does not end it in time."""
    try:
        if nursery.exit_code(pid) is None:
            nursery.kill(pid, 9)
            nursery.wait(pid, _END_SECONDS)
    except NurseryGoneError:
        return
