"""Reading the engine's start-up from its log lines, as SGLang 0.5.23 writes them. Pure.

The log is the only place where the engine says how far its start has come; a line that is not recognised means nothing.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """The stations of a start, in order; some come twice (target, then draft)."""

    STARTING = "starting"  # the process exists and imports
    ARGUMENTS = "arguments resolved"
    WEIGHTS = "weights"
    KV_POOL = "KV pool"
    GRAPHS = "graphs"
    WARM_UP = "warm-up"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Station:
    phase: Phase
    detail: str  # for people: what was loaded, how large, how long


_PATTERNS: tuple[tuple[re.Pattern[str], Phase, Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\] server_args="), Phase.ARGUMENTS, lambda _: ""),
    (
        re.compile(r"Load weight end\. elapsed=([\d.]+) s, type=(\w+).*?mem usage=([\d.]+) GB"),
        Phase.WEIGHTS,
        lambda m: f"{m[2]}, {m[3]} GB, {m[1]} s",
    ),
    (
        re.compile(r"KV Cache is allocated\. dtype: torch\.(\w+), #tokens: (\d+).*?size: ([\d.]+) GB"),
        Phase.KV_POOL,
        lambda m: f"{int(m[2]):,} tokens, {m[1]}, {m[3]} GB",
    ),
    (re.compile(r"Capture (.*?graph) begin"), Phase.GRAPHS, lambda m: m[1]),
    (re.compile(r"Application startup complete"), Phase.WARM_UP, lambda _: ""),
    (re.compile(r"The server is fired up and ready to roll"), Phase.READY, lambda _: ""),
)


def read_station(line: str) -> Station | None:
    for pattern, phase, detail in _PATTERNS:
        if found := pattern.search(line):
            return Station(phase, detail(found))
    return None


# What the crash handler, the watchdog and Python themselves write last; people need the error, not the shutdown after it.
_NOISE = re.compile(
    r"kill_process_tree|SIGQUIT received|crash diagnostics|skipping py-spy|^\s|^$|resource_tracker|"
    r"UserWarning|warnings\.warn|Ignore import error|^EOFError$"  # the last: of one that waited for a process that ended
)
_ERROR = re.compile(r"\b(\w*(Error|Exception|Exit)\b.*|CUDA out of memory.*|spec-toolkit: .*)")


_RECENT = 30  # lines; an error further back was most likely survived: a bad request, answered and forgotten


def last_words(lines: list[str], most: int = 240) -> str:
    """The line that most likely says why: the last recent one that names an error, else the last that is no shutdown noise."""
    spoken = [line.strip() for line in lines if not _NOISE.search(line)]
    errors = [line for line in spoken[-_RECENT:] if _ERROR.search(line)]
    text = (errors or spoken or ["(it wrote nothing)"])[-1]
    return text if len(text) <= most else text[: most - 4] + " ..."
