"""The ladder and all its moves, in one table. Pure.

A recipe's ladder is made of rungs, from the bottom:

    autoregressive, zero_draft, reduced(1), reduced(2), ..., full

less what is not allowed and the widths the engine was not started with. The table says, for a mode and a signal, which mode the service
moves *towards*. A slope (load, acceptance, profit) goes one rung in that direction, so that from full towards reduced the widest reduced
rung comes first. A fault goes there at once. A pair that is not in the table means: stay.
"""

from collections.abc import Mapping

from msgspec import Struct

from spec_toolkit.planning.limits import Limits
from spec_toolkit.terms import Mode, Signal

NEXT: Mapping[tuple[Mode, Signal], Mode] = {
    (Mode.FULL, Signal.LOAD_HIGH): Mode.REDUCED,
    (Mode.FULL, Signal.ACCEPTANCE_LOW): Mode.REDUCED,
    (Mode.FULL, Signal.DRAFT_FAULT): Mode.ZERO_DRAFT,
    (Mode.FULL, Signal.TELEMETRY_STALE): Mode.ZERO_DRAFT,
    (Mode.FULL, Signal.ENGINE_LOST): Mode.AUTOREGRESSIVE,
    (Mode.REDUCED, Signal.LOAD_HIGH): Mode.ZERO_DRAFT,
    (Mode.REDUCED, Signal.ACCEPTANCE_LOW): Mode.ZERO_DRAFT,
    (Mode.REDUCED, Signal.DRAFT_FAULT): Mode.ZERO_DRAFT,
    (Mode.REDUCED, Signal.TELEMETRY_STALE): Mode.ZERO_DRAFT,
    (Mode.REDUCED, Signal.ENGINE_LOST): Mode.AUTOREGRESSIVE,
    (Mode.REDUCED, Signal.PROFIT_POSSIBLE): Mode.FULL,
    (Mode.ZERO_DRAFT, Signal.ENGINE_LOST): Mode.AUTOREGRESSIVE,
    (Mode.ZERO_DRAFT, Signal.PROFIT_POSSIBLE): Mode.REDUCED,  # never straight to full
    (Mode.AUTOREGRESSIVE, Signal.PROFIT_POSSIBLE): Mode.ZERO_DRAFT,  # a fresh speculating engine that passed its checks
}

# Facts: they skip the dwell time, and only they may take the speculating engine away.
FAULTS = frozenset({Signal.DRAFT_FAULT, Signal.ENGINE_LOST})
SLOPES = frozenset({Signal.LOAD_HIGH, Signal.ACCEPTANCE_LOW, Signal.PROFIT_POSSIBLE})

_FROM_THE_BOTTOM = (Mode.AUTOREGRESSIVE, Mode.ZERO_DRAFT, Mode.REDUCED, Mode.FULL)


class Rung(Struct, frozen=True):
    mode: Mode
    steps: int  # draft passes in a round; 0 where nothing is drafted

    @property
    def height(self) -> tuple[int, int]:
        """Rungs are compared by it."""
        return _FROM_THE_BOTTOM.index(self.mode), self.steps

    def __str__(self) -> str:
        return f"{self.mode.value}({self.steps})" if self.mode is Mode.REDUCED else self.mode.value


# The limits of one deployment are asked for their ladder several times a decision, and hashing them costs more than the rest of it:
# so by identity, with the limits kept beside it, which keeps the identity theirs.
_LADDERS: dict[int, tuple[Limits, tuple[Rung, ...]]] = {}
_MOST_LADDERS = 16


def ladder(limits: Limits) -> tuple[Rung, ...]:
    """From the bottom."""
    known = _LADDERS.get(id(limits))
    if known is not None and known[0] is limits:
        return known[1]
    if len(_LADDERS) >= _MOST_LADDERS:
        _LADDERS.clear()
    _LADDERS[id(limits)] = limits, (rungs := _make_ladder(limits.steps, limits.modes))
    return rungs


def _make_ladder(steps: tuple[int, ...], modes: tuple[Mode, ...]) -> tuple[Rung, ...]:
    every = (
        Rung(Mode.AUTOREGRESSIVE, 0),
        Rung(Mode.ZERO_DRAFT, 0),
        *(Rung(Mode.REDUCED, width) for width in steps[1:-1]),
        Rung(Mode.FULL, steps[-1]),
    )
    return tuple(rung for rung in every if rung.mode in modes)


def destination(rung: Rung, signal: Signal, limits: Limits) -> Rung | None:
    """Where the table leads on this ladder; None: stay."""
    towards = NEXT.get((rung.mode, signal))
    if towards is None:
        return None
    if signal is Signal.PROFIT_POSSIBLE:
        return above(rung, limits)
    return _below(rung, signal, towards, limits)


def above(rung: Rung, limits: Limits) -> Rung | None:
    """One rung up. None at the top, and where an autoregressive engine would be replaced by one at full with nothing between."""
    rungs = ladder(limits)
    position = rungs.index(highest_at_most(rung, limits)) + 1
    if position == len(rungs):
        return None
    straight_to_full = rungs[position].mode is Mode.FULL and rung.mode is Mode.AUTOREGRESSIVE
    return None if straight_to_full else rungs[position]


def highest_at_most(rung: Rung, limits: Limits) -> Rung:
    """The rung itself where it is on the ladder; else the next lower one. Autoregressive is on every ladder."""
    rungs = ladder(limits)
    if rung in rungs:
        return rung
    return next(lower for lower in reversed(rungs) if lower.height < rung.height and lower.steps <= rung.steps)


def _below(rung: Rung, signal: Signal, towards: Mode, limits: Limits) -> Rung | None:
    """The next rung down for a slope, the first one as low as `towards` for the rest; off the engine's speculation for a fault only."""
    height = rung.height
    for lower in reversed(ladder(limits)):
        if lower.height >= height or (signal not in SLOPES and lower.height > (_FROM_THE_BOTTOM.index(towards), 0)):
            continue
        return None if lower.mode is Mode.AUTOREGRESSIVE and signal not in FAULTS else lower
    return None
