"""Shares the target's embedding and head with the draft on a machine without a GPU."""

from typing import Any

import torch


def share_embedding_and_head(model: Any, embedding: torch.Tensor, head: torch.Tensor) -> None:
    """Weights [vocabulary, hidden]. What the original does, less its wait for a CUDA device that is not there."""
    del model.model.embed_tokens.weight, model.lm_head.weight  # frees the draft's own, which load time made
    model.model.embed_tokens.weight = embedding
    model.lm_head.weight = head
