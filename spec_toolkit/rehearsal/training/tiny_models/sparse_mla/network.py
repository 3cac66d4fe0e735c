"""Target and MTP layer as one module whose parameters carry the checkpoint's names; see deepseek_v3/network.py for how it drafts.

What the indexers add. A layer that owns one selects, and the layers after it without one attend to the same positions. The MTP
layer always owns one. Where its selection is shared (GLM-5.2), every step of a round attends to what step 1 selected at the
row the round starts from: positions up to that row, so a later step sees none of its round's own rows, itself included. Else
(DeepSeek-V3.2, GLM-5.1) each step selects anew among the step-1 rows and its round's own. That is what the engine does.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tiny_models.deepseek_v3.experts import Experts, FeedForward
from tiny_models.sparse_mla.attention import IndexedCache, SparseAttention
from tiny_models.sparse_mla.config import Config
from tiny_models.sparse_mla.indexer import HIDDEN, imitation_loss


class DecoderLayer(nn.Module):
    def __init__(self, config: Config, *, dense: bool, owns_indexer: bool) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = nn.RMSNorm(hidden, eps=eps)
        self.self_attn = SparseAttention(config, owns_indexer=owns_indexer)
        self.post_attention_layernorm = nn.RMSNorm(hidden, eps=eps)
        self.mlp = FeedForward(hidden, config.intermediate_size) if dense else Experts(config)

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x))


class MtpLayer(DecoderLayer):
    """Predicts the token after next; its embedding and head are the target's."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, dense=False, owns_indexer=True)
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.shares_selection = config.index_share_for_mtp_iteration
        self.enorm = nn.RMSNorm(hidden, eps=eps)
        self.hnorm = nn.RMSNorm(hidden, eps=eps)
        self.eh_proj = nn.Linear(2 * hidden, hidden, bias=False)
        self.shared_head = nn.ModuleDict({"norm": nn.RMSNorm(hidden, eps=eps)})

    def forward(self, embedded: Sequence[Tensor], hidden: Tensor, losses: list[Tensor] | None = None) -> list[Tensor]:
        """Normed states of each step, [batch, tokens, hidden] each, for every row at once.

        embedded: per step j, [batch, tokens, hidden], row i holding the embedding of token i + j; hidden: the target's normed states.
        losses: where the indexer's own loss is put.
        """
        rows = _Rows(self.self_attn)
        states: list[Tensor] = []
        state, selected = hidden, None
        for step, tokens in enumerate(embedded):
            x = self.eh_proj(torch.cat((self.enorm(tokens), self.hnorm(state)), -1))
            normed = self.input_layernorm(x)
            queries = rows.append(normed, step)
            if step == 0 or not self.shares_selection:
                scores = rows.index_scores(normed, step)
                selected = self.self_attn.indexer.select(scores)
            mixed, attention = rows.attend(queries, selected)
            if losses is not None and (step == 0 or not self.shares_selection):
                losses.append(imitation_loss(scores, selected, attention))
            state = self.shared_head["norm"](self.after_attention(x, self.self_attn.join(mixed)))
            states.append(state)
        return states


class _Rows:
    """The rows of every round at once: keys of step 1 at all positions, and of each later step one own key per round."""

    def __init__(self, attention: SparseAttention) -> None:
        self.attention = attention
        self.keys: list[Tensor] = []  # per step, [batch, heads, tokens, dim]
        self.values: list[Tensor] = []
        self.index_keys: list[Tensor] = []  # per step, [batch, tokens, index dim]

    def append(self, x: Tensor, step: int) -> Tensor:
        """Keys and values of the step; returns its queries. The row of round i is at rotary position i + step."""
        queries, keys, values = self.attention.project(x, step)
        self.keys.append(keys)
        self.values.append(values)
        return queries

    def index_scores(self, x: Tensor, step: int) -> Tensor:
        """[batch, tokens, tokens + step]: row i of step 1's positions up to i, then of the round's own rows in their order."""
        attention, tokens, x = self.attention, x.shape[1], x.detach()
        cos, sin = (table[step : step + tokens] for table in (attention.cos, attention.sin))
        indexer = attention.indexer
        self.index_keys.append(indexer.keys(x, cos, sin))
        queries, weights = indexer.queries(attention.query_latent(x).detach(), cos, sin), indexer.weights(x)
        future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        shared = indexer.scores(queries, weights, self.index_keys[0]).masked_fill(future, HIDDEN)
        own = [(torch.relu((queries * k[:, None]).sum(-1, keepdim=True)) * weights).sum(1) for k in self.index_keys[1:]]
        return torch.cat((shared, *own), -1)

    def attend(self, queries: Tensor, selected: Tensor) -> tuple[Tensor, Tensor]:
        """(mixed values, softmax over the columns of `selected`): step 1's positions, and own rows where it has columns for them."""
        tokens, own = queries.shape[2], selected.shape[-1] - queries.shape[2]
        scores = [queries @ self.keys[0].transpose(-1, -2)]
        scores += [(queries * k).sum(-1, keepdim=True) for k in self.keys[1 : own + 1]]
        scaled = torch.cat(scores, -1) * self.attention.softmax_scale
        weights = scaled.masked_fill(~selected[:, None], HIDDEN).softmax(-1)
        mixed = weights[..., :tokens] @ self.values[0]
        for step, values in enumerate(self.values[1 : own + 1]):
            mixed = mixed + weights[..., tokens + step, None] * values
        return mixed, weights


class Decoder(nn.Module):
    """Everything the checkpoint keeps under `model.`; the MTP layer is the last of its layers."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        nn.init.normal_(self.embed_tokens.weight, std=0.5)  # at the usual 0.02 the copy circuit does not form in time
        layers = [
            DecoderLayer(config, dense=index < config.first_k_dense_replace, owns_indexer=config.owns_indexer(index))
            for index in range(config.num_hidden_layers)
        ]
        self.layers = nn.ModuleList([*layers, MtpLayer(config)])
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class Network(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    @property
    def target_layers(self) -> list[DecoderLayer]:
        return list(self.model.layers)[: self.config.num_hidden_layers]

    @property
    def mtp(self) -> MtpLayer:
        return self.model.layers[self.config.num_hidden_layers]

    def new_cache(self) -> list[IndexedCache]:
        return [IndexedCache() for _ in self.target_layers]

    def before_norm(
        self,
        ids: Tensor,
        cache: list[IndexedCache] | None = None,
        *,
        sparse: bool = True,
        losses: list[Tensor] | None = None,
    ) -> Tensor:
        x, selected = self.model.embed_tokens(ids), None
        for index, layer in enumerate(self.target_layers):
            attended, selected = layer.self_attn(
                layer.input_layernorm(x), cache[index] if cache else None, selected, sparse=sparse, losses=losses
            )
            x = layer.after_attention(x, attended)
        return x

    def hidden(
        self,
        ids: Tensor,
        cache: list[IndexedCache] | None = None,
        *,
        sparse: bool = True,
        losses: list[Tensor] | None = None,
    ) -> Tensor:
        """The target's states after its final norm, [batch, tokens, hidden]: what the head and the MTP layer read."""
        return self.model.norm(self.before_norm(ids, cache, sparse=sparse, losses=losses))

    def draft_hidden(
        self, ids: Tensor, hidden: Tensor, num_steps: int, losses: list[Tensor] | None = None
    ) -> list[Tensor]:
        """The MTP layer's states per step, row i for the round that starts at position i, its drafts taken to be the true tokens.

        A draft after a rejected one does not matter, so this decides every round at once. Step j of row i is void where
        i + j passes the last token.
        """
        embedded = [self.model.embed_tokens(ids.roll(-step, 1)) for step in range(1, num_steps + 1)]
        return self.mtp(embedded, hidden, losses)

    def draft_head(self, state: Tensor) -> Tensor:
        """Logits of one step's states: the MTP layer's head is the target's."""
        return self.lm_head(state)
