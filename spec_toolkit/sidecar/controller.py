"""The loop's inside: from a look at the engine to a decision, and from a decision to what the engine is asked for.

Knows no clock and no world: `step` takes the time, and what it changes goes through an `Actuator`. The state carries on with a decision
only when the engine has taken it. Until then the old state is decided on again.

Whose word counts about the rung in force:
- of an engine that is new to us, the engine's: it is where whoever started it, or the sidecar before us, left it;
- of an engine that fell by itself, the engine's: a draft that fails is not waited for;
- else ours: it is set back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import random

from msgspec.structs import replace

from spec_toolkit.errors import ActError
from spec_toolkit.launch.route import Route
from spec_toolkit.planning.limits import Limits
from spec_toolkit.policy.decide import decide
from spec_toolkit.policy.modes import FAULTS, Rung
from spec_toolkit.policy.state import Decision, State, first_state, hold, release
from spec_toolkit.policy.telemetry import Window
from spec_toolkit.sidecar.act import Actuator, Patience
from spec_toolkit.sidecar.pending import News, Pending, arrived, fallen, lost_unasked
from spec_toolkit.sidecar.records import NEVER_AUTOREGRESSIVE, Carried, Hold, Taken
from spec_toolkit.sidecar.scrape import Look
from spec_toolkit.sidecar.sight import Sight
from spec_toolkit.sidecar.story import Story
from spec_toolkit.terms import Comeback, Mode, Signal

_AUTOREGRESSIVE = Rung(Mode.AUTOREGRESSIVE, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What does not change while it runs."""

    run: str  # which start of the deployment this is
    comeback: Comeback
    hang_seconds: float  # an engine that says nothing for so long hangs
    restart_seconds: float  # another engine serves within it, or the restart failed
    always_speculates: bool = False  # the recipe allows no engine that does not


class Controller:
    """Set `sight.route`, `limits` and `hold` as they come; then `step`."""

    def __init__(
        self,
        deployment: Deployment,
        actuator: Actuator,
        carried: Carried | None = None,
        draw: Callable[[], float] = random,
    ) -> None:
        ours = carried if carried is not None and carried.run == deployment.run else None
        self._deployment = deployment
        self.run = deployment.run
        self._actuator = actuator
        self.patience = Patience(draw)
        self.sight = Sight(engine=ours.engine if ours else 0, lost=ours.lost if ours else 0)
        self.story = Story()
        self.limits: Limits | None = ours.limits if ours else None
        self.hold: Hold | None = ours.hold if ours else None
        self.hold_problem = ""
        self._held = self.hold  # the last hold that was carried out
        self._pending: Pending | None = None
        self.seen: Window | None = None  # that was last decided on
        self.state: State | None = carried.state if carried else None
        if carried and not ours:
            # A person started the deployment anew: he knows of its crashes, which still count with the next one.
            self.state = replace(carried.state, sticky=False, held=False)

    def carried(self, now_s: float) -> Carried | None:
        """What the next sidecar has to know."""
        if self.state is None:
            return None
        return Carried(
            state=self.state,
            run=self.run,
            engine=self.sight.engine,
            lost=self.sight.lost,
            hold=self._held,
            limits=self.limits,
            written_s=now_s,
        )

    async def step(self, look: Look, now_s: float) -> list[Taken]:
        """One look at the engine the route names, at most one move; what is worth a line of the record."""
        lost = self.sight.note(look, now_s)
        route, limits = self.sight.route, self.limits
        if route is None or limits is None:
            lacking = "there are no limits to decide by" if route else "no word yet of which engine takes requests"
            return self._stay(lacking, now_s)
        if lost and self._pending is None and self.state:
            window = self.sight.window(self.state, limits, engine_lost=True)
            gone = lost_unasked(self.state, window, now_s, limits)
            return self._carry_on(replace(gone, why=gone.why + self.sight.why), now_s)
        if self._pending is not None:
            return await self._await(self._pending, route, limits, now_s, lost=lost)
        return await self._attend(route, limits, now_s)

    async def _attend(self, route: Route, limits: Limits, now_s: float) -> list[Taken]:
        if self._hangs:
            return await self._answer_hang(route, limits, now_s)
        if not route.address:
            return self._stay(f"no engine takes requests now{self.sight.why}", now_s)
        if self.sight.is_unknown and not self._adopt(route, limits, now_s):
            return self._stay(self._unknown(route), now_s)
        return await self._decide(limits, now_s)

    # An engine that is new to us.

    def _adopt(self, route: Route, limits: Limits, now_s: float) -> bool:
        """Take its rung for the state's; False while it has not said which that is."""
        rung = self.sight.look.rung if route.speculates else _AUTOREGRESSIVE
        if rung is None:
            return False
        if self.state is None:
            started = first_state(limits, now_s, Mode.FULL if route.speculates else Mode.AUTOREGRESSIVE)
            self.state = replace(started, mode=rung.mode, steps=rung.steps)
        else:
            faults_seen = 0 if self.sight.is_other else self.state.faults_seen
            self.state = (
                replace(self.state, faults_seen=faults_seen)
                if self.state.rung == rung
                else arrived(self.state, rung, limits, now_s, faults_seen=faults_seen)
            )
        self.sight.is_unknown = self.sight.is_other = False
        return True

    def _unknown(self, route: Route) -> str:
        look = self.sight.look
        if route.speculates and look.telemetry and not look.ranks:
            return "this engine drafts at fixed steps: nothing of it can be changed while it serves"
        return f"engine {route.engine} has not said yet how it drafts{': ' + look.finding if look.finding else ''}"

    # Another engine that was asked for.

    @property
    def _hangs(self) -> bool:
        return self.sight.silent_seconds > self._deployment.hang_seconds

    async def _answer_hang(self, route: Route, limits: Limits, now_s: float) -> list[Taken]:
        silent = f"engine_lost: no rank of engine {route.engine} has answered for {self.sight.silent_seconds:.0f} s"
        if not self.patience.allows(_AUTOREGRESSIVE, now_s):
            return self._stay(f"{silent}; {self.patience.problem}", now_s)
        try:
            await self._actuator.ask_restart(speculate=False, why=silent, hung=True)
        except ActError as error:
            return self._failed(_AUTOREGRESSIVE, error, now_s)
        self.patience.took()
        self.sight.silent_seconds = 0.0
        if self._pending is not None:
            return self._stay(f"{self._pending.decision.before} stays: {silent}; another one is on its way", now_s)
        state = self.state or first_state(limits, now_s, Mode.AUTOREGRESSIVE)
        gone = decide(state, self.sight.window(state, limits, engine_lost=True), now_s, limits)
        # Lost it is, whatever becomes of the next one: remembered at once, and nothing more once that serves.
        decision = replace(
            gone, before=state.rung, signal=Signal.ENGINE_LOST, why=f"{state.rung} -> autoregressive: {silent}"
        )
        self._pending = self._awaiting(replace(decision, before=_AUTOREGRESSIVE), now_s)
        return self._carry_on(decision, now_s)

    def _awaiting(self, decision: Decision, now_s: float) -> Pending:
        until_s = now_s + self._deployment.restart_seconds
        return Pending(decision=decision, engine=self.sight.engine, until_s=until_s)

    async def _await(self, pending: Pending, route: Route, limits: Limits, now_s: float, *, lost: bool) -> list[Taken]:
        decision, rung = pending.decision, self.sight.look.rung if route.speculates else _AUTOREGRESSIVE
        news = pending.news(route, now_s, lost=lost)
        if news is News.NONE:
            self._pending = pending.watched(route)
            if pending.wants_draft and self._hangs:  # the engine that serves until the other one does
                return await self._answer_hang(route, limits, now_s)
            return self._stay(pending.asked_for(now_s), now_s)
        if news is News.ARRIVED and rung is None:
            return self._stay(self._unknown(route), now_s)
        self._pending = None
        if news is News.ARRIVED and rung is not None:
            return self._arrive(decision, rung, now_s)
        seconds = self._deployment.restart_seconds
        wanted = "a speculating engine" if pending.wants_draft else "an autoregressive engine"
        late = ActError.of(
            "act.not-taken", "actuator", f"asked for {wanted}, and none came within {seconds:g} s{self.sight.why}"
        )
        if not pending.wants_draft:
            return self._failed(decision.state.rung, late, now_s)
        self.patience.failed(decision.state.rung, now_s, str(late))
        return self._carry_on(pending.not_come(self.sight.why, now_s, limits), now_s)

    def _arrive(self, decision: Decision, rung: Rung, now_s: float) -> list[Taken]:
        """It serves, at a rung of its own: the lowest there is. A hold of a higher one is carried out from there."""
        self.sight.is_unknown = self.sight.is_other = False
        # What was learned meanwhile, as of the engine lost for which this one came, is not unlearned.
        state = replace(decision.state, mode=rung.mode, steps=rung.steps, since_s=now_s, faults_seen=0)
        why = f"{decision.before} -> {rung}: {decision.why.partition(': ')[2]}"
        if decision.before == rung:
            why = f"{rung} stays: the engine that was asked for serves"
        if decision.signal is Signal.HELD and self.hold is not None and rung == self.hold.rung:
            self._held = self.hold
        return self._carry_on(replace(decision, state=state, why=why), now_s)

    # An engine that serves.

    async def _decide(self, limits: Limits, now_s: float) -> list[Taken]:
        wish = self._wish(self._known(), limits, now_s)
        if wish is not None:
            return await self._carry_out(wish, now_s)
        state = self._known()
        self.seen = self.sight.window(state, limits)
        decision = decide(state, self.seen, now_s, limits)
        rung, fell = self.sight.look.rung, self.sight.look.fell
        answered = decision.moved and decision.signal in FAULTS
        if rung is not None and fell and rung.height < state.rung.height and not answered:
            why = f"{state.rung} -> {rung}: draft_fault: the engine fell by itself: {fell}"
            down = fallen(decision.state, rung, limits, now_s)
            return self._carry_on(Decision(state=down, before=state.rung, signal=Signal.DRAFT_FAULT, why=why), now_s)
        if decision.moved:
            return await self._carry_out(decision, now_s)
        self.state = decision.state
        if rung == state.rung or not self.sight.look.ranks or state.mode is Mode.AUTOREGRESSIVE:
            return self._stay(decision.why, now_s)
        before = rung or state.rung
        why = f"{before} -> {state.rung}: set back: none of our decisions moved it"
        if rung is None:
            why = f"{before} stays: {self.sight.look.finding}: brought together"
        return await self._carry_out(replace(decision, before=before, signal=None, why=why), now_s)

    def _known(self) -> State:
        if self.state is None:
            raise RuntimeError("decided before the engine was adopted")
        return self.state

    def _wish(self, state: State, limits: Limits, now_s: float) -> Decision | None:
        """What a person's hold asks for and was not done yet."""
        self.hold_problem = ""
        if self.hold is None:
            if state.held:
                self.state, self._held = release(state), None
            return None
        if self.hold == self._held:
            return None
        if self.hold.mode is Mode.AUTOREGRESSIVE and self._deployment.always_speculates:
            self.hold_problem = f"hold: is autoregressive; {NEVER_AUTOREGRESSIVE}. Hold another rung, or release it."
            return None
        try:
            return hold(state, self.hold.rung, now_s, limits)
        except ValueError as error:
            self.hold_problem = str(error)
            return None

    async def _carry_out(self, decision: Decision, now_s: float) -> list[Taken]:
        here, there = decision.before, decision.state.rung
        if not self.patience.allows(there, now_s):
            return self._stay(f"{here} stays: {self.patience.problem}", now_s)
        try:
            if (here.mode is Mode.AUTOREGRESSIVE) != (there.mode is Mode.AUTOREGRESSIVE):
                return await self._carry_out_elsewhere(decision, now_s)
            confirmed = None
            if there.mode is not Mode.AUTOREGRESSIVE:
                confirmed = await self._actuator.set_rung(there, self.sight.look.ranks)
        except ActError as error:
            return self._failed(there, error, now_s)
        self.patience.took()
        self.state = decision.state
        if decision.signal is Signal.HELD:
            self._held = self.hold
        return self.story.moved(decision, now_s, self.sight.look, confirmed)

    async def _carry_out_elsewhere(self, decision: Decision, now_s: float) -> list[Taken]:
        """On an engine of the other kind. Raises ActError."""
        speculate = decision.state.mode is not Mode.AUTOREGRESSIVE
        reason = decision.why.partition(": ")[2]
        # A person's wish is not kept waiting.
        waits = self._waits_for() if speculate and decision.signal is not Signal.HELD else ""
        if waits:
            return self._stay(f"{decision.before} stays: {reason}; {waits}", now_s)
        await self._actuator.ask_restart(speculate=speculate, why=reason)
        self.patience.took()
        self._pending = self._awaiting(decision, now_s)
        return self._stay(self._pending.asked_for(now_s), now_s)

    def _waits_for(self) -> str:
        """What keeps a speculating engine from being asked for now; empty where nothing does."""
        if self._deployment.comeback is Comeback.BY_HAND:
            return "comeback is by_hand: hold a rung that drafts, then release it"
        seen = self.seen
        if self._deployment.comeback is Comeback.BESIDE or seen is None or (seen.running == 0 and seen.queue_most == 0):
            return ""
        running, queue = ("not reported" if n is None else f"{n:.3g}" for n in (seen.running, seen.queue_most))
        return f"comeback is in_place: waits until nothing runs or queues for a window; running {running}, queue depth up to {queue}"

    # What came of it.

    def _carry_on(self, decision: Decision, now_s: float) -> list[Taken]:
        self.state = decision.state
        return self.story.moved(decision, now_s)

    def _failed(self, wanted: Rung, error: ActError, now_s: float) -> list[Taken]:
        self.patience.failed(wanted, now_s, str(error))
        return self._stay(f"{self.state.rung if self.state else 'nothing'} stays: {error}", now_s)

    def _stay(self, why: str, now_s: float) -> list[Taken]:
        return self.story.stays(why, str(self.state.rung) if self.state else "", now_s)
