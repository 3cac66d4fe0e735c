"""Where the draft's KV was not written, remembered by slot, also through the prefix cache. Version-free; device-side.

The target's KV and the draft's share their slots: one allocator serves both. After a fault in a prefill's draft part a slot holds the
target's KV and not the draft's, the prefix cache does not know that, and a later request goes on from it: its tokens stay right, its
drafts are poor, and nobody is told.
"""

from collections.abc import Iterable
from typing import Any

import torch


class DraftKv:
    def __init__(self, device: Any) -> None:
        self._device = device
        self._missing: Any = None  # bool [slots]; made when the pool's size is known
        self._found = torch.zeros(1, dtype=torch.int64, device=device)
        self._known = (
            False  # whether the host knows of any missing slot, so that a sound engine's prefills cost nothing
        )
        on_gpu = self._found.is_cuda
        self._any = torch.zeros(
            1, dtype=torch.bool, pin_memory=on_gpu
        )  # on the host: whether one was, when it was asked
        self._arrived = torch.cuda.Event() if on_gpu else None
        self._asked = False

    def resize(self, slots: int) -> None:
        if self._missing is None or self._missing.numel() < slots:
            self._missing = torch.zeros(slots, dtype=torch.bool, device=self._device)

    def lost(self, slots: Any) -> None:
        """Not written. `slots`: int64 [tokens], or None."""
        self._learn()
        self._mark(slots, torch.ones(1, dtype=torch.bool, device=self._device))

    def written(self, slots: Any, spoilt: Any) -> None:
        """Written, with what is not finite where `spoilt`, a bool [1] on the device, says so."""
        self._mark(slots, spoilt)

    def suspect(self) -> None:
        """Some were spoilt, as a vote said."""
        self._learn()

    def count_prefixes(self, prefixes: Iterable[Any]) -> None:
        """Int64 [tokens] each: the slots a prefill goes on from."""
        self._forget_what_was_mended()
        if not self._known or self._missing is None:
            return
        found = [
            self._missing[prefix.to(self._device).clamp(max=self._missing.numel() - 1)].any() for prefix in prefixes
        ]
        if found:
            self._found.add_(torch.stack(found).sum())
        self._ask(self._missing)

    def count(self) -> int:
        """Prefills that went on from a prefix without draft KV. Waits for the device."""
        return int(self._found)

    def _learn(self) -> None:
        self._known = True
        self._asked = False  # before this; the answer is out of date

    def _ask(self, missing: Any) -> None:
        """Copy, without waiting, whether any slot is missing: every one may have been written again since."""
        if self._asked:
            return
        self._any.copy_(missing.any().reshape(1), non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()
        self._asked = True

    def _forget_what_was_mended(self) -> None:
        """A vote tells later of what a prefill spoils after the question, and then it is known again."""
        if not self._asked or (self._arrived is not None and not self._arrived.query()):
            return
        self._asked = False
        self._known = bool(self._any)

    def _mark(self, slots: Any, value: Any) -> None:
        if slots is None or slots.numel() == 0 or self._missing is None:
            return
        self._missing[slots.long().clamp(max=self._missing.numel() - 1)] = value
