"""The drills: each strikes once, waits for the service to fall back, and for it to come back. Act on a deployment through the stage."""

import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from spec_toolkit.prove.drills.stage import DrillFailed, Stage
from spec_toolkit.prove.streams import Ask, Endpoint
from spec_toolkit.terms import FaultPoint

_FALL_SECONDS = 120.0  # until the service has fallen back
_START_SECONDS = 300.0  # until another engine serves, on a busy machine
_CLIMB_SECONDS = 300.0  # until drafting is what the recipe says


@dataclass(frozen=True, slots=True)
class Asks:
    short: list[Ask]
    long: list[Ask]  # still running when an engine is struck seconds after they began
    lasting: list[Ask]  # longer than an engine that is replaced is given to finish: they move while it still lives


async def _comes_back(stage: Stage, asks: list[Ask], seconds: float) -> None:
    """Under two streams, beside those that still run."""
    async with stage.load(asks, at_once=2):
        await stage.until_mode("full", seconds)
        stage.is_back()


async def overload(stage: Stage, asks: Asks) -> None:
    """More requests than run at once: fewer steps, then none; and back when they are gone."""
    streams = 40
    stage.strike(f"{streams} streams at once, where 16 run at most")
    async with stage.load(asks.short, at_once=streams) as enough:
        await stage.until_mode("reduced", _FALL_SECONDS)
        await stage.until_mode("zero_draft", _FALL_SECONDS)
        stage.is_safe()
        enough.set()
        stage.say("the load ends; two streams remain")
        await _comes_back(stage, asks.short, _CLIMB_SECONDS)


async def drafter_raises(stage: Stage, asks: Asks) -> None:
    """An exception in the draft: the round goes on without drafts, in the same engine."""
    async with stage.load(asks.long, at_once=8) as enough:
        await stage.all_streaming(8)
        async with stage.engine() as engine:
            stage.strike("the draft raises")
            if not await engine.inject(FaultPoint.DRAFT_AFTER):
                raise DrillFailed("the engine does not take planted faults")
            await stage.until_mode("zero_draft", _FALL_SECONDS)
            stage.is_safe()
        enough.set()
        await _comes_back(stage, asks.short, _CLIMB_SECONDS)


async def scheduler_killed(stage: Stage, asks: Asks) -> None:
    """The engine's heart is killed under sixteen streams: they go on in another engine, which does not draft."""
    what = "kill -9 of the scheduler under 16 streams, chat and /generate"
    await _engine_is_replaced(stage, asks, signal.SIGKILL, what, streams=16)


async def engine_hung(stage: Stage, asks: Asks) -> None:
    """The scheduler stands still and says nothing, as in a collective that never ends."""
    what = "the scheduler is stopped (SIGSTOP) under 8 streams"
    await _engine_is_replaced(stage, asks, signal.SIGSTOP, what, streams=8)


async def _engine_is_replaced(stage: Stage, asks: Asks, number: signal.Signals, what: str, *, streams: int) -> None:
    async with stage.load(asks.long, at_once=streams) as enough:
        await stage.all_streaming(streams)
        victim = stage.scheduler()
        stage.strike(what)
        stage.signal(victim, number)
        await stage.until_mode("autoregressive", _START_SECONDS)
        await stage.until_engine_serves(_START_SECONDS)
        stage.is_safe()
        enough.set()
        await _comes_back(stage, asks.lasting, _START_SECONDS + _CLIMB_SECONDS)


async def sidecar_killed(stage: Stage, asks: Asks) -> None:
    """Nobody watches for a moment: the engine stays as it is, and another sidecar carries on with what the last one knew."""
    async with stage.load(asks.long, at_once=8):
        await stage.all_streaming(8)
        before, victim = stage.mode(), stage.sidecar()
        stage.strike(f"kill -9 of the sidecar; the mode is {before}")
        stage.signal(victim, signal.SIGKILL)
        await stage.until("another sidecar", lambda: stage.is_sidecar_other_than(victim), _FALL_SECONDS)
        stage.is_safe()
        await stage.until(f"the mode {before}", lambda: stage.mode() == before, _FALL_SECONDS)
        stage.is_back()


DRILLS: Mapping[str, Callable[[Stage, Asks], Awaitable[None]]] = {
    "overload": overload,
    "drafter-raises": drafter_raises,
    "scheduler-killed": scheduler_killed,
    "engine-hung": engine_hung,
    "sidecar-killed": sidecar_killed,
}


def make_asks(messages: list[str], prompts: list[str]) -> Asks:
    """Half chat, half `/generate`."""

    def both(tokens: int) -> list[Ask]:
        chat = [Ask(Endpoint.CHAT, message, tokens) for message in messages]
        plain = [Ask(Endpoint.GENERATE, prompt, tokens) for prompt in prompts]
        return [each for pair in zip(chat, plain, strict=True) for each in pair]

    return Asks(short=both(48), long=both(320), lasting=both(1200)[:2])
