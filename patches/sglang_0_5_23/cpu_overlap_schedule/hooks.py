"""Lets the overlap schedule run speculative decoding on a CPU."""

from collections.abc import Callable
from typing import Any

import torch


def leave_overlap_on(_original: Callable[[Any], None], _arguments: Any) -> None:
    """The engine turns the schedule off for speculation on CPU; all it lacks there is the gather below."""


def gather_rows(
    _original: Callable[..., Any], indices: torch.Tensor, *buffers: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    """The rows of each request: buffers [slots, ...] by indices [batch] -> [batch, ...]; None stays None.

    The order is that of the original: top-k probabilities, top-k tokens, output tokens, hidden states.
    """
    return tuple(None if buffer is None else buffer[indices] for buffer in buffers)
