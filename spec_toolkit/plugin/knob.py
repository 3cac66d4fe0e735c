"""The one command that reaches a running engine, {epoch, mode, steps}, and what this process made of it. Version-free, touches nothing.

The engine hands a command to every rank before it builds the next batch, so ranks that judge it alike change in the same round. What
is judged is therefore only what all of them share: the command, the epoch in force and the step counts the engine was started with.
A command is judged as a whole and takes effect as a whole. Nothing raises: an exception at that point would end the rank.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spec_toolkit.terms import KNOB_KEYS, KnobAnswer, KnobMode, mode_at

KEYS = frozenset(KNOB_KEYS)

_LARGEST = 2**53  # up to here a JSON number read as a float is the number that was written


@dataclass(frozen=True, slots=True)
class Setting:
    """What is in force; replaced whole, never changed."""

    epoch: int  # 0: as started, no command taken yet
    mode: KnobMode
    steps: int  # the most draft passes in a round
    reason: str = ""  # why it is not the command's; empty if it is


class Knob:
    """One in each scheduler process. Armed once the engine has something that can follow it."""

    def __init__(self) -> None:
        self._candidates: tuple[int, ...] = ()
        self._setting: Setting | None = None
        self._last = KnobAnswer.TAKEN
        self._taken = 0
        self._refused = 0
        self._rounds = 0
        self._verify_rounds = 0
        self._accepted_drafts = 0
        self._accepted_histogram: list[int] = []

    def arm(self, candidates: Iterable[int], steps: int) -> None:
        """`candidates`: the step counts the engine prepared; `steps`: the one it starts with. ValueError if that is none of them."""
        ascending = tuple(sorted(set(candidates)))
        if steps not in ascending:
            raise ValueError(f"the engine starts with {steps} steps, which are not among its candidates {ascending}")
        self._candidates = ascending
        self._setting = Setting(0, mode_of(steps, ascending), steps)
        self._accepted_histogram = [0] * (max(ascending) + 1)

    @property
    def candidates(self) -> tuple[int, ...]:
        """Ascending; empty while not armed."""
        return self._candidates

    @property
    def setting(self) -> Setting | None:
        """None while not armed."""
        return self._setting

    def take(self, command: Mapping[str, object]) -> KnobAnswer:
        """Judge the command and, if it is good, put it in force. Never raises."""
        try:
            answer, setting = judge(command, self._setting, self._candidates)
        except Exception:  # noqa: BLE001 - whatever it is, raising here would end the rank and with it the engine
            answer, setting = KnobAnswer.FAILED, self._setting
        self._setting = setting
        self._last = answer
        self._taken += answer is KnobAnswer.TAKEN
        self._refused += answer is not KnobAnswer.TAKEN
        return answer

    def fall(self, reason: str) -> None:
        """To the fewest steps there are, zero where the engine prepared it; only a newer command leads back up.

        Where several ranks share a round all of them must do this before the same one. Nothing happens while not armed.
        """
        if self._setting is not None:
            self._setting = Setting(self._setting.epoch, KnobMode.ZERO_DRAFT, min(self._candidates), reason)

    def begin_round(self) -> int:
        """The steps of the round that begins. Raises RuntimeError while not armed."""
        if self._setting is None:
            raise RuntimeError("the knob is not armed, and a round asks it for its steps")
        self._rounds += 1
        return self._setting.steps

    def end_round(self, accepted: Sequence[int]) -> None:
        """`accepted`: drafts the target agreed with, of each request of a verify pass; bonus tokens not counted."""
        self._verify_rounds += len(accepted)
        self._accepted_drafts += sum(accepted)
        top = len(self._accepted_histogram) - 1
        for drafts in accepted:
            self._accepted_histogram[min(max(drafts, 0), top)] += 1  # never raising: that would end the rank

    def row(self, *, dp: int, rank: int) -> dict[str, object]:
        """What this rank reports. Empty while not armed."""
        if self._setting is None:
            return {}
        return {
            "dp": dp,
            "rank": rank,  # within the tensor-parallel group
            "epoch": self._setting.epoch,
            "mode": int(self._setting.mode),
            "steps": self._setting.steps,
            "candidates": list(self._candidates),
            "taken": self._taken,
            "refused": self._refused,
            "last": int(self._last),
            "reason": self._setting.reason,
            "rounds": self._rounds,  # decode rounds of this rank, those it idled through included
            "verify_rounds": self._verify_rounds,
            "accepted_drafts": self._accepted_drafts,
            "accepted_histogram": list(self._accepted_histogram),
        }


def judge(
    command: Mapping[str, object], now: Setting | None, candidates: tuple[int, ...]
) -> tuple[KnobAnswer, Setting | None]:
    """The answer, and the setting that is in force after it."""
    if now is None:
        return KnobAnswer.NO_CONTROLLER, now
    if set(command) != KEYS:
        return KnobAnswer.WRONG_KEYS, now
    epoch, mode, steps = (whole(command[key]) for key in KNOB_KEYS)
    if epoch is None or mode is None or steps is None:
        return KnobAnswer.NOT_WHOLE, now
    refusals = (
        (epoch <= now.epoch, KnobAnswer.STALE),
        (mode not in set(KnobMode), KnobAnswer.UNKNOWN_MODE),
        (steps not in candidates, KnobAnswer.UNKNOWN_STEPS),
        (mode != mode_of(steps, candidates), KnobAnswer.CONTRADICTION),
    )
    refused = next((answer for is_so, answer in refusals if is_so), None)
    return (KnobAnswer.TAKEN, Setting(epoch, KnobMode(mode), steps)) if refused is None else (refused, now)


def mode_of(steps: int, candidates: tuple[int, ...]) -> KnobMode:
    """The mode that these steps are, where `candidates` are all there is."""
    return KnobMode[mode_at(steps, max(candidates)).name]


def whole(value: object) -> int | None:
    """None for what is no finite whole number. A boolean is none, though Python counts with it; 3.0 is one, as JSON has no integers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not abs(value) <= _LARGEST:  # NaN compares false
        return None
    return int(value) if value == int(value) else None


KNOB = Knob()  # one per process: what the command's hook sets, the policy's hook reads
