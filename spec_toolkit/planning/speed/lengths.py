"""From the chance that a draft is accepted to the length a round emits, and back. Pure.

A chain of K drafts is accepted up to its first wrong one, so position i counts with the chance that all drafts up to it are right, its
survival s_i: the product of the conditional chances a_1 .. a_i. A round emits E(K) = 1 + s_1 + ... + s_K tokens, the bonus included
(theory.md, section 3).
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise


def conditional_of(survival: Sequence[float]) -> tuple[float, ...]:
    """a_i, per position, [K]; behind a position that nothing survives there is nothing to ask, and the list ends."""
    found: list[float] = []
    for before, here in pairwise((1.0, *survival)):
        if before <= 0:
            break
        found.append(here / before)
    return tuple(found)


def emitted_length(survival: Iterable[float]) -> float:
    """E(K), tokens per round, bonus included."""
    return 1 + sum(survival)


def emitted_lengths(survival: Iterable[float]) -> tuple[float, ...]:
    """E(1) .. E(K)."""
    return tuple(accumulate(survival, initial=1.0))[1:]


def survival_of_lengths(lengths: Sequence[float]) -> tuple[float, ...]:
    """s_i from E(1) .. E(K) that were each measured in a run of its own: the differences, as far as they can be survivals.

    Between two runs there is noise, so that a difference can be negative, or larger than the one before it, where survival can only
    fall from 1 to 0. Neighbours in the wrong order are replaced by their mean, which is the nearest falling sequence (least squares).
    """
    blocks: list[tuple[float, int]] = []  # mean, positions
    for before, here in pairwise((1.0, *lengths)):
        mean, count = here - before, 1
        while blocks and blocks[-1][0] < mean:
            earlier, size = blocks.pop()
            mean, count = (earlier * size + mean * count) / (size + count), size + count
        blocks.append((mean, count))
    return tuple(min(1.0, max(0.0, mean)) for mean, count in blocks for _ in range(count))
