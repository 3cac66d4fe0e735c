"""Multi-head latent attention over the positions that an indexer selects: the layer's own, or the one of a layer before it."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads
from torch import Tensor

from tiny_models.deepseek_v3.attention import Attention, LayerCache
from tiny_models.sparse_mla.config import Config
from tiny_models.sparse_mla.indexer import HIDDEN, Indexer, imitation_loss


@dataclass(slots=True)
class IndexedCache(LayerCache):
    """And the index keys of those tokens, [batch, tokens, index dim], in a layer that owns an indexer."""

    index_keys: Tensor | None = None

    def append_index_keys(self, keys: Tensor) -> Tensor:
        self.index_keys = keys if self.index_keys is None else torch.cat((self.index_keys, keys), 1)
        return self.index_keys


def causal(rows: int, keys: int) -> Tensor:
    """Which of `keys` positions the last `rows` of them see, [rows, keys]."""
    return torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)


class SparseAttention(Attention):
    def __init__(self, config: Config, *, owns_indexer: bool) -> None:
        super().__init__(config)
        self.indexer = Indexer(config) if owns_indexer else None

    def query_latent(self, x: Tensor) -> Tensor:
        return self.q_a_layernorm(self.q_a_proj(x))

    def index(self, x: Tensor, start: int, cache: IndexedCache | None = None) -> Tensor:
        """The indexer's scores of x, whose first token is at `start`: [batch, tokens, keys], hidden ones -inf.

        The layer learns nothing from its indexer: the inputs are detached.
        """
        x, (cos, sin) = x.detach(), (table[start : start + x.shape[1]] for table in (self.cos, self.sin))
        keys = self.indexer.keys(x, cos, sin)
        keys = cache.append_index_keys(keys) if cache else keys
        queries = self.indexer.queries(self.query_latent(x).detach(), cos, sin)
        scores = self.indexer.scores(queries, self.indexer.weights(x), keys)
        return scores.masked_fill(~causal(x.shape[1], keys.shape[1]), HIDDEN)

    def forward(
        self,
        x: Tensor,
        cache: IndexedCache | None = None,
        handed: Tensor | None = None,
        *,
        sparse: bool = True,
        losses: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """(output, selection [batch, tokens, keys] for the layers without an indexer); `handed` is the selection so far.

        sparse False: causal attention, nothing is selected. losses: where the indexer's own loss is put.
        """
        start = cache.tokens if cache else 0
        if start and x.shape[1] > 1:
            raise ValueError(f"x: {x.shape[1]} tokens after {start} cached ones; only one at a time is masked rightly")
        selected = handed
        scores = None
        if self.indexer and (sparse or losses is not None):
            scores = self.index(x, start, cache)
            selected = self.indexer.select(scores) if sparse else None
        queries, keys, values = self.project(x, start)
        if cache:
            keys, values = cache.append(keys, values)
        if losses is not None and scores is not None:
            visible = (scores > HIDDEN) if selected is None else selected
            losses.append(imitation_loss(scores, visible, self.attention(queries, keys, visible)))
        padded = F.pad(values, (0, keys.shape[-1] - self.value))  # as wide as keys, or torch leaves its fused kernel
        mask = None if selected is None else selected[:, None]
        mixed = F.scaled_dot_product_attention(
            queries, keys, padded, attn_mask=mask, is_causal=mask is None and start == 0, scale=self.softmax_scale
        )
        return self.join(mixed[..., : self.value]), selected

    @torch.no_grad()
    def attention(self, queries: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
        """The softmax itself, [batch, heads, tokens, keys]."""
        scores = queries @ keys.transpose(-1, -2) * self.softmax_scale
        return scores.masked_fill(~visible[:, None], HIDDEN).softmax(-1)
