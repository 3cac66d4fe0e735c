"""The lightning indexer (arXiv 2512.02556, section 2.1): scores earlier positions, of which a layer attends to the best.

Of two positions with the same score the earlier one is taken, as in the rehearsal's kernel: where the relu is zero in every
head the score is exactly 0, so ties are common.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads
from torch import Tensor, nn

from tiny_models.sparse_mla.config import Config
from tiny_models.yarn import rotate_halves, rotate_interleaved

HIDDEN = float("-inf")  # score of a position that causality hides


class Indexer(nn.Module):
    """Parameters are named as in the checkpoint. Keys have one head; the first dimensions of queries and keys are rotated."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.dim, self.rope = config.index_n_heads, config.index_head_dim, config.qk_rope_head_dim
        self.topk = config.index_topk
        self.rotate = rotate_interleaved if config.indexer_rope_interleave else rotate_halves
        self.wq_b = nn.Linear(config.q_lora_rank, self.heads * self.dim, bias=False)
        self.wk = nn.Linear(config.hidden_size, self.dim, bias=False)
        self.k_norm = nn.LayerNorm(self.dim, eps=1e-6)
        self.weights_proj = nn.Linear(config.hidden_size, self.heads, bias=False)

    def keys(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[batch, tokens, dim] of the layer's input x, rotated by cos and sin [tokens, rope / 2]."""
        return self._turned(self.k_norm(self.wk(x)), cos, sin)

    def queries(self, latent: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[batch, heads, tokens, dim] of the attention's normed query latent."""
        return self._turned(self.wq_b(latent).unflatten(-1, (self.heads, -1)).transpose(1, 2), cos, sin)

    def weights(self, x: Tensor) -> Tensor:
        """[batch, heads, tokens, 1], the scale of the products included."""
        return self.weights_proj(x).transpose(1, 2)[..., None] * (self.heads * self.dim) ** -0.5

    def _turned(self, vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return torch.cat((self.rotate(vectors[..., : self.rope], cos, sin), vectors[..., self.rope :]), -1)

    def scores(self, queries: Tensor, weights: Tensor, keys: Tensor) -> Tensor:
        """Each token's score of each key, [batch, tokens, keys]; keys [batch, keys, dim]. Nothing is hidden yet."""
        return (torch.relu(queries @ keys[:, None].transpose(-1, -2)) * weights).sum(1)

    def select(self, scores: Tensor) -> Tensor:
        """True at the `topk` best of the last dimension, ties to the earlier one; never at a hidden position."""
        if scores.shape[-1] <= self.topk:
            return scores > HIDDEN
        best = torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., : self.topk]
        return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, value=True) & (scores > HIDDEN)


def imitation_loss(scores: Tensor, visible: Tensor, attention: Tensor) -> Tensor:
    """Cross-entropy of the scores' softmax against the heads' mean attention, both over the visible positions.

    scores, visible [batch, tokens, keys]; attention [batch, heads, tokens, keys], zero where nothing is visible.
    """
    log_share = F.log_softmax(scores.masked_fill(~visible, -1e9), -1)
    return -(attention.detach().mean(1) * log_share).sum(-1).mean()
