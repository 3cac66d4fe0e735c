"""What the policy reads of a plan: how far, how often and on what evidence it may move. Pure.

The recipe sets what a person chooses, evidence sets the break-evens, the plan the rest. The record crosses a process as a file that
people edit, so durations have their unit in the name; a record that contradicts itself cannot be made.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from spec_toolkit.terms import Mode

_LARGEST_FACTOR = 10.0
_LARGEST_EXPONENT = 64  # a back-off has long met its maximum; keeps the power finite


class BreakEven(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measured point: with this many steps, at this batch, speculation and autoregressive decoding cost the same.

    (draft + verify + overhead seconds of a round) / (seconds of an autoregressive step); theory.md, section 3.
    """

    steps: int  # draft passes in a round, >= 1
    batch: int  # requests in a round, >= 1
    emitted_length: float  # tokens per round, bonus included


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Durations are seconds. Defaults are starting points for a large model on GPUs."""

    identity: str  # the recipe's hash and the engine's version: what a crash is counted against; plan
    steps: tuple[int, ...]  # step counts the engine was started with, ascending: 0, the reduced widths, K; plan
    modes: tuple[Mode, ...]  # allowed; autoregressive always, since an engine may be lost; recipe
    break_even: tuple[BreakEven, ...] = ()  # ascending by (steps, batch); none: unknown, never judged; evidence

    dwell_seconds: float = 60.0  # least time between two moves that no fault forces; recipe
    window_seconds: float = 10.0  # least length of a window that says anything about load or acceptance
    min_rounds: int = 200  # fewest rounds that say anything about acceptance
    profit_margin: float = 0.05  # how far above break-even a remembered length must lie to be trusted; a fraction of it

    queue_high: int = 8  # requests waiting throughout a window: load is high
    queue_low: int = 1  # requests waiting at most: a rung more may be tried; between the two nothing happens

    stale_seconds: float = 5.0  # age of the last good scrape from which it is not believed: the mode is held
    blind_seconds: float = 30.0  # age from which nothing is drafted

    cool_down_seconds: float = 60.0  # after a first draft fault
    crash_cool_down_seconds: float = 600.0  # after a first crash of a speculating engine: a return is a restart
    back_off_factor: float = 2.0  # each further fault, crash or failed probe multiplies its wait, 1 to 10
    back_off_maximum_seconds: float = 7200.0
    fault_memory_seconds: float = 86_400.0  # this long without a draft fault, and the next one counts as the first

    probe_seconds: float = 120.0  # a climb undone sooner than this was a failed probe
    probe_share: float = 0.05  # most of the time that failing probes may take; (0, 1]

    crash_count: int = 3  # crashes of a speculating engine within the period that make autoregressive sticky
    crash_period_seconds: float = 86_400.0

    def __post_init__(self) -> None:
        problems = [*_wrong_numbers(self), *_wrong_steps(self), *_wrong_break_even(self)]
        # Relations are judged only between numbers that can stand.
        problems = problems or list(_contradictions(self))
        if problems:
            raise ValueError("\n".join(problems))

    def break_even_at(self, steps: int, batch: float) -> float | None:
        """Between two measured batches on the line between them; outside what was measured nothing is known."""
        below: BreakEven | None = None
        for point in self.break_even:
            if point.steps != steps:
                continue
            if point.batch == batch:
                return point.emitted_length
            if point.batch > batch:
                return None if below is None else _between(below, point, batch)
            below = point
        return None

    def cool_down_after(self, faults: int) -> float:
        return self._back_off(self.cool_down_seconds, faults)

    def cool_down_after_crashes(self, crashes: int) -> float:
        return self._back_off(self.crash_cool_down_seconds, crashes)

    def wait_after_probes(self, failed: int) -> float:
        """A failed probe lasts at most `probe_seconds`, so that waiting keeps all of them within their share."""
        return self._back_off(self.probe_seconds / self.probe_share, failed)

    def _back_off(self, first_seconds: float, count: int) -> float:
        grown = first_seconds * self.back_off_factor ** min(max(count - 1, 0), _LARGEST_EXPONENT)
        return min(grown, self.back_off_maximum_seconds)


def _between(below: BreakEven, above: BreakEven, batch: float) -> float:
    share = (batch - below.batch) / (above.batch - below.batch)
    return below.emitted_length + share * (above.emitted_length - below.emitted_length)


_SECONDS = (
    "dwell_seconds",
    "window_seconds",
    "stale_seconds",
    "blind_seconds",
    "cool_down_seconds",
    "crash_cool_down_seconds",
    "back_off_maximum_seconds",
    "fault_memory_seconds",
    "probe_seconds",
    "crash_period_seconds",
)
_COUNTS = ("min_rounds", "queue_high", "crash_count")


def _wrong_numbers(limits: Limits) -> Iterator[str]:
    for name in _SECONDS:
        value = getattr(limits, name)
        if not (math.isfinite(value) and value > 0):
            yield f"limits.{name}: is {value}; a duration is above 0 and has an end."
    for name in _COUNTS:
        value = getattr(limits, name)
        if value < 1:
            yield f"limits.{name}: is {value}; the least is 1."
    if limits.queue_low < 0:
        yield f"limits.queue_low: is {limits.queue_low}; the least is 0."
    if not 0 < limits.probe_share <= 1:
        yield f"limits.probe_share: is {limits.probe_share}; a share lies above 0 and at most at 1."
    if not 1 <= limits.back_off_factor <= _LARGEST_FACTOR:
        yield f"limits.back_off_factor: is {limits.back_off_factor}; it lies between 1 and {_LARGEST_FACTOR:g}."
    if not (math.isfinite(limits.profit_margin) and limits.profit_margin >= 0):
        yield f"limits.profit_margin: is {limits.profit_margin}; the least is 0."


def _wrong_steps(limits: Limits) -> Iterator[str]:
    steps, modes = limits.steps, limits.modes
    if not steps or steps[0] != 0 or any(a >= b for a, b in pairwise(steps)):
        yield f"limits.steps: is {list(steps)}; candidates ascend from 0."
    if len(set(modes)) != len(modes):
        yield "limits.modes: names a mode twice."
    if Mode.AUTOREGRESSIVE not in modes:
        yield "limits.modes: lacks autoregressive; a lost engine leaves nothing else. Allow it."
    if len(steps) == 1 and {Mode.FULL, Mode.REDUCED} & set(modes):
        yield "limits.steps: is [0], but a mode that drafts is allowed. Give the draft's step count."


def _wrong_break_even(limits: Limits) -> Iterator[str]:
    points = limits.break_even
    places = [(point.steps, point.batch) for point in points]
    if any(a >= b for a, b in pairwise(places)):
        yield "limits.break_even: points ascend by steps, then batch, each once."
    for point in points:
        where = f"limits.break_even at steps {point.steps}, batch {point.batch}"
        if point.steps not in limits.steps[1:] or point.batch < 1:
            yield f"{where}: steps are one of {list(limits.steps[1:])} and a batch is at least 1."
        if not (math.isfinite(point.emitted_length) and point.emitted_length > 0):
            yield f"{where}: is {point.emitted_length}; a length is a number above 0."


def _contradictions(limits: Limits) -> Iterator[str]:
    for low, high, why in (
        ("queue_low", "queue_high", "without a band between them the mode would flap"),
        ("stale_seconds", "blind_seconds", "the mode is held before it is given up"),
        ("back_off_maximum_seconds", "fault_memory_seconds", "a fault must outlive its own cool-down to count"),
    ):
        if not getattr(limits, low) < getattr(limits, high):
            yield f"limits.{low}: is {getattr(limits, low)}, {high} {getattr(limits, high)}; {why}."
    for low, high, why in (
        ("window_seconds", "dwell_seconds", "a move is judged by a window of its own"),
        ("dwell_seconds", "probe_seconds", "a probe cannot be undone sooner"),
        ("cool_down_seconds", "back_off_maximum_seconds", "the first wait is the shortest"),
        ("crash_cool_down_seconds", "back_off_maximum_seconds", "the first wait is the shortest"),
    ):
        if getattr(limits, low) > getattr(limits, high):
            yield f"limits.{low}: is {getattr(limits, low)}, {high} {getattr(limits, high)}; {why}."
    period = limits.probe_seconds / limits.probe_share
    if period > limits.back_off_maximum_seconds:
        yield (
            f"limits.back_off_maximum_seconds: is {limits.back_off_maximum_seconds}, but probes of "
            f"{limits.probe_seconds} s within a share of {limits.probe_share} stand {period:g} s apart."
        )
