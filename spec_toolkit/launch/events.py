"""What happens to a deployment, one record each; terminal, `--json`, logs and tests read the same ones. Pure."""

from enum import Enum

from msgspec import Struct


class Kind(Enum):
    """What an event is about."""

    ATTEMPT = "attempt"  # an engine process was started; says with or without speculation
    PHASE = "phase"  # how far its start has come
    CHECKED = "checked"  # a check passed: patches, smoke test, key
    READY = "ready"
    RETRY = "retry"  # a start failed and another follows
    FALLBACK = "fallback"  # the next start is autoregressive
    LOST = "lost"  # an engine that served ended unasked; another one follows
    RESTART = "restart"  # somebody asked for an engine without speculation
    COMEBACK = "comeback"  # a speculating engine is started to take over, or did not come
    MOVED = "moved"  # requests go to another engine
    SERVICE = "service"  # gateway or sidecar: started, ended, given up
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"  # the deployment has ended, not at anybody's request


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: str  # ISO 8601, UTC
    elapsed_seconds: float  # since the deployment was asked for
    kind: Kind
    text: str  # one line for people
    phase: str = ""
    exit_code: int | None = None
    runbook: str = ""  # page to read, for a failure


ENDS = frozenset({Kind.STOPPED, Kind.FAILED})
