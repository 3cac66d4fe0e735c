"""Pages of more than one slot on a CPU."""

from collections.abc import Callable

import torch


def gather_last_slots(
    _original: Callable[..., torch.Tensor], req_to_token: torch.Tensor, requests: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """The slot of each request's last position, -1 for an empty one: req_to_token [requests, positions], lengths [batch]."""
    last = req_to_token[requests.long(), (lengths - 1).clamp(min=0).long()].to(torch.int64)
    return torch.where(lengths > 0, last, -1)
