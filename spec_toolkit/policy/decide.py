"""Chooses the next state. Pure: no clock, no I/O, same inputs, same answer.

`signals` looks at the numbers, `modes` holds the table; here is what lies between them: a person's hold, the dwell time, and what a move
leaves behind (cool-downs, counted crashes, failed probes).
"""

from msgspec.structs import replace

from spec_toolkit.planning.limits import Limits
from spec_toolkit.policy.modes import FAULTS, SLOPES, Rung, destination, highest_at_most
from spec_toolkit.policy.signals import Reading, measured, read_signal
from spec_toolkit.policy.state import Decision, State
from spec_toolkit.policy.telemetry import Window
from spec_toolkit.terms import Mode, Signal


def decide(state: State, seen: Window, now_s: float, limits: Limits) -> Decision:
    """What to do after this window. Never raises. At most one move, and never more than one rung up."""
    state, here = _of_this_identity(state, limits), state.rung
    reading = read_signal(state, seen, now_s, limits)
    known = _with_what_was_seen(state, seen, limits)
    signal = reading.signal
    held = state.held and signal is not Signal.ENGINE_LOST
    rung = None if signal is None or held or reading.holds else destination(here, signal, limits)
    allowed = highest_at_most(here, limits)
    if allowed != here and (rung is None or signal not in FAULTS):
        why = f"{here} -> {allowed}: limits: that rung is not, or no longer, allowed"
        return Decision(state=_at(known, allowed, None, now_s), before=here, signal=None, why=why)
    if signal is None:
        return Decision(state=known, before=here, signal=None, why=f"{here} stays: {reading.why}")
    if held:
        return _stays(known, here, reading, "; held by a person, not followed")
    if rung is None:
        return _stays(_shaken(known, signal, now_s, limits), here, reading)
    since_s = now_s - state.since_s
    if signal not in FAULTS and since_s < limits.dwell_seconds:
        return _stays(known, here, reading, f"; too soon, {max(0.0, since_s):.0f} of {limits.dwell_seconds:g} s")
    moved = _moved(known, rung, signal, now_s, limits)
    return Decision(state=moved, before=here, signal=signal, why=f"{here} -> {rung}: {signal.value}: {reading.why}")


def _stays(state: State, here: Rung, reading: Reading, because: str = "") -> Decision:
    word = f"{reading.signal.value}: " if reading.signal else ""
    return Decision(state=state, before=here, signal=reading.signal, why=f"{here} stays: {word}{reading.why}{because}")


def _of_this_identity(state: State, limits: Limits) -> State:
    """Another recipe or version: what is known of the last one's crashes, faults and lengths says nothing."""
    if state.identity == limits.identity:
        return state
    return replace(
        state,
        identity=limits.identity,
        faults=0,
        last_fault_s=None,
        crash_times_s=(),
        sticky=False,
        cool_down_until_s=0.0,
        failed_probes=0,
        probe_after_s=0.0,
        lengths=(),
    )


def _with_what_was_seen(state: State, seen: Window, limits: Limits) -> State:
    faults_seen = state.faults_seen
    if seen.draft_faults is not None and state.mode is not Mode.AUTOREGRESSIVE:
        faults_seen = seen.draft_faults
    emitted = measured(state, seen, limits)
    if emitted is None:
        return state if faults_seen == state.faults_seen else replace(state, faults_seen=faults_seen)
    others = tuple(known for known in state.lengths if known[0] != state.steps and known[0] in limits.steps)
    return replace(state, faults_seen=faults_seen, lengths=(*others, (state.steps, emitted.length)))


def _at(state: State, rung: Rung, signal: Signal | None, now_s: float) -> State:
    # The engine that runs without speculation is another one: faults are counted afresh when it is replaced.
    faults_seen = 0 if rung.mode is Mode.AUTOREGRESSIVE else state.faults_seen
    return replace(
        state, mode=rung.mode, steps=rung.steps, since_s=now_s, signal=signal, climbed_s=None, faults_seen=faults_seen
    )


def _moved(state: State, rung: Rung, signal: Signal, now_s: float, limits: Limits) -> State:
    moved = _at(state, rung, signal, now_s)
    if signal is Signal.ENGINE_LOST:
        return _after_crash(moved, now_s, limits)
    if signal is Signal.DRAFT_FAULT:
        return _after_fault(moved, now_s, limits)
    if signal is Signal.PROFIT_POSSIBLE:
        return _after_climb(moved, state.climbed_s, now_s, limits)
    if signal in SLOPES:
        return _after_descent(moved, state.climbed_s, now_s, limits)
    return moved


def _after_crash(state: State, now_s: float, limits: Limits) -> State:
    """Of an engine that speculated: a crash without speculation moves nothing and does not come here."""
    recent = tuple(time for time in state.crash_times_s if now_s - time < limits.crash_period_seconds)
    crashes = (*recent, now_s)[-limits.crash_count :]
    until_s = now_s + limits.cool_down_after_crashes(len(crashes))
    return replace(
        state,
        crash_times_s=crashes,
        sticky=state.sticky or len(crashes) >= limits.crash_count,
        cool_down_until_s=max(state.cool_down_until_s, until_s),
    )


def _after_fault(state: State, now_s: float, limits: Limits) -> State:
    forgotten = state.last_fault_s is None or now_s - state.last_fault_s > limits.fault_memory_seconds
    faults = 1 if forgotten else state.faults + 1
    until_s = now_s + limits.cool_down_after(faults)
    return replace(state, faults=faults, last_fault_s=now_s, cool_down_until_s=max(state.cool_down_until_s, until_s))


def _shaken(state: State, signal: Signal, now_s: float, limits: Limits) -> State:
    """A fault where nothing is drafted any more, the tail of a burst or of prefill: the same cool-down from the start, not doubled."""
    if signal is not Signal.DRAFT_FAULT:
        return state
    until_s = now_s + limits.cool_down_after(state.faults)
    return replace(state, last_fault_s=now_s, cool_down_until_s=max(state.cool_down_until_s, until_s))


def _after_climb(state: State, climbed_s: float | None, now_s: float, limits: Limits) -> State:
    """A climb is a probe until it has lasted; without drafts nothing is on trial."""
    lasted = climbed_s is not None and now_s - climbed_s >= limits.probe_seconds
    return replace(state, climbed_s=now_s if state.steps else None, failed_probes=0 if lasted else state.failed_probes)


def _after_descent(state: State, climbed_s: float | None, now_s: float, limits: Limits) -> State:
    """A climb undone before it has lasted was a failed probe, and the next one waits longer."""
    undone = climbed_s is not None and now_s - climbed_s < limits.probe_seconds
    lasted = climbed_s is not None and not undone
    failed = 0 if lasted else state.failed_probes + undone
    # What was just measured to lose waits for a probe's turn, failed or not. Load may be over at once.
    waits = undone or state.signal is Signal.ACCEPTANCE_LOW
    until_s = now_s + limits.wait_after_probes(failed) if waits else 0.0
    return replace(state, failed_probes=failed, probe_after_s=max(state.probe_after_s, until_s))
