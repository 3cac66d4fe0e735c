"""Target and MTP layer as one module whose parameters carry the checkpoint's names.

The MTP layer drafts recursively. For a row that starts at position i with the target's state h_i, step 1 reads h_i and token
i+1, and every later step j reads its own state and token i+j; the state it is handed, from the target or from itself, is always
the one after a final norm. Step j sits at rotary position i + j - 1 and attends the step-1 rows up to i and its own later rows:
that is what the engine's KV slots hold, so it is the mask to train with.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tiny_models.deepseek_v3.attention import Attention, LayerCache
from tiny_models.deepseek_v3.config import Config
from tiny_models.deepseek_v3.experts import Experts, FeedForward


class DecoderLayer(nn.Module):
    def __init__(self, config: Config, *, dense: bool) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = nn.RMSNorm(hidden, eps=eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(hidden, eps=eps)
        self.mlp = FeedForward(hidden, config.intermediate_size) if dense else Experts(config)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        return self.after_attention(x, self.self_attn(self.input_layernorm(x), cache))

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x))


class MtpLayer(DecoderLayer):
    """Predicts the token after next; its embedding and head are the target's."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, dense=False)
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.enorm = nn.RMSNorm(hidden, eps=eps)
        self.hnorm = nn.RMSNorm(hidden, eps=eps)
        self.eh_proj = nn.Linear(2 * hidden, hidden, bias=False)
        self.shared_head = nn.ModuleDict({"norm": nn.RMSNorm(hidden, eps=eps)})

    def forward(self, embedded: Sequence[Tensor], hidden: Tensor) -> list[Tensor]:
        """Normed states of each step, [batch, tokens, hidden] each, for every row at once.

        embedded: per step j, [batch, tokens, hidden], row i holding the embedding of token i + j; hidden: the target's normed states.
        """
        keys: list[Tensor] = []
        values: list[Tensor] = []
        states: list[Tensor] = []
        state = hidden
        for step, tokens in enumerate(embedded):
            x = self.eh_proj(torch.cat((self.enorm(tokens), self.hnorm(state)), -1))
            queries, own_keys, own_values = self.self_attn.project(self.input_layernorm(x), step)
            keys.append(own_keys)
            values.append(own_values)
            x = self.after_attention(x, self.self_attn.join(self._attend(queries, keys, values)))
            state = self.shared_head["norm"](x)
            states.append(state)
        return states

    def _attend(self, queries: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        """Row i of `queries` over the first step's rows 0..i, then over row i of each later step."""
        tokens = queries.shape[2]
        future = torch.full((tokens, tokens), float("-inf")).triu(1)
        shared = queries @ keys[0].transpose(-1, -2) * self.self_attn.softmax_scale + future
        own = [(queries * k).sum(-1, keepdim=True) * self.self_attn.softmax_scale for k in keys[1:]]
        weights = torch.cat((shared, *own), -1).softmax(-1)
        mixed = weights[..., :tokens] @ values[0]
        for step, v in enumerate(values[1:]):
            mixed = mixed + weights[..., tokens + step : tokens + step + 1] * v
        return mixed


class Decoder(nn.Module):
    """Everything the checkpoint keeps under `model.`; the MTP layer is the last of its layers."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        nn.init.normal_(self.embed_tokens.weight, std=0.5)  # at the usual 0.02 the copy circuit does not form in time
        dense = [index < config.first_k_dense_replace for index in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList([*(DecoderLayer(config, dense=d) for d in dense), MtpLayer(config)])
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

    def new_cache(self) -> list[LayerCache]:
        return [LayerCache() for _ in self.target_layers]

    def before_norm(self, ids: Tensor, cache: list[LayerCache] | None = None) -> Tensor:
        x = self.model.embed_tokens(ids)
        for index, layer in enumerate(self.target_layers):
            x = layer(x, cache[index] if cache else None)
        return x

    def hidden(self, ids: Tensor, cache: list[LayerCache] | None = None) -> Tensor:
        """The target's states after its final norm, [batch, tokens, hidden]: what the head and the MTP layer read."""
        return self.model.norm(self.before_norm(ids, cache))

    def draft_hidden(self, ids: Tensor, hidden: Tensor, num_steps: int) -> list[Tensor]:
        """The MTP layer's states per step, row i for the round that starts at position i, its drafts taken to be the true tokens.

        A draft after a rejected one does not matter, so this decides every round at once. Step j of row i is void where
        i + j passes the last token.
        """
        embedded = [self.model.embed_tokens(ids.roll(-step, 1)) for step in range(1, num_steps + 1)]
        return self.mtp(embedded, hidden)

    def draft_head(self, state: Tensor) -> Tensor:
        """Logits of one step's states: the MTP layer's head is the target's."""
        return self.lm_head(state)
