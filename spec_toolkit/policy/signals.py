"""What a window of telemetry says: looks at numbers, never at the table of moves. Pure.

Whether drafting pays is judged by break-even at the batch of now, for the step count in question: measured in this window for the rung
the service is on, remembered from the last window on it for the rung above. That works both ways, as a mixture of experts needs it: it
may lose at batch 1, win at 8 and lose again at 64 (theory.md, section 3). Queue depth decides only where that is not known.
"""

from dataclasses import dataclass

from spec_toolkit.planning.limits import Limits
from spec_toolkit.policy.modes import Rung, above
from spec_toolkit.policy.state import State
from spec_toolkit.policy.telemetry import Emitted, Window
from spec_toolkit.terms import Mode, Signal


@dataclass(frozen=True, slots=True)
class Reading:
    signal: Signal | None  # None: nothing to act on
    why: str  # value, limit, sample size
    holds: bool = False  # the signal asks to keep the mode as it is


def read_signal(state: State, seen: Window, now_s: float, limits: Limits) -> Reading:
    """The weightiest signal, or why there is none. Nothing that is missing is taken for a number."""
    if seen.engine_lost:
        return Reading(Signal.ENGINE_LOST, "the engine ended or hung without being asked to")
    new_faults = count_new_faults(state, seen)
    if new_faults:
        return Reading(Signal.DRAFT_FAULT, f"draft faults {seen.draft_faults}, of them new {new_faults}")
    age_s = now_s - seen.until_s
    if age_s > limits.stale_seconds:
        return _stale(age_s, limits)
    if seen.from_s < state.since_s or seen.seconds < limits.window_seconds:
        return Reading(
            None,
            f"window {max(0.0, seen.until_s - max(seen.from_s, state.since_s)):.1f} of {limits.window_seconds:g} s",
        )
    return _slope(state, seen, now_s, limits)


def count_new_faults(state: State, seen: Window) -> int:
    """A total below the one last answered is another engine's, and all of it is new."""
    if seen.draft_faults is None or state.mode is Mode.AUTOREGRESSIVE:
        return 0
    if seen.draft_faults < state.faults_seen:
        return seen.draft_faults
    return seen.draft_faults - state.faults_seen


def measured(state: State, seen: Window, limits: Limits) -> Emitted | None:
    """The window's emitted length, where it was drafted for with the rung's steps only and over enough rounds."""
    emitted = seen.emitted
    if emitted is None or emitted.rounds < limits.min_rounds:
        return None
    if not state.steps or seen.steps != state.steps or seen.from_s < state.since_s:
        return None
    return emitted


def _stale(age_s: float, limits: Limits) -> Reading:
    why = f"last good scrape {age_s:.1f} s ago, limit {limits.stale_seconds:g}"
    if age_s > limits.blind_seconds:
        return Reading(Signal.TELEMETRY_STALE, f"{why}, and {limits.blind_seconds:g} to go on drafting")
    return Reading(Signal.TELEMETRY_STALE, f"{why}; nothing is drafted from {limits.blind_seconds:g} s on", holds=True)


def _slope(state: State, seen: Window, now_s: float, limits: Limits) -> Reading:
    emitted = measured(state, seen, limits)
    break_even = _break_even(state.steps, seen, limits)
    pays = emitted is not None and break_even is not None and emitted.low >= break_even
    queues = seen.queue_least is not None and seen.queue_least >= limits.queue_high
    # Where nothing is drafted there is nothing to lower: whether to climb is asked instead, and a queue answers that too.
    if queues and state.steps and not pays:
        return Reading(
            Signal.LOAD_HIGH,
            f"queue depth at least {seen.queue_least} over {seen.seconds:.0f} s, limit {limits.queue_high}",
        )
    if emitted is not None and break_even is not None and emitted.high < break_even:
        why = (
            f"emitted length {emitted.length:.2f} over {emitted.rounds} rounds (95 % below {emitted.high:.2f}), "
            f"break-even {break_even:.2f} at batch {_batch(seen):.3g}"
        )
        return Reading(Signal.ACCEPTANCE_LOW, why)
    higher = above(state.rung, limits)
    if higher is None:
        return Reading(None, _not_low(state, seen, limits))
    return _climb(state, higher, seen, now_s, limits)


def _climb(state: State, rung: Rung, seen: Window, now_s: float, limits: Limits) -> Reading:
    """To the rung above. To draft more than now is a probe, unless what is remembered says that it pays."""
    if state.sticky:
        return Reading(
            None, f"sticky after {len(state.crash_times_s)} crashes, until the recipe or the version changes"
        )
    if now_s < state.cool_down_until_s:
        left_s, crashes = state.cool_down_until_s - now_s, len(state.crash_times_s)
        return Reading(
            None, f"cools down for {left_s:.0f} s more; draft faults in a row {state.faults}, crashes {crashes}"
        )
    waits = rung.steps > 0 and now_s < state.probe_after_s
    expected = _expected_profit(state, rung, seen, limits)
    # A climb that load undid says nothing about acceptance, so what is remembered of acceptance does not shorten its wait.
    if expected and not (waits and state.signal is Signal.LOAD_HIGH):
        return Reading(Signal.PROFIT_POSSIBLE, expected)
    if waits:
        left_s = state.probe_after_s - now_s
        return Reading(None, f"next probe in {left_s:.0f} s, failed in a row {state.failed_probes}")
    return _probe(seen, limits)


def _probe(seen: Window, limits: Limits) -> Reading:
    if seen.queue_most is None:
        return Reading(None, "queue depth is not reported, so no probe")
    if seen.queue_most > limits.queue_low:
        return Reading(None, f"queue depth up to {seen.queue_most}, limit of a probe {limits.queue_low}")
    why = f"probe: queue depth at most {seen.queue_most} over {seen.seconds:.0f} s, limit {limits.queue_low}"
    return Reading(Signal.PROFIT_POSSIBLE, why)


def _expected_profit(state: State, rung: Rung, seen: Window, limits: Limits) -> str:
    """Why that rung pays at this batch, as far as is remembered; empty where it does not or is not known."""
    length, break_even = state.length_at(rung.steps), _break_even(rung.steps, seen, limits)
    if length is None or break_even is None or length < break_even * (1 + limits.profit_margin):
        return ""
    return (
        f"emitted length {length:.2f} when last measured at {rung}, "
        f"break-even {break_even:.2f} and {limits.profit_margin:.0%} at batch {_batch(seen):.3g}"
    )


def _not_low(state: State, seen: Window, limits: Limits) -> str:
    """Why a service that cannot climb stays where it is."""
    if not state.steps:
        return "no rung above is allowed"
    if _break_even(state.steps, seen, limits) is None:
        batch = "not reported" if seen.running is None else f"{_batch(seen):.3g}"
        return f"break-even with {state.steps} steps is unknown at batch {batch}: acceptance_low cannot fire"
    emitted = measured(state, seen, limits)
    if emitted is not None:
        return f"emitted length {emitted.length:.2f} over {emitted.rounds} rounds is not below break-even"
    if seen.steps != state.steps:
        in_force = "steps not reported, or changed" if seen.steps is None else f"{seen.steps} steps"
        return f"the engine drafted with other steps: {in_force}, {state.steps} asked for"
    rounds = "not reported" if seen.rounds is None else f"{seen.rounds}"
    return f"rounds {rounds}, fewest to judge acceptance {limits.min_rounds}"


def _batch(seen: Window) -> float:
    """A round has at least one request, however idle the rest of the window was. Asked only where it is reported."""
    return max(1.0, seen.running or 0.0)


def _break_even(steps: int, seen: Window, limits: Limits) -> float | None:
    return None if seen.running is None or not steps else limits.break_even_at(steps, _batch(seen))
