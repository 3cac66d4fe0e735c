"""What the gateway counts, as a snapshot for `status` and as Prometheus text. Pure; nothing in it comes from a prompt or an answer."""

from collections import Counter, deque

from msgspec import Struct

_KEPT = 16  # last resumptions
_PREFIX = "spec_toolkit" + "_gateway"  # of metrics; as one word it would read as a spelling of the engine


class Snapshot(Struct, frozen=True, kw_only=True):
    """`gateway.json`, written about once a second."""

    run: str  # which start of the deployment it is about
    at: str
    wall_s: float  # the same as Unix time
    route: int  # generation of the Route in force; 0: none was heard yet
    engine: int  # that takes requests, counted from 1; 0: none
    stopping: bool
    in_flight: int  # admitted and not answered, of at most `cap`
    waiting: int  # of those, without an engine at this moment
    cap: int
    streams: int  # of those in flight
    completed: int
    resumed: int  # streams that went on at another engine or again at the same, each time counted
    resume_failed: int  # streams that ended in an error because their engine was lost
    remade: int  # requests made again from their beginning, since nothing of them had been sent
    refused: int  # answered 429
    client_gone: int
    reasons: dict[str, int]  # typed errors, by name
    losses: dict[str, int]  # what ended an engine's part of a request, by kind
    resume_seconds: tuple[
        float, ...
    ]  # the last resumptions, oldest first: from the loss to the next byte for the client
    completions_per_second: float | None  # None: none lately


class Counters:
    def __init__(self) -> None:
        self.streams = 0
        self.waiting = 0
        self.completed = 0
        self.resumed = 0
        self.resume_failed = 0
        self.remade = 0
        self.client_gone = 0
        self.reasons: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.resume_seconds: deque[float] = deque(maxlen=_KEPT)


_GAUGES = {
    "in_flight": "Requests admitted and not answered",
    "waiting": "Of those, requests that have no engine now",
    "streams": "Of those in flight, streams",
    "engine": "Which engine takes requests; 0: none",
}
_TOTALS = {
    "completed": "Requests answered whole",
    "resumed": "Streams that went on after their engine was lost",
    "resume_failed": "Streams that ended in an error because their engine was lost",
    "remade": "Requests made again from their beginning after their engine was lost",
    "refused": "Requests answered 429",
    "client_gone": "Clients that went away before their answer was whole",
}


def prometheus(snapshot: Snapshot) -> str:
    lines = []
    for names, kind, suffix in ((_GAUGES, "gauge", ""), (_TOTALS, "counter", "_total")):
        for name, text in names.items():
            metric = f"{_PREFIX}_{name}{suffix}"
            lines += [f"# HELP {metric} {text}.", f"# TYPE {metric} {kind}", f"{metric} {getattr(snapshot, name)}"]
    metric = f"{_PREFIX}_errors_total"
    lines += [f"# HELP {metric} Typed errors given to clients.", f"# TYPE {metric} counter"]
    lines += [f'{metric}{{type="{name}"}} {count}' for name, count in sorted(snapshot.reasons.items())]
    return "\n".join(lines) + "\n"
