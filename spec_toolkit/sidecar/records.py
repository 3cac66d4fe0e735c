"""What the sidecar writes down for itself and for people, and what people write down for it. Pure."""

import re

from msgspec import Struct

from spec_toolkit.errors import RecipeError
from spec_toolkit.planning.limits import Limits
from spec_toolkit.policy.modes import Rung, ladder
from spec_toolkit.policy.state import State
from spec_toolkit.terms import Mode

NEVER_AUTOREGRESSIVE = (
    "policy.allow lacks it, so every engine of this deployment speculates, and restarting one would change nothing"
)


class Hold(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person pinned a rung; `hold.json`."""

    mode: Mode
    steps: int  # draft passes in a round; 0 where nothing is drafted
    at: str  # ISO 8601, UTC; tells one hold from the next of the same rung

    @property
    def rung(self) -> Rung:
        return Rung(self.mode, self.steps)


class Carried(Struct, frozen=True, kw_only=True):
    """What one sidecar leaves to the next; `policy.json`."""

    state: State
    run: str  # of the deployment: another one has other engines, counted from 1 again
    engine: int  # the engine the state is about, as the route counts; 0: none
    lost: int = 0  # of the run's lost engines, those answered
    hold: Hold | None = None  # the last one that was carried out
    limits: Limits | None = None  # in force; the file may since have become unreadable
    written_s: float = 0.0  # the clock must not go back behind it


class Taken(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `decisions.jsonl`: a move, or a new reason for none."""

    at: str  # ISO 8601, UTC
    why: str  # "full -> reduced(1): load_high: ..."
    before: str  # rung
    rung: str  # in force afterwards
    signal: str = ""
    moved: bool = False
    confirmed_ms: float | None = None  # of a move inside an engine: from the end of the window until every rank had it
    rounds: int | None = None  # that the busiest rank began meanwhile; at most, since both ends are read from outside


class Confirmed(Struct, frozen=True, kw_only=True):
    """A rung that every rank reports."""

    at_s: float
    epoch: int
    rounds: int | None  # of the busiest rank, since the engine started


class Snapshot(Struct, frozen=True, kw_only=True):
    """How things stand; `sidecar.json`, whole, once a second. None: not known."""

    run: str  # which start of the deployment it is about
    at: str  # ISO 8601, UTC
    at_s: float  # the same as Unix time, on the policy's clock, which never goes back
    wall_s: float  # the machine's clock at that moment: how old this is, is asked of that one
    mode: str  # empty: not known
    steps: int | None
    since_s: float  # the last move
    signal: str  # why the last move was made; empty: the start
    held: bool
    why: str  # what the last look led to
    address: str  # of the engine that is looked at; empty: none takes requests
    scrape_age_seconds: float | None = None  # of the last good one
    finding: str = ""  # why the last scrape was no good, or not whole
    emitted_length: float | None = None  # tokens per round, over the window of the last decision
    emitted_low: float | None = None  # with 95 % confidence above it
    emitted_high: float | None = None  # with 95 % confidence below it
    rounds: int | None = None  # in that window
    break_even: float | None = None  # at this batch, with these steps
    queue_depth: int | None = None
    running: int | None = None  # requests in a round, of the busiest rank
    batch: float | None = None  # the mean of that over the window, which break-even is asked for
    draft_faults: int | None = None
    draft_faults_by_site: dict[str, int] | None = None
    draft_kv_missing: int | None = None
    last_fault: str | None = None
    epochs: tuple[int, ...] = ()  # of each rank's last command
    limits_file: str = ""
    limits_problem: str = ""  # why what stands there now is not in force
    hold_problem: str = ""  # why what stands in the hold's file is not carried out
    act_problem: str = ""  # the last change that was asked for and did not take, until one does
    act_failures: int = 0  # in a row
    decisions: tuple[str, ...] = ()  # the last few, newest last


_SLACK_SECONDS = 1.0  # of two looks at a clock that is being set right


def age_seconds(wall_s: float, now_s: float) -> float | None:
    """Of what was written at `wall_s` by the machine's clock; None where that is yet to come: the clock was set back."""
    return None if wall_s > now_s + _SLACK_SECONDS else max(0.0, now_s - wall_s)


_REDUCED = re.compile(r"reduced\((\d{1,3})\)")


def read_rung(text: str, limits: Limits) -> Rung:
    """`full`, `reduced(1)`, `zero_draft`, `autoregressive`; `reduced` alone where there is one. RecipeError where it is not on the ladder."""
    rungs = ladder(limits)
    reduced = [rung for rung in rungs if rung.mode is Mode.REDUCED]
    wanted = str(reduced[0]) if text == Mode.REDUCED.value and len(reduced) == 1 else text
    for rung in rungs:
        if str(rung) == wanted:
            return rung
    exists = _REDUCED.fullmatch(text) or text in {mode.value for mode in Mode}
    raise RecipeError.of(
        "hold.rung",
        "hold",
        f"{text!r} is not a rung of this deployment" if exists else f"{text!r} is no rung",
        why="the ladder is what the recipe allows, at the step counts the engine was started with",
        remedy=f"It has {', '.join(map(str, rungs))}.",
    )
