"""Another engine was asked for: what is awaited, and what has become of it. Pure."""

from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from spec_toolkit.launch.route import Route
from spec_toolkit.planning.limits import Limits
from spec_toolkit.policy.decide import decide
from spec_toolkit.policy.modes import Rung
from spec_toolkit.policy.state import Decision, State
from spec_toolkit.policy.telemetry import Window
from spec_toolkit.terms import Mode, Signal


class News(Enum):
    NONE = auto()
    ARRIVED = auto()
    FAILED = auto()


class Pending(Struct, frozen=True, kw_only=True):
    decision: Decision
    engine: int  # the one it is to take over from
    until_s: float  # later than that it has failed
    begun: bool = False  # the supervisor said that it is at it

    @property
    def wants_draft(self) -> bool:
        return self.decision.state.mode is not Mode.AUTOREGRESSIVE

    def news(self, route: Route, now_s: float, *, lost: bool) -> News:
        # Whatever came in place of an engine that was to go is what there is, also where it can draft after all.
        if route.address and route.engine != self.engine and (route.speculates or not self.wants_draft):
            return News.ARRIVED
        given_up = self.begun and not route.returning
        return News.FAILED if now_s > self.until_s or (self.wants_draft and (lost or given_up)) else News.NONE

    def watched(self, route: Route) -> "Pending":
        return replace(self, begun=self.begun or route.returning)

    def asked_for(self, now_s: float) -> str:
        left_s, reason = self.until_s - now_s, self.decision.why.partition(": ")[2]
        return f"{self.decision.before} stays: another engine was asked for, at most {left_s:.0f} s more: {reason}"

    def not_come(self, why: str, now_s: float, limits: Limits) -> Decision:
        """Of one that was to draft: a speculating engine was lost, as the policy counts them."""
        lost = Window(from_s=now_s, until_s=now_s, engine_lost=True)
        gone = lost_unasked(self.decision.state, lost, now_s, limits)
        told = f"{self.decision.before} stays: engine_lost: the engine that was to return did not{why}"
        return replace(gone, before=self.decision.before, why=told)


def lost_unasked(state: State, lost: Window, now_s: float, limits: Limits) -> Decision:
    """A speculating engine ended: the supervisor does what is to be done, and what is left is to remember.

    Where none speculates, it was one that was to return, for somebody else or for the sidecar before this one.
    """
    if state.mode is not Mode.AUTOREGRESSIVE:
        return decide(state, lost, now_s, limits)
    gone = decide(replace(state, mode=Mode.ZERO_DRAFT, steps=0), lost, now_s, limits)
    why = f"{state.rung} stays: engine_lost: a speculating engine did not come to serve"
    return replace(gone, before=state.rung, why=why)


def arrived(state: State, rung: Rung, limits: Limits, now_s: float, *, faults_seen: int) -> State:
    """Moved by somebody else, for reasons of his own; an engine without speculation is not undone sooner than after a crash."""
    waits = rung.mode is Mode.AUTOREGRESSIVE and len(limits.modes) > 1
    until_s = now_s + limits.cool_down_after_crashes(1) if waits else 0.0
    return replace(
        state,
        mode=rung.mode,
        steps=rung.steps,
        since_s=now_s,
        signal=None,
        climbed_s=None,
        faults_seen=faults_seen,
        cool_down_until_s=max(state.cool_down_until_s, until_s),
    )


def fallen(state: State, rung: Rung, limits: Limits, now_s: float) -> State:
    """The engine went down by itself, and nothing it counts says why: a draft fault all the same."""
    until_s = now_s + limits.cool_down_after(max(1, state.faults))
    return replace(
        state,
        mode=rung.mode,
        steps=rung.steps,
        since_s=now_s,
        signal=Signal.DRAFT_FAULT,
        last_fault_s=now_s,
        climbed_s=None,
        cool_down_until_s=max(state.cool_down_until_s, until_s),
    )
