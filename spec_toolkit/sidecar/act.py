"""Changes an engine, and believes it only when every rank says so. Touches the world.

Within one engine by the knob; from an engine that drafts to one that cannot, and back, by asking the supervisor, who owns the engines.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.ranks import RankState
from spec_toolkit.errors import ActError, EngineError
from spec_toolkit.launch import control
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.policy.modes import Rung
from spec_toolkit.sidecar.records import Confirmed
from spec_toolkit.sidecar.scrape import common_rung
from spec_toolkit.terms import KnobMode

ACT_SECONDS = 10.0  # from the decision to every rank's word; a long prefill may stand before a command for some seconds
_WHY_CHARACTERS = 500  # of a reason that is handed on
_AGAIN_SECONDS = 0.005  # before each read: long enough for the command to be on its way
_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = (
    60.0  # a change that is refused is asked for as long as it is wanted, but no more often than this
)
_LARGEST_EXPONENT = 16  # by then the longest wait is long reached


class Patience:
    """When a change that did not take may be asked for again; each failure doubles the wait."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random  # [0, 1): many deployments that failed together do not try again together
        self._what: object = None
        self._until_s = 0.0
        self.failures = 0  # in a row
        self.problem = ""  # of the last one

    def allows(self, what: object, now_s: float) -> bool:
        """Another change than the one that failed is not waited for."""
        return what != self._what or now_s >= self._until_s

    def failed(self, what: object, now_s: float, problem: str) -> None:
        self.failures = self.failures + 1 if what == self._what else 1
        longest = min(_FIRST_WAIT_SECONDS * 2 ** min(self.failures - 1, _LARGEST_EXPONENT), _LONGEST_WAIT_SECONDS)
        self._what, self._until_s, self.problem = what, now_s + longest * (1 + self._random()) / 2, problem

    def took(self) -> None:
        self._what, self._until_s, self.failures, self.problem = None, 0.0, 0, ""


class Actuator(Protocol):
    """What the controller does to the world."""

    async def set_rung(self, rung: Rung, known: Sequence[RankState]) -> Confirmed:
        """`known`: the rows as last read, empty if they were not. ActError where it did not take."""

    async def ask_restart(self, *, speculate: bool, why: str, hung: bool = False) -> None:
        """Returns when the supervisor has agreed to try. ActError where it has not.

        `hung`: the engine that serves is lost, and nothing it runs is waited for.
        """


class World:
    """The one that does it."""

    def __init__(self, folder: Folder, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self.engine: EngineClient | None = None  # the one that takes requests now

    async def set_rung(self, rung: Rung, known: Sequence[RankState]) -> Confirmed:
        if self.engine is None:
            raise _not_taken(rung, (), "no engine takes requests now")
        return await set_rung(self.engine, rung, known, self._clock)

    async def ask_restart(self, *, speculate: bool, why: str, hung: bool = False) -> None:
        said_so = {"hung": True} if hung else {}
        answer = await control.ask(self._folder, "restart", speculate=speculate, why=why[:_WHY_CHARACTERS], **said_so)
        if not answer.get("ok"):
            wanted = "speculating" if speculate else "autoregressive"
            said = answer.get("why") or "no reason given"
            raise ActError.of(
                "act.not-taken", "actuator", f"asked for an engine {wanted}, the supervisor refused: {said}"
            )


async def set_rung(
    engine: EngineClient,
    rung: Rung,
    known: Sequence[RankState],
    clock: Callable[[], float],
    seconds: float = ACT_SECONDS,
) -> Confirmed:
    """Command it with a new epoch and read every rank back. ActError where they do not all have it after `seconds`.

    Where they all have it already, by an earlier call that ran out of time or by the engine's own doing, nothing is sent.
    """
    asked = _Asked(tuple(known))
    trouble = ""
    try:
        async with asyncio.timeout(seconds):
            asked.ranks = asked.ranks or await engine.ranks(seconds=seconds)
            if not asked.ranks:
                raise _not_taken(rung, (), "this engine has no knob")
            there = _confirmed(asked.ranks, rung, clock())
            if there is None:
                there = await _command(engine, rung, asked, clock, seconds)
            if there is not None:
                return there
    except TimeoutError:
        trouble = f" after {seconds:g} s"
    except EngineError as error:
        trouble = f"; {error}"
    answers = sorted({rank.last.name.lower() for rank in asked.ranks}) if asked.sent else []
    said = f"last answer {', '.join(answers)}" if answers else "it was not sent"
    raise _not_taken(rung, asked.ranks, f"{said}{trouble}")


@dataclass(slots=True)
class _Asked:
    """How far it has come, for the message where it breaks off."""

    ranks: tuple[RankState, ...]  # as last read
    sent: bool = False


async def _command(
    engine: EngineClient, rung: Rung, asked: _Asked, clock: Callable[[], float], seconds: float
) -> Confirmed | None:
    """None where the engine refuses.

    Command and read go out together: the engine takes in between two rounds all that has come by then, in its order, so that what
    it made of the command is known a round sooner than by asking one after the other. A read that overtakes it is made again.
    """
    epoch, mode = max(rank.epoch for rank in asked.ranks) + 1, KnobMode[rung.mode.name]
    commanding = asyncio.create_task(engine.command(epoch=epoch, mode=mode, steps=rung.steps, seconds=seconds))
    asked.sent = True
    try:
        while True:
            await asyncio.sleep(_AGAIN_SECONDS)
            is_answered = commanding.done()
            asked.ranks = await engine.ranks(seconds=seconds)
            there = _confirmed(asked.ranks, rung, clock())
            if there is not None or (is_answered and not await commanding):
                return there
    finally:
        commanding.cancel()
        await asyncio.gather(commanding, return_exceptions=True)


def _confirmed(ranks: Sequence[RankState], rung: Rung, at_s: float) -> Confirmed | None:
    epochs = {rank.epoch for rank in ranks}
    if common_rung(ranks) != rung or len(epochs) != 1:
        return None
    return Confirmed(at_s=at_s, epoch=epochs.pop(), rounds=max(rank.rounds for rank in ranks))


def _not_taken(rung: Rung, ranks: Sequence[RankState], because: str) -> ActError:
    now = common_rung(ranks)
    reports = (
        f"the engine still reports {now}" if now else "the engine reports no one mode" if ranks else "nothing was read"
    )
    return ActError.of(
        "act.not-taken",
        "actuator",
        f"asked for {rung}, {reports} ({because})",
        remedy=f"Mode stays {now}." if now else "What is in force is read before the next try.",
    )
