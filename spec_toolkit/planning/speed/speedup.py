"""Whether a round of speculation beats steps without it, and where that turns. Pure.

A round costs its draft passes, one verify pass and what lies between; an autoregressive step costs T1. Speculation is faster by
S = E(K) x T1 / (T_draft + T_verify + T_overhead), and pays while the emitted length is above break-even, the round's cost in steps.
Both move with the batch, and not in one direction: a mixture of experts may lose at batch 1, win at 8 and lose at 64 (theory.md,
section 3). Figures are of one recipe on one machine; nothing here carries them over to another.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from spec_toolkit.facts.evidence import Evidence, Row
from spec_toolkit.planning.limits import BreakEven


def speedup(emitted_length: float, step_seconds: float, round_seconds: float) -> float:
    """Tokens per second over those of an engine without speculation; below 1 it loses."""
    return emitted_length * step_seconds / round_seconds


def break_even_length(step_seconds: float, round_seconds: float) -> float:
    """The emitted length at which a round costs as much as the steps it stands for."""
    return round_seconds / step_seconds


def round_seconds(row: Row) -> float:
    """Of one pass over the batch: each of its requests gets an emitted length of tokens out of it, one without speculation."""
    length = 1.0 if row.num_steps is None else row.emitted_length
    assert length is not None  # noqa: S101 - a record of a row that speculates has one
    return row.batch * length / row.tokens_per_second


class Point(Struct, frozen=True, kw_only=True):
    """What was measured with so many steps at this batch, beside the autoregressive row of the same batch."""

    steps: int
    batch: int
    emitted_length: float
    break_even: float  # tokens per round
    speedup: float

    @property
    def pays(self) -> bool:
        return self.speedup > 1


def points(evidence: Evidence) -> tuple[Point, ...]:
    """Ascending by steps, then batch; none where no batch has both a row that drafts and an autoregressive one."""
    plain = {row.batch: round_seconds(row) for row in evidence.rows if row.num_steps is None}
    found = [
        _point(row.num_steps, row.emitted_length, row, plain[row.batch])
        for row in evidence.rows
        if row.num_steps and row.emitted_length is not None and row.batch in plain
    ]
    return tuple(sorted(found, key=lambda point: (point.steps, point.batch)))


def _point(steps: int, emitted_length: float, row: Row, step_seconds: float) -> Point:
    seconds = round_seconds(row)
    return Point(
        steps=steps,
        batch=row.batch,
        emitted_length=emitted_length,
        break_even=break_even_length(step_seconds, seconds),
        speedup=speedup(emitted_length, step_seconds, seconds),
    )


def break_evens(evidence: Evidence, steps: Sequence[int]) -> tuple[BreakEven, ...]:
    """What the policy reads, for the step counts the engine is started with."""
    return tuple(
        BreakEven(steps=point.steps, batch=point.batch, emitted_length=point.break_even)
        for point in points(evidence)
        if point.steps in steps
    )


class Turn(Struct, frozen=True, kw_only=True):
    """A concurrency at which speculation begins or ceases to pay."""

    batch: float  # on the line between two measured ones
    pays_above: bool


def turns(evidence: Evidence, steps: int) -> tuple[Turn, ...]:
    """Break-even concurrency, ascending; several where a mixture of experts turns more than once, none where nothing turns."""
    return tuple(_turns([point for point in points(evidence) if point.steps == steps]))


def _turns(measured: Sequence[Point]) -> Iterator[Turn]:
    for low, high in pairwise(measured):
        if low.pays == high.pays:
            continue
        below, above = (point.emitted_length - point.break_even for point in (low, high))
        share = below / (below - above)
        yield Turn(batch=low.batch + share * (high.batch - low.batch), pays_above=high.pays)
