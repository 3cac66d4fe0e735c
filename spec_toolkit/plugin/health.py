"""Whether the draft is sound, kept where it is computed: on the device, without the host waiting. Version-free.

The ranks of an engine vote before each verify pass: one all-reduce of a few numbers. Where any rank says "fault", or ranks that share
a batch hold different drafts, all of them verify worthless drafts of the same width, so that shapes, graphs and collectives stay
those of a good round. The vote's result is copied to the host meanwhile and read DELAY rounds later, when it has long arrived: all
ranks read the same vote before the same round. A vote carries the epoch of the command a fault happened under, so that no fault is
held against a newer one.
"""

from dataclasses import dataclass
from typing import Any

import torch

from spec_toolkit.terms import DraftPart

DELAY = (
    2  # rounds; with the overlap schedule the host has seen the results of the round before the last when it starts one
)
UNLIKE = "unlike_drafts"  # rounds in which ranks that share a batch held different drafts, and no rank had said "fault"

_PARTS = tuple(DraftPart)
_BASE = 0x5851F42D4C957F2D  # odd and without pattern: a multiplier of Knuth's
_LARGEST = 2**62  # above every mark of a draft, and so is its negation below


@dataclass(frozen=True, slots=True, kw_only=True)
class Voters:
    """The ranks that run each round together."""

    group: Any  # of torch.distributed; one that the draft does not use, so that no collective of its meets a vote
    batches: int  # how many batches a round has: the attention-data-parallel ranks, else 1
    batch: int  # which of them is this rank's


class Health:
    def __init__(self, device: Any, voters: Voters | None) -> None:
        """`voters`: None for a rank that runs alone, or whose engine does not vote."""
        self._voters = voters
        self._now = torch.zeros(1, dtype=torch.bool, device=device)  # not finite, in the part that runs
        self._fault = torch.zeros(
            1, dtype=torch.int64, device=device
        )  # since the last vote: 0, or below it what `_told` makes
        self._counts = torch.zeros(len(_PARTS) + 1, dtype=torch.int64, device=device)
        on_gpu = self._fault.is_cuda
        self._read = torch.zeros(DELAY + 1, dtype=torch.int64, pin_memory=on_gpu)  # votes on the host, by round
        self._arrived = [torch.cuda.Event() if on_gpu else None for _ in range(DELAY + 1)]
        self._round = 0

    def begin(self) -> None:
        self._now.zero_()

    def check(self, values: Any) -> None:
        """Float values, any shape, or None. Minus infinity is a mask, not a fault."""
        if values is None or not values.is_floating_point() or values.numel() == 0:
            return
        self._now.logical_or_(~(values.amax() < float("inf")))  # NaN is the largest of all, and below nothing
        torch.nan_to_num_(values)

    def end(self, part: DraftPart, epoch: int) -> None:
        """`epoch`: of the command in force."""
        self._counts[_PARTS.index(part)].add_(self._now[0])
        self._fault = torch.where(self._now, _told(epoch), self._fault)

    @property
    def now(self) -> Any:
        """Bool [1], on the device: whether the part that ran last was not finite."""
        return self._now

    def spoil(self, epoch: int) -> None:
        """The rank has no drafts worth verifying until the next vote."""
        self._fault.fill_(_told(epoch))

    def vote(self, drafts: Any, epoch: int) -> Any:
        """Int64 [1], on the device: 1 where all ranks are sound and hold the same drafts. `drafts`: int64 [batch, num_steps].

        Called once in each round, on every rank, whatever the width.
        """
        fault = self._fault.clone()
        if self._voters is not None:
            fault = self._ballot(self._voters, fault, drafts, epoch)
        self._fault.zero_()  # not before: a fault in the last round's draft-extend or a prefill votes here
        slot = self._round % (DELAY + 1)
        self._read[slot : slot + 1].copy_(fault, non_blocking=True)
        if (event := self._arrived[slot]) is not None:
            event.record()
        return (fault == 0).to(torch.int64)

    def settle(self) -> int | None:
        """The epoch of the fault that the vote DELAY rounds ago told of, None where it told of none; called once before each round."""
        self._round += 1
        slot = (self._round - DELAY) % (DELAY + 1)
        if (event := self._arrived[slot]) is not None:
            event.synchronize()  # long past
        told = int(self._read[slot])
        return None if told == 0 else -told - 1

    def counts(self) -> dict[str, int]:
        """By name, since the start. Waits for the device."""
        found = self._counts.tolist()
        return {
            **{f"{part.value}_not_finite": count for part, count in zip(_PARTS, found, strict=False)},
            UNLIKE: found[-1],
        }

    def _ballot(self, voters: Voters, fault: Any, drafts: Any, epoch: int) -> Any:
        """The least of: own fault, the newest epoch's being the least; for each batch the drafts' mark and its negation."""
        ballot = torch.full((1 + 2 * voters.batches,), _LARGEST, dtype=torch.int64, device=fault.device)
        ballot[:1] = fault
        own = mark(drafts)
        ballot[1 + 2 * voters.batch] = own
        ballot[2 + 2 * voters.batch] = -own
        torch.distributed.all_reduce(ballot, op=torch.distributed.ReduceOp.MIN, group=voters.group)
        told, unlike = ballot[:1], (ballot[1::2] + ballot[2::2] != 0).any().reshape(1)
        surprise = unlike & (told == 0)
        self._counts[-1:].add_(surprise)
        return torch.where(surprise, _told(epoch), told)


def _told(epoch: int) -> int:
    """Below zero, and the lower the newer."""
    return -epoch - 1


def mark(drafts: Any) -> Any:
    """A number for the drafts, as a scalar on the device: below 2**61, equal for equal drafts, and hardly ever for others."""
    flat = drafts.reshape(-1).to(torch.int64)
    powers = torch.cumprod(torch.full_like(flat, _BASE), 0)  # wraps, on purpose
    return ((flat + 1) * powers).sum() & (2**61 - 1)
