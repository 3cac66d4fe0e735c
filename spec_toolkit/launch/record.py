"""What a supervisor is told, and what it writes down: one status file, and one line for each event. Touches the disk."""

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from spec_toolkit.launch.deployment import Folder, Status, identify
from spec_toolkit.launch.events import Event, Kind
from spec_toolkit.launch.spec import LaunchSpec
from spec_toolkit.terms import Comeback

GATEWAY, SIDECAR = "gateway", "sidecar"
# Of a status, once a deployment has ended.
NOTHING_RUNS: dict[str, Any] = {"address": "", "engine_address": "", "returning": "", "keepers": ()}


class Front(Struct, frozen=True, kw_only=True):
    """What the gateway is told: where clients reach the deployment, and how many of them wait for how long."""

    host: str = "127.0.0.1"
    port: int
    max_running_requests: int  # the engine's admission cap
    max_waiting_requests: int  # beyond those; one more is answered 429
    resume_deadline_seconds: float  # a stream waits at most this long for an engine to go on with it
    context_tokens: int  # prompt and answer of one request: a body that cannot fit them is refused

    @property
    def address(self) -> str:
        """For whoever is on this machine; a wildcard is no place to go to."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - what a person may have chosen
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


class Service(Struct, frozen=True, kw_only=True):
    """A process of ours that stands beside the engine and hears of every Route on its standard input."""

    name: str  # GATEWAY, SIDECAR
    command: tuple[str, ...]


class Launch(Struct, frozen=True, kw_only=True):
    """What a supervisor is told to do; `launch.json`."""

    status: Status  # as it stands before anything was started
    attempts: tuple[LaunchSpec, ...]
    tokenizer: str | None  # hash the recipe pins
    ready_seconds: float
    drain_seconds: float
    front: Front
    comeback: Comeback
    hang_seconds: (
        float  # an engine that says nothing of itself for so long hangs: above what its watchdog takes to end it
    )
    services: tuple[Service, ...] = ()
    steps: tuple[int, ...] = ()  # counts its speculating engines can be set to, ascending; empty: they run at one
    entry_steps: int = 0  # highest the recipe allows: what the first engine takes requests with
    return_steps: int = (
        0  # lowest: what an engine takes requests with that comes back, or stands in for one that speculated
    )

    def address_of(self, engine: LaunchSpec) -> str:
        """Where clients go while this engine serves: to the gateway, where there is one."""
        return self.front.address if any(service.name == GATEWAY for service in self.services) else engine.address


class Record:
    """A deployment's history as its supervisor writes it. A full disk loses lines of it, never the engine."""

    def __init__(self, folder: Folder, status: Status) -> None:
        self._folder = folder
        self.status = status
        self._began = time.monotonic()

    def event(self, kind: Kind, text: str, *, phase: str = "", exit_code: int | None = None, runbook: str = "") -> None:
        event = Event(
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),  # noqa: TID251 - an edge: events carry wall-clock time
            elapsed_seconds=round(time.monotonic() - self._began, 2),
            kind=kind,
            text=text,
            phase=phase,
            exit_code=exit_code,
            runbook=runbook,
        )
        with suppress(OSError):
            self._folder.append_event(event)

    def own(self, pid: int) -> None:
        """A keeper runs: should this process end without a word, whoever looks next ends what it left."""
        if keeper := identify(pid):
            self.note(keepers=(*self.status.keepers, keeper))

    def disown(self, pid: int) -> None:
        self.note(keepers=tuple(keeper for keeper in self.status.keepers if keeper.pid != pid))

    def note(self, **changes: object) -> None:
        """Change fields of the status, and write it whole."""
        self.status = msgspec.structs.replace(self.status, **changes)
        with suppress(OSError):
            self._folder.write_status(self.status)
