"""The engines of a deployment that live now: brought up until their checks pass, and ended so that nothing is left. Touches the world."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from spec_toolkit.errors import EngineError, SpecError
from spec_toolkit.launch.engines import Engine, OnPhase
from spec_toolkit.launch.events import Kind
from spec_toolkit.launch.failure import LOST_PAGE, EngineGone, Failure, failure, own_fault, refusal
from spec_toolkit.launch.record import Launch, Record
from spec_toolkit.launch.smoke import Smoke
from spec_toolkit.launch.spec import LaunchSpec

StartEngine = Callable[[int, LaunchSpec], Awaitable[Engine]]


class StartFailed(Exception):  # noqa: N818 - what happened
    """An engine did not pass its checks; nothing of it is left."""

    def __init__(self, failed: Failure) -> None:
        super().__init__(failed.text)
        self.failure = failed


class Fleet:
    def __init__(self, launch: Launch, record: Record, start: StartEngine, at_once: asyncio.Event) -> None:
        """`at_once` ends every wait for running requests."""
        self._launch, self._record, self._start, self._at_once = launch, record, start, at_once
        self._number = 0
        self._living: list[Engine] = []
        self._took: list[Engine] = []  # those of them that took requests, and may have some
        self._retiring: asyncio.Task[None] | None = None

    async def bring_up(self, spec: LaunchSpec, steps: int, on_phase: OnPhase = lambda _: None) -> tuple[Engine, Smoke]:
        """An engine whose checks passed, at `steps`; raises StartFailed. Cancelled, it leaves the engine to `close`."""
        self._number += 1
        self._record.note(attempts=self._number)
        how = "with" if spec.speculates else "without"
        self._record.event(Kind.ATTEMPT, f"starting the engine {how} speculation (engine {self._number})")
        engine: Engine | None = None
        try:
            engine = await self._start(self._number, spec)
            self._living.append(engine)
            seen = await engine.become_ready(self._launch.ready_seconds, on_phase)
            most = max(self._launch.steps, default=steps)
            if spec.speculates and steps != most:
                await engine.lower(steps, most)
                self._record.event(Kind.CHECKED, f"engine {engine.number} is at {steps} of {most} draft steps")
        except Exception as error:
            raise StartFailed(await self.fail(engine, error, ready=False)) from error
        return engine, seen

    async def fail(self, engine: Engine | None, error: Exception, *, ready: bool) -> Failure:
        """End what is left of it, and say what became of it."""
        code = 0
        if engine is not None:
            try:
                code = await self.kill(engine)
            except EngineError as undead:  # what it holds, the next one would lack
                return replace(refusal(undead), runbook=LOST_PAGE, final=True)
        if isinstance(error, EngineGone) and engine is not None:
            return failure(error, code, engine.age_seconds, engine.tail, ready=ready)
        if isinstance(error, SpecError):
            return refusal(error)
        return own_fault(error)

    async def kill(self, engine: Engine) -> int:
        """Its exit code. Raises EngineError where something of it does not die."""
        code = await engine.kill()
        self._forget(engine)
        return code

    async def end(self, engine: Engine, seconds: float) -> None:
        """It may finish what it runs for so long."""
        await engine.end(seconds, self._at_once)
        self._forget(engine)

    def takes_requests(self, engine: Engine) -> None:
        """From now on."""
        if engine not in self._took:
            self._took.append(engine)

    @property
    def took_requests(self) -> bool:
        """Whether an engine lives that did: it may still run some, though it takes no more."""
        return bool(self._took)

    async def end_all(self, seconds: float) -> None:
        """Those that took requests may finish them for so long."""
        await asyncio.gather(
            *(self.end(engine, seconds) if engine in self._took else self.kill(engine) for engine in self._living)
        )

    def retire(self, engine: Engine) -> None:
        """As `end`, in the background."""
        self._retiring = asyncio.create_task(self._retire(engine))

    @property
    def is_retiring(self) -> bool:
        return self._retiring is not None and not self._retiring.done()

    async def close(self) -> None:
        """Nothing lives when this returns; raises EngineError where something does not die."""
        if self._retiring:
            self._retiring.cancel()
            await asyncio.gather(self._retiring, return_exceptions=True)
        ended = await asyncio.gather(*(engine.kill() for engine in self._living), return_exceptions=True)
        self._living.clear()
        self._took.clear()
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    async def _retire(self, engine: Engine) -> None:
        try:
            await self.end(engine, self._launch.drain_seconds)
        except EngineError as undead:
            self._record.event(Kind.LOST, "; ".join(str(undead).splitlines()), runbook=LOST_PAGE)

    def _forget(self, engine: Engine) -> None:
        for engines in (self._living, self._took):
            if engine in engines:
                engines.remove(engine)
