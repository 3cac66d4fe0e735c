"""Which engine takes requests, and which one after it: the order of moves. Touches the world only through what it is handed.

    STARTING   no engine has served yet: attempts in the order the launch gives them (with speculation, once more, without)
       │ its checks passed
    SERVING ◄──────────────────────────────────────────────────┐
       │ it ended or hung, or one without speculation was asked  │ a stand-in passed its checks
       ├──► REPLACING  no engine takes requests ─────────────────┤ (as often as the back-off allows, then the deployment fails)
       │ a restart with speculation was asked                    │
       └──► RETURNING  beside: the one that serves goes on ──────┘ the speculating one passed its checks and is at the lowest rung;
                       in place: it finishes and ends first        or it failed, and the one that served goes on or is started again

One move at a time: whoever asks during one is refused with a reason, but who says that the engine hangs which serves meanwhile.
Requests move only to an engine whose checks passed, and the route says that none takes them before the engine that did is ended. An
engine that is replaced because somebody wishes it finishes what it runs; one that hangs is killed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from spec_toolkit.launch.back_off import BackOff
from spec_toolkit.launch.engines import Engine
from spec_toolkit.launch.events import Kind
from spec_toolkit.launch.failure import EngineGone, Failure
from spec_toolkit.launch.fleet import Fleet, StartFailed
from spec_toolkit.launch.order import Order, Step
from spec_toolkit.launch.record import Launch, Record
from spec_toolkit.launch.route import Routes
from spec_toolkit.launch.smoke import Smoke
from spec_toolkit.launch.spec import LaunchSpec
from spec_toolkit.terms import Comeback, Mode, mode_at

_NO_STAND_IN = "the recipe does not let an engine run without speculation"


class _GivenUp(Exception):  # noqa: N818 - what happened
    """There is no engine, and there will be none."""

    def __init__(self, failed: Failure) -> None:
        super().__init__(failed.text)
        self.failure = failed


class Succession:
    def __init__(  # noqa: PLR0913, PLR0917 - what it acts on
        self,
        launch: Launch,
        record: Record,
        routes: Routes,
        fleet: Fleet,
        opened: Callable[[], Awaitable[None]],
        back_off: BackOff,
    ) -> None:
        """`opened` is awaited before the first engine counts as serving; `back_off` is for stand-ins that end."""
        self._launch, self._record, self._routes, self._fleet = launch, record, routes, fleet
        self._opened, self._back_off = opened, back_off
        self._speculating = next((spec for spec in launch.attempts if spec.speculates), None)
        self._stand_in = launch.attempts[-1]  # without speculation wherever the recipe allows that
        self._order: asyncio.Future[Order] = asyncio.get_running_loop().create_future()
        self._hang: asyncio.Future[Order] = (
            asyncio.get_running_loop().create_future()
        )  # told while another engine returns
        self.step = Step.STARTING
        self.serving: Engine | None = None

    async def run(self) -> Failure:
        """For as long as there is an engine, or one to come; returns why there is none."""
        try:
            serving = await self._first()
            while True:
                serving = await self._next(serving)
        except _GivenUp as given_up:
            return given_up.failure

    def ask(self, order: Order) -> str:
        """Why it is refused; empty: it is taken, and done when the route says so."""
        if self.step is Step.RETURNING and self.serving is not None and order.hung:
            if not self._hang.done():
                self._hang.set_result(order)
            return ""
        refused = self._refuse(order)
        if not refused:
            self._order.set_result(order)
        return refused

    def _refuse(self, order: Order) -> str:
        serving, speculate = self.serving, order.speculate
        if self.step is not Step.SERVING or serving is None:
            return self.step.value
        refusals = (
            (self._order.done(), "another restart was just asked for"),
            (speculate and self._speculating is None, "the recipe does not let an engine speculate"),
            (speculate and serving.spec.speculates, "the engine that serves was started with speculation"),
            (speculate and self._fleet.is_retiring, "the engine that served before still finishes what it runs"),
            # Another would only be as that one is; of one that hangs that is enough.
            (not speculate and not order.hung and self._stand_in.speculates, _NO_STAND_IN),
        )
        return next((why for holds, why in refusals if holds), "")

    async def _first(self) -> Engine:
        steps, reason = self._launch.entry_steps, ""
        for spec, following in zip(self._launch.attempts, (*self._launch.attempts[1:], None), strict=True):
            try:
                engine, seen = await self._fleet.bring_up(spec, steps, self._show_phase)
            except StartFailed as failed:
                if failed.failure.final or following is None:
                    raise _GivenUp(failed.failure) from None
                self._count_lost(spec)
                reason = self._announce(failed.failure, spec, following)
                continue
            self._route_to(engine, steps, "the first engine passed its checks")
            await self._opened()
            self._show_serving(engine, seen, steps, reason)
            self._record.event(Kind.READY, f"serving at {self._record.status.address}", phase="ready")
            return engine
        raise AssertionError("a launch has an attempt")

    def _announce(self, failed: Failure, this: LaunchSpec, following: LaunchSpec) -> str:
        """Returns why the following attempt is not as the recipe would have it."""
        if following.speculates == this.speculates:
            self._record.event(Kind.RETRY, f"{failed.text} Trying once more.", exit_code=failed.exit_code)
            return ""
        reason = f"speculation could not start: {failed.text}"
        self._record.note(mode=Mode.AUTOREGRESSIVE.value, reason=reason)
        self._record.event(Kind.FALLBACK, f"{failed.text} Starting without speculation.", exit_code=failed.exit_code)
        return reason

    async def _next(self, serving: Engine) -> Engine:
        """The engine that serves after this one; the same where a returning one failed."""
        self._order = asyncio.get_running_loop().create_future()
        self.step = Step.SERVING
        ending = asyncio.create_task(serving.gone())
        try:
            happens: set[asyncio.Future[Any]] = {ending, self._order}
            await asyncio.wait(happens, return_when=asyncio.FIRST_COMPLETED)
            gone = ending.result() if ending.done() else None
        finally:
            await _dropped(ending)
        if gone is not None:
            failed = await self._lose(serving, gone)
            return await self._replace(failed, same_kind=self._is_stand_in(serving))
        order = self._order.result()
        if not order.speculate:
            return await self._replace_asked(serving, order)
        if self._launch.comeback is Comeback.BESIDE:
            return await self._return_beside(serving, order)
        return await self._return_in_place(serving, order)

    async def _lose(self, old: Engine, gone: EngineGone) -> Failure:
        """It ended unasked, or hangs. Raises _GivenUp where another could only end the same way."""
        self._route_away(f"engine {old.number} ended", lost=int(old.spec.speculates))
        failed = await self._fleet.fail(old, gone, ready=True)
        if failed.final:
            raise _GivenUp(failed)
        self._record.event(Kind.LOST, failed.text, exit_code=failed.exit_code, runbook=failed.runbook)
        return failed

    async def _replace_asked(self, old: Engine, order: Order) -> Engine:
        self._route_away(order.why)
        self._record.event(Kind.RESTART, f"restarting the engine: {order.why}")
        if order.hung:
            await self._fleet.kill(old)  # what it ran goes on elsewhere from its last token
        else:
            await self._fleet.end(old, self._launch.drain_seconds)  # not every request could go on elsewhere
        return await self._replace(Failure(text=order.why, runbook=""), same_kind=self._is_stand_in(old))

    async def _replace(self, failed: Failure, *, same_kind: bool) -> Engine:
        """Start the stand-in until it serves; `same_kind`: what ended was one already, and counts."""
        spec, steps = self._stand_in, self._launch.return_steps
        # A stand-in's own end is not why there is one.
        reason = self._record.status.reason if same_kind and not spec.speculates else failed.text
        self._record.note(mode=self._mode(speculates=spec.speculates, steps=steps), reason=reason)
        wait_seconds = self._back_off.wait_after_end() if same_kind else 0.0
        while True:
            if wait_seconds is None:
                many = f"That was engine {self._back_off.most + 1} within an hour: none is started any more."
                raise _GivenUp(replace(failed, text=f"{failed.text} {many}"))
            await asyncio.sleep(wait_seconds)
            try:
                engine, seen = await self._fleet.bring_up(spec, steps)
            except StartFailed as again:
                failed = again.failure
                if failed.final:
                    raise _GivenUp(failed) from None
                self._count_lost(spec)
                self._record.event(Kind.RETRY, f"{failed.text} Trying again.", exit_code=failed.exit_code)
                wait_seconds = self._back_off.wait_after_end()
                continue
            return self._move_to(engine, seen, steps, reason)

    async def _return_beside(self, old: Engine, order: Order) -> Engine:
        spec, steps = self._announce_return(order), self._launch.return_steps
        self._routes.change(returning=True, why=order.why)
        self._hang = asyncio.get_running_loop().create_future()
        coming = asyncio.create_task(self._fleet.bring_up(spec, steps, self._show_return))
        ending = asyncio.create_task(old.gone())
        lost: Failure | None = None
        try:
            happens: set[asyncio.Future[Any]] = {coming, ending, self._hang}
            await asyncio.wait(happens, return_when=asyncio.FIRST_COMPLETED)
            if self._hang.done() or not coming.done():
                # What comes has begun already, and has all the room now: nothing else would serve sooner.
                hangs = self._hang.done()
                lost = await self._lose(old, EngineGone(self._hang.result().why) if hangs else ending.result())
                await asyncio.wait({coming})
            engine, seen = coming.result()
        except StartFailed as failed:
            self._return_failed(failed.failure)
            return old if lost is None else await self._replace(lost, same_kind=True)
        finally:
            await _dropped(coming, ending)
        self._move_to(engine, seen, steps, f"speculation came back: {order.why}")
        if lost is None:
            self._fleet.retire(old)
        return engine

    async def _return_in_place(self, old: Engine, order: Order) -> Engine:
        spec, steps = self._announce_return(order), self._launch.return_steps
        self._route_away(order.why)
        await self._fleet.end(old, self._launch.drain_seconds)
        try:
            engine, seen = await self._fleet.bring_up(spec, steps, self._show_return)
        except StartFailed as failed:
            self._return_failed(failed.failure)
            return await self._replace(failed.failure, same_kind=False)
        return self._move_to(engine, seen, steps, f"speculation came back: {order.why}")

    def _announce_return(self, order: Order) -> LaunchSpec:
        assert self._speculating is not None  # noqa: S101 - else the order was refused
        self.step = Step.RETURNING
        how = "beside the one that serves" if self._launch.comeback is Comeback.BESIDE else "in its place"
        self._record.event(Kind.COMEBACK, f"starting a speculating engine {how}: {order.why}")
        return self._speculating

    def _return_failed(self, failed: Failure) -> None:
        text = f"the speculating engine did not come back: {failed.text}"
        self._routes.change(returning=self.serving is None, lost=self._routes.now.lost + 1, why=text)
        self._record.note(returning="", reason=text)
        self._record.event(Kind.COMEBACK, text, exit_code=failed.exit_code, runbook=failed.runbook)

    def _count_lost(self, spec: LaunchSpec) -> None:
        if spec.speculates:
            self._routes.change(lost=self._routes.now.lost + 1, why="a speculating engine was lost")

    def _is_stand_in(self, engine: Engine) -> bool:
        return engine.spec.speculates == self._stand_in.speculates

    def _move_to(self, engine: Engine, seen: Smoke, steps: int, reason: str) -> Engine:
        self._route_to(engine, steps, f"engine {engine.number} passed its checks")
        self._show_serving(engine, seen, steps, reason)
        text = f"requests go to engine {engine.number} at {engine.spec.address}: {self._record.status.mode}"
        self._record.event(Kind.MOVED, text, phase="ready")
        return engine

    def close(self) -> None:
        """Whoever waits for an engine is to hear that none will come."""
        self.serving = None
        if self._routes.now.address:
            self._routes.lead_nowhere(returning=False, why="the deployment ends")

    def _route_to(self, engine: Engine, steps: int, why: str) -> None:
        self.serving = engine
        self._fleet.takes_requests(engine)
        self._routes.change(
            address=engine.spec.address,
            engine=engine.number,
            speculates=engine.spec.speculates,
            steps=steps if engine.spec.speculates else 0,
            returning=False,
            why=why,
        )

    def _route_away(self, why: str, *, lost: int = 0) -> None:
        if self.step is not Step.RETURNING:
            self.step = Step.REPLACING
        self.serving = None
        self._routes.lead_nowhere(returning=True, lost=self._routes.now.lost + lost, why=why)
        self._record.note(phase="restarting", engine_address="")

    def _show_serving(self, engine: Engine, seen: Smoke, steps: int, reason: str) -> None:
        self._record.note(
            phase="ready",
            mode=self._mode(speculates=engine.spec.speculates, steps=steps),
            reason=reason,
            returning="",
            address=self._launch.address_of(engine.spec),
            engine_address=engine.spec.address,
            emitted_length=seen.emitted_length,
        )

    def _show_phase(self, phase: Enum) -> None:
        self._record.note(phase=phase.value)

    def _show_return(self, phase: Enum) -> None:
        self._record.note(returning=phase.value)

    def _mode(self, *, speculates: bool, steps: int) -> str:
        if not speculates:
            return Mode.AUTOREGRESSIVE.value
        return mode_at(steps, max(self._launch.steps, default=steps)).value


async def _dropped(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
