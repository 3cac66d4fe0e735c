"""Faults that a rehearsal plants in the draft, by a command at run time: {point, rank, after, times}. Version-free, touches nothing.

Judged as the knob's command is: as a whole, alike on every rank, and never raising.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from spec_toolkit.plugin.knob import whole
from spec_toolkit.terms import FAULT_KEYS, FaultPoint

KEYS = frozenset(FAULT_KEYS)
ALL_RANKS = -1

_MOST = 64  # faults planted and not yet over


class PlantedFaultError(RuntimeError):
    """What a planted fault raises."""

    @classmethod
    def at(cls, point: FaultPoint) -> Self:
        return cls(f"planted at {point.name.lower()}")


@dataclass(slots=True)
class _Planted:
    point: FaultPoint
    rank: int  # of the tensor-parallel group, or ALL_RANKS
    after: int  # calls of the point that pass first
    times: int  # calls that fail then


class Injection:
    """One in each scheduler process."""

    def __init__(self) -> None:
        self._planted: list[_Planted] = []

    def take(self, command: Mapping[str, object]) -> str:
        """Plant the fault, or remove all of them where it is to happen no times. Why not, where the command is not good; else empty."""
        if set(command) != KEYS:
            return f"not exactly the keys {', '.join(FAULT_KEYS)}"
        point, rank, after, times = (whole(command[key]) for key in FAULT_KEYS)
        if point is None or rank is None or after is None or times is None:
            return "a value that is no whole number"
        refusals = (
            (point not in set(FaultPoint), f"no fault point {point}"),
            (rank < ALL_RANKS or after < 0 or times < 0, "a number below its least"),
            (times > 0 and len(self._planted) >= _MOST, f"{_MOST} faults are planted already"),
        )
        refused = next((why for is_so, why in refusals if is_so), "")
        if not refused and times == 0:
            self._planted.clear()
        elif not refused:
            self._planted.append(_Planted(FaultPoint(point), rank, after, times))
        return refused

    def due(self, point: FaultPoint, rank: int) -> bool:
        """Called at each pass of the point: whether it fails this time. Ranks a fault is not for count along."""
        fails = False
        for each in [planted for planted in self._planted if planted.point is point]:
            if each.after > 0:
                each.after -= 1
                continue
            each.times -= 1
            fails = fails or each.rank in (ALL_RANKS, rank)
            if each.times == 0:
                self._planted.remove(each)
        return fails

    def fail(self, point: FaultPoint, rank: int) -> None:
        """Raise PlantedFaultError if it is due."""
        if self.due(point, rank):
            raise PlantedFaultError.at(point)


INJECTION = Injection()  # one per process
