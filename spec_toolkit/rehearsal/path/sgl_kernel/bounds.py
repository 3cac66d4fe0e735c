"""Checks that a kernel's indices stay inside the tensors they index.

The compiled kernels these replace take raw pointers; torch indexing, used here, counts a negative index from the end.
Either way a wrong index would touch another request's rows in silence, so each kernel checks first and names itself.
"""

import torch


class OutOfBoundsError(ValueError):
    """An index, a length or a shape that a kernel was given points outside what it may touch."""


def inside(op: str, what: str, indices: torch.Tensor, size: int) -> None:
    """Every value of `indices` (any integer dtype, any shape) lies in [0, size)."""
    if indices.numel() == 0:
        return
    low, high = int(indices.min()), int(indices.max())
    if low < 0 or high >= size:
        raise OutOfBoundsError(f"{op}: {what} holds {low if low < 0 else high}; only 0 to {size - 1} exist.")


def fits(op: str, what: str, needed: int, size: int) -> None:
    """`needed` elements fit into `size`."""
    if needed > size:
        raise OutOfBoundsError(f"{op}: {what} has {size} elements, {needed} are needed.")


def equal(op: str, what: str, found: object, expected: object) -> None:
    """A shape or a length is the one that the caller's other arguments imply."""
    if found != expected:
        raise OutOfBoundsError(f"{op}: {what} is {found}; the other arguments imply {expected}.")


def planned(op: str, what: str, rows: torch.Tensor, batch: int) -> torch.Tensor:
    """The first `batch` of `rows`; what stands behind them must be the engine's padding, which is zero."""
    fits(op, what, batch, rows.numel())
    behind = rows[batch:]
    if behind.any():
        raise OutOfBoundsError(
            f"{op}: {what} has {rows.numel()} elements for a batch of {batch}; padding is 0, behind the batch stands "
            f"{int(behind[behind != 0][0])}."
        )
    return rows[:batch]


def spans(op: str, starts: list[int], ends: list[int], size: int) -> None:
    """Each [start, end) is a span, possibly empty, inside a row of `size` elements."""
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if not 0 <= start <= end <= size:
            raise OutOfBoundsError(f"{op}: request {row} spans {start} to {end}; its row has {size} slots.")
