"""What the policy's tests are made of: an engine that says what a test wants, second by second, and the moves that follow."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from spec_toolkit.planning.limits import BreakEven, Limits
from spec_toolkit.policy.decide import decide
from spec_toolkit.policy.state import Decision, State, first_state
from spec_toolkit.policy.telemetry import Emitted, Telemetry, Window, latest_window
from spec_toolkit.terms import Mode

EVERY_MODE = (Mode.FULL, Mode.REDUCED, Mode.ZERO_DRAFT, Mode.AUTOREGRESSIVE)


def limits(**changed: Any) -> Limits:
    """Round numbers: dwell 60, window 10, probes every 1000 s at first."""
    chosen: dict[str, Any] = {
        "identity": "recipe-a 0.5.23",
        "steps": (0, 1, 3),
        "modes": EVERY_MODE,
        "dwell_seconds": 60.0,
        "window_seconds": 10.0,
        "probe_seconds": 100.0,
        "probe_share": 0.1,
        "cool_down_seconds": 100.0,
        "crash_cool_down_seconds": 300.0,
    }
    return Limits(**{**chosen, **changed})


def break_even(steps: int, points: dict[int, float]) -> tuple[BreakEven, ...]:
    return tuple(BreakEven(steps=steps, batch=batch, emitted_length=length) for batch, length in points.items())


def state(mode: Mode = Mode.FULL, steps: int | None = None, **changed: Any) -> State:
    drafted = {Mode.FULL: 3, Mode.REDUCED: 1}.get(mode, 0) if steps is None else steps
    return State(**{"identity": "recipe-a 0.5.23", "mode": mode, "steps": drafted, "since_s": 0.0, **changed})


def seen(until_s: float = 1000.0, *, length: float | None = None, rounds: int = 1000, **changed: Any) -> Window:
    """A quiet window of ten seconds with 3 steps; `length` is known to within 0.05."""
    emitted = None
    if length is not None:
        emitted = Emitted(length=length, rounds=rounds, low=length - 0.05, high=length + 0.05)
    quiet = {"from_s": until_s - 10, "until_s": until_s, "rounds": rounds, "emitted": emitted, "steps": 3}
    return Window(**{**quiet, "queue_least": 0, "queue_most": 0, "running": 8.0, "draft_faults": 0, **changed})


@dataclass(frozen=True)
class Weather:
    """What the world does to the engine in one second."""

    queue: int | None = 0
    running: int | None = 8
    accepts: float = 0.7  # probability that a draft is accepted, given those before it
    faults: int = 0  # draft faults in this second, if anything is drafted
    answers: bool = True  # to a scrape
    restarts: bool = False  # the engine, behind our back: the same mode, counters at zero
    lost: bool = False  # the engine dies in this second, if it speculates


Say = Callable[[int], Weather]


def during(*spells: tuple[int, int, Weather], otherwise: Weather = Weather()) -> Say:
    """(first second, last second, weather), last excluded."""

    def say(second: int) -> Weather:
        return next((weather for first, last, weather in spells if first <= second < last), otherwise)

    return say


class Engine:
    """Counts as an engine does. A lost one comes back at once, as whatever it is asked to be, with counters at zero."""

    def __init__(self) -> None:
        self.told = Telemetry(at_s=0.0, rounds=0, accepted_drafts=0, draft_faults=0)

    def second(self, now_s: float, weather: Weather, steps: int, *, speculates: bool) -> Telemetry | None:
        if not speculates:
            self.told = Telemetry(at_s=now_s, rounds=0, accepted_drafts=0, draft_faults=0)
            plain = Telemetry(at_s=now_s, queue_depth=weather.queue, running=weather.running)
            return plain if weather.answers else None
        if weather.restarts:
            self.told = Telemetry(at_s=now_s, rounds=0, accepted_drafts=0, draft_faults=0)
        rounds = 20 * (weather.running or 0)
        accepted = rounds * sum(weather.accepts**step for step in range(1, steps + 1))
        before = self.told
        self.told = Telemetry(
            at_s=now_s,
            rounds=(before.rounds or 0) + rounds,
            accepted_drafts=(before.accepted_drafts or 0) + round(accepted),
            draft_faults=(before.draft_faults or 0) + (weather.faults if steps else 0),
            steps=steps,
            queue_depth=weather.queue,
            running=weather.running,
        )
        return self.told if weather.answers else None


def decisions(
    chosen: Limits, say: Say, seconds: Iterable[int], start: State | None = None
) -> Iterator[tuple[int, Decision]]:
    """The sidecar's loop without the sidecar: one scrape and one decision a second."""
    current = start or first_state(chosen, 0.0, Mode.FULL)
    engine, scrapes = Engine(), list[Telemetry]()
    for second in seconds:
        weather = say(second)
        speculates = current.mode is not Mode.AUTOREGRESSIVE
        scrape = engine.second(float(second), weather, current.steps, speculates=speculates)
        if scrape is not None:
            scrapes = [*scrapes[-60:], scrape]
        window = latest_window(
            scrapes,
            seconds=chosen.window_seconds,
            min_rounds=chosen.min_rounds,
            since_s=current.since_s,
            engine_lost=weather.lost and speculates,
        )
        decision = decide(current, window, float(second), chosen)
        current = decision.state
        yield second, decision


def moves(chosen: Limits, say: Say, until: int, start: State | None = None) -> list[tuple[int, str, str]]:
    """(second, signal, new rung), of the moves only."""
    return [
        (second, decision.signal.value if decision.signal else "", str(decision.state.rung))
        for second, decision in decisions(chosen, say, range(1, until), start)
        if decision.moved
    ]
