"""A supervisor as `deploy` starts one, with engines and services that are told how to behave."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from spec_toolkit.handover import LIST_VARIABLE
from spec_toolkit.launch.deployment import Folder, Status, write_json
from spec_toolkit.launch.ending import follow
from spec_toolkit.launch.events import ENDS, Event, Kind
from spec_toolkit.launch.ports import free_ports
from spec_toolkit.launch.record import Front, Launch, Service
from spec_toolkit.launch.route import Route, decode_route
from spec_toolkit.launch.spec import LaunchSpec
from spec_toolkit.terms import Comeback

KEY = "k3y-that-nobody-may-see"
DEADLINE_SECONDS = 60.0
_ENGINE, _SERVICE = (Path(__file__).with_name(f"fake_{what}.py") for what in ("engine", "service"))


def attempt(folder: Folder, *behaviour: str, speculates: bool = True) -> LaunchSpec:
    [port] = free_ports(1)
    extra = () if speculates else ("--no-speculation",)
    return LaunchSpec(
        command=(sys.executable, str(_ENGINE), "--port", str(port), "--key", KEY, *behaviour, *extra),
        set_environment={LIST_VARIABLE: str(folder.patch_list)},
        unset_environment=(),
        address=f"http://127.0.0.1:{port}",
        speculates=speculates,
        processes=("launcher", "detokenizer", "scheduler-pp0-tp0"),
    )


def service(folder: Folder, name: str, *behaviour: str) -> Service:
    return Service(name=name, command=(sys.executable, str(_SERVICE), str(notes_of(folder, name)), *behaviour))


def notes_of(folder: Folder, name: str) -> Path:
    return folder.path / f"{name}.notes"


def notes(folder: Folder, name: str) -> list[str]:
    """What a service wrote down; empty before it did."""
    path = notes_of(folder, name)
    return path.read_text().splitlines() if path.exists() else []


def routes(folder: Folder, name: str) -> list[Route]:
    """What a service was told."""
    return [decode_route(line.encode()) for line in notes(folder, name) if line.startswith("{")]


def launch_of(
    folder: Folder,
    attempts: tuple[LaunchSpec, ...],
    *,
    services: tuple[Service, ...],
    port: int,
    ready_seconds: float = 60.0,
    drain_seconds: float = 2.0,
    comeback: Comeback = Comeback.BESIDE,
) -> Launch:
    return Launch(
        status=Status(name=folder.name, recipe="r.yaml", recipe_sha256="sha256:0"),
        attempts=attempts,
        tokenizer=None,
        ready_seconds=ready_seconds,
        drain_seconds=drain_seconds,
        front=Front(
            port=port, max_running_requests=4, max_waiting_requests=4, resume_deadline_seconds=60.0, context_tokens=4096
        ),
        comeback=comeback,
        hang_seconds=10.0,
        services=services,
        steps=(0, 1, 3),
        entry_steps=3,
        return_steps=0,
    )


class Running:
    """The supervisor's process; its leash is in our hand."""

    def __init__(
        self,
        folder: Folder,
        attempts: tuple[LaunchSpec, ...],
        *,
        services: tuple[Service, ...],
        port: int,
        ready_seconds: float,
        drain_seconds: float,
        comeback: Comeback,
    ) -> None:
        self.folder = folder
        launch = launch_of(
            folder,
            attempts,
            services=services,
            port=port,
            ready_seconds=ready_seconds,
            drain_seconds=drain_seconds,
            comeback=comeback,
        )
        folder.write_status(launch.status)
        write_json(folder.launch, launch)
        theirs, self.leash = os.pipe()
        command = [sys.executable, "-P", "-m", "spec_toolkit.launch.supervisor", str(folder.path), str(theirs)]
        self.process = subprocess.Popen(command, pass_fds=(theirs,), start_new_session=True)
        os.close(theirs)
        until(lambda: folder.has_owner() or bool(folder.events()))

    def until(self, *kinds: Kind, times: int = 1) -> list[Event]:
        """Every event up to the last of a kind, or up to the end."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            seen = self.folder.events()
            at = [number for number, event in enumerate(seen) if event.kind in kinds]
            if len(at) >= times:
                return seen[: at[times - 1] + 1]
            if seen and seen[-1].kind in ENDS:
                return seen
            if not self.folder.has_owner():
                list(follow(self.folder))  # finds that it ended without a word, and writes that down
            assert time.monotonic() < deadline, [event.text for event in seen]
            time.sleep(0.02)

    def until_phase(self, phase: str) -> Status:
        def there() -> bool:
            status = self.folder.status()
            return status is not None and status.phase == phase

        until(there)
        status = self.folder.status()
        assert status is not None
        return status

    def engine_pid(self, number: int, who: str = "scheduler") -> int:
        [report] = self.folder.engines.glob(f"{number}/patches.json.d/{who}*.json")
        return int(report.stem.rpartition("-")[2])

    def close(self) -> None:
        if self.leash >= 0:
            os.close(self.leash)
            self.leash = -1
        try:
            self.process.wait(DEADLINE_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come"
        time.sleep(0.02)


def processes(folder: Folder) -> list[int]:
    """Every process that belongs to this deployment, but for the supervisor."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment, command = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
        except OSError:
            continue
        own = f"{LIST_VARIABLE}={folder.path}/".encode() in environment or bytes(folder.path) in command
        if own and b"spec_toolkit.launch.supervisor" not in command:
            found.append(int(entry.name))
    return found


def texts(events: list[Event], kind: Kind) -> list[str]:
    return [event.text for event in events if event.kind is kind]
