"""What the policy carries from one decision to the next, and what a person may do to it. Pure.

Points in time end in `_s`: seconds on the one clock that `decide` is given. It must outlive the sidecar (crashes are counted over a day)
and never go back, so the sidecar hands over Unix time and never less than it handed over before.
"""

from msgspec import Struct
from msgspec.structs import replace

from spec_toolkit.planning.limits import Limits
from spec_toolkit.policy.modes import Rung, highest_at_most, ladder
from spec_toolkit.terms import Mode, Signal


class State(Struct, frozen=True, kw_only=True):
    """Written down after every decision, so that a sidecar that was restarted carries on with it."""

    identity: str  # the recipe's hash and the engine's version that crashes, faults and lengths below belong to
    mode: Mode
    steps: int  # the ceiling on draft passes; 0 where nothing is drafted
    since_s: float  # the last move
    signal: Signal | None = None  # why the last move was made; None: the start
    held: bool = False  # a person chose the mode: signals are logged and not followed

    faults_seen: int = 0  # of the running engine's draft faults, those answered
    faults: int = 0  # draft faults in a row
    last_fault_s: float | None = None
    crash_times_s: tuple[float, ...] = ()  # of speculating engines, oldest first; at most `Limits.crash_count`
    sticky: bool = False  # autoregressive until the recipe or the version changes
    cool_down_until_s: float = 0.0  # no climbing before; after a fault or a crash

    climbed_s: float | None = None  # the last move, where it was a climb: a probe until it has lasted
    failed_probes: int = 0  # in a row
    probe_after_s: float = 0.0  # no climbing on trial before
    lengths: tuple[
        tuple[int, float], ...
    ] = ()  # (steps, emitted length when last measured with them), one per step count

    @property
    def rung(self) -> Rung:
        return Rung(self.mode, self.steps)

    def length_at(self, steps: int) -> float | None:
        return next((length for measured, length in self.lengths if measured == steps), None)


class Decision(Struct, frozen=True, kw_only=True):
    """`state` is what to carry on with; where it moved, once the engine has taken the move. Until then the old one is decided on again."""

    state: State
    before: Rung
    signal: Signal | None  # what was seen; None: nothing to act on, or the limits changed
    why: str  # one sentence: value, limit, sample size

    @property
    def moved(self) -> bool:
        return self.state.rung != self.before


def first_state(limits: Limits, now_s: float, mode: Mode) -> State:
    """Of an engine that was just started in `mode`, full or autoregressive; lower where the limits do not allow that.

    Where speculation is allowed and the engine runs without it, starting with it has failed: that counts as a first crash's cool-down.
    """
    rung = highest_at_most(Rung(mode, 0 if mode is Mode.AUTOREGRESSIVE else limits.steps[-1]), limits)
    fell_back = mode is Mode.AUTOREGRESSIVE and len(limits.modes) > 1
    return State(
        identity=limits.identity,
        mode=rung.mode,
        steps=rung.steps,
        since_s=now_s,
        cool_down_until_s=now_s + limits.cool_down_after_crashes(1) if fell_back else 0.0,
    )


def hold(state: State, rung: Rung, now_s: float, limits: Limits) -> Decision:
    """A person chooses a rung and pins it. Raises ValueError where the ladder lacks it."""
    if rung not in ladder(limits):
        rungs = ", ".join(str(known) for known in ladder(limits))
        raise ValueError(f"hold: {rung} is not a rung of this deployment; it has {rungs}. Choose one of them.")
    held = replace(
        state,
        mode=rung.mode,
        steps=rung.steps,
        since_s=now_s if rung != state.rung else state.since_s,
        signal=Signal.HELD,
        held=True,
        climbed_s=None,
        faults_seen=state.faults_seen if rung.mode is not Mode.AUTOREGRESSIVE else 0,
    )
    what = f"{state.rung} stays" if rung == state.rung else f"{state.rung} -> {rung}"
    return Decision(state=held, before=state.rung, signal=Signal.HELD, why=f"{what}: held by a person")


def release(state: State) -> State:
    """The mode stays until a signal moves it."""
    return replace(state, held=False)
