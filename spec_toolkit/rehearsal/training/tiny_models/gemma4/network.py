"""Target and assistant; each one's parameters carry the names of its own checkpoint.

The assistant has no keys and values. All its layers read those of the target: the last sliding layer's, the last full
layer's, or where those share, their owners'. For a round that starts with the target's state h_i and token i + 1 known, it
reads that token's embedding (the target's) and h_i, then its own tokens and its own projected states; every draft step sees
the keys of positions 0..i and sits at one and the same rotary position.

Which position, is the engine's convention and not a free choice: it counts a target's positions from 1 and an assistant's
from 0, so the assistant asks from one position before the last key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tiny_models.gemma4.attention import KeysValues, LayerCache
from tiny_models.gemma4.config import AssistantConfig, Config, TextConfig
from tiny_models.gemma4.layers import DecoderLayer

TARGET_POSITION, ASSISTANT_POSITION = 1, 0  # of the first token


@dataclass(frozen=True, slots=True)
class Seen:
    """What the target makes of a text."""

    states: Tensor  # after the final norm, [batch, tokens, hidden]
    shared: dict[str, KeysValues]  # layer type -> what an assistant's layers of that type read


class Target(nn.Module):
    """Everything the checkpoint keeps under `model.language_model.`."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        layers, own, eps = config.num_hidden_layers, config.hidden_size_per_layer_input, config.rms_norm_eps
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        nn.init.normal_(self.embed_tokens.weight, std=config.hidden_size**-0.5)  # scaled to variance 1 where it is read
        if own:
            self.embed_tokens_per_layer = nn.Embedding(config.vocab_size_per_layer_input, layers * own)
            nn.init.normal_(self.embed_tokens_per_layer.weight, std=own**-0.5)
            self.per_layer_model_projection = nn.Linear(config.hidden_size, layers * own, bias=False)
            nn.init.normal_(
                self.per_layer_model_projection.weight
            )  # its output is divided by the root of the hidden size
            self.per_layer_projection_norm = nn.RMSNorm(own, eps=eps)
        self.layers = nn.ModuleList(DecoderLayer(config, i, owns_kv=not config.shares_kv(i)) for i in range(layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=eps)

    def embed(self, ids: Tensor) -> Tensor:
        return self.embed_tokens(ids) * self.config.hidden_size**0.5

    def forward(self, ids: Tensor, cache: Sequence[LayerCache]) -> Seen:
        """The text after what `cache` holds."""
        first_row = cache[0].kept.keys.shape[2] if cache[0].kept else 0
        x = self.embed(ids)
        own = self._own_embeddings(ids, x)
        seen: dict[int, KeysValues] = {}
        for index, layer in enumerate(self.layers):
            owner = self.config.kv_owner(index)
            if owner == index:
                seen[index] = cache[index].append(layer.keys_values(x, TARGET_POSITION + first_row))
            x = layer(x, seen[owner], first_row, TARGET_POSITION + first_row, None if own is None else own[index])
        shared = {kind: seen[self.config.kv_owner(i)] for i, kind in enumerate(self.config.layer_types)}
        return Seen(self.norm(x), shared)

    def _own_embeddings(self, ids: Tensor, embedded: Tensor) -> Tensor | None:
        """Per layer what it adds of the token itself, [layers, batch, tokens, own]: a table's and a projection's mean, times root 2."""
        own = self.config.hidden_size_per_layer_input
        if not own:
            return None
        table = self.embed_tokens_per_layer(ids).unflatten(-1, (-1, own)) * own**0.5
        projected = self.per_layer_model_projection(embedded) * self.config.hidden_size**-0.5
        projected = self.per_layer_projection_norm(projected.unflatten(-1, (-1, own)))
        return ((projected + table) * 2**-0.5).movedim(-2, 0)


class AssistantDecoder(nn.Module):
    """Everything the assistant's checkpoint keeps under `model.`; its embedding is its head and nothing else."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        nn.init.normal_(self.embed_tokens.weight, std=config.hidden_size**-0.5)
        self.layers = nn.ModuleList(DecoderLayer(config, i, owns_kv=False) for i in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class MaskedEmbedding(nn.Module):
    """The head of the E models: only tokens of the best centroids are scored. `token_ordering` lists them centroid by centroid."""

    token_ordering: Tensor

    def __init__(self, config: AssistantConfig) -> None:
        super().__init__()
        self.kept = config.centroid_intermediate_top_k
        self.centroids = nn.Linear(config.text.hidden_size, config.num_centroids, bias=False)
        order = torch.randperm(config.text.vocab_size, generator=torch.Generator().manual_seed(4))
        self.register_buffer("token_ordering", order)

    def centroid_of_token(self) -> Tensor:
        """[vocabulary]"""
        per_centroid = len(self.token_ordering) // self.centroids.out_features
        return self.token_ordering.argsort() // per_centroid

    def visible(self, state: Tensor) -> Tensor:
        """Which tokens are scored, [..., vocabulary] bool."""
        scores = self.centroids(state)
        kept = torch.zeros_like(scores).scatter(-1, scores.topk(self.kept, -1).indices, 1).bool()
        return kept[..., self.centroid_of_token()]


class Assistant(nn.Module):
    def __init__(self, config: AssistantConfig) -> None:
        super().__init__()
        hidden, backbone = config.text.hidden_size, config.backbone_hidden_size
        self.pre_projection = nn.Linear(2 * backbone, hidden, bias=False)
        self.model = AssistantDecoder(config.text)
        self.post_projection = nn.Linear(hidden, backbone, bias=False)
        if config.use_ordered_embeddings:
            self.masked_embedding = MaskedEmbedding(config)

    def forward(self, embedded: Sequence[Tensor], hidden: Tensor, shared: dict[str, KeysValues]) -> list[Tensor]:
        """Normed states of each step, [batch, tokens, assistant's hidden] each, for every row at once.

        embedded: per step j, [batch, tokens, hidden], row i holding the embedding of token i + j; hidden: the target's states.
        """
        states: list[Tensor] = []
        carried = hidden
        for tokens in embedded:
            x = self.pre_projection(torch.cat((tokens, carried), -1))
            for layer in self.model.layers:
                x = layer(x, shared[layer.self_attn.layer_type], 0, ASSISTANT_POSITION)
            states.append(self.model.norm(x))
            carried = self.post_projection(states[-1])
        return states


class Network(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.target = Target(config.text)
        self.assistant = Assistant(config.assistant)

    def new_cache(self) -> list[LayerCache]:
        return [LayerCache() for _ in self.target.layers]

    def see(self, ids: Tensor) -> Seen:
        return self.target(ids, self.new_cache())

    def hidden(self, ids: Tensor, cache: list[LayerCache] | None = None) -> Tensor:
        """The target's states after its final norm, [batch, tokens, hidden]: what the head and the assistant read."""
        return self.target(ids, cache or self.new_cache()).states

    def lm_head(self, states: Tensor) -> Tensor:
        return _capped(states @ self.target.embed_tokens.weight.T, self.config.text)

    def draft_hidden(self, ids: Tensor, hidden: Tensor, num_steps: int) -> list[Tensor]:
        """The assistant's states per step, row i for the round that starts at position i, its drafts taken to be the true tokens.

        A draft after a rejected one does not matter, so this decides every round at once. Step j of row i is void where
        i + j passes the last token.
        """
        return self.draft_states(ids, hidden, self.see(ids).shared, num_steps)

    def draft_states(self, ids: Tensor, hidden: Tensor, shared: dict[str, KeysValues], num_steps: int) -> list[Tensor]:
        """As `draft_hidden`, where the target's keys and values are at hand."""
        embedded = [self.target.embed(ids.roll(-step, 1)).detach() for step in range(1, num_steps + 1)]
        return self.assistant(embedded, hidden, shared)

    def draft_head(self, state: Tensor) -> Tensor:
        """Logits of one step's states; -inf where the centroid head does not look."""
        logits = self.every_draft_logit(state)
        if self.config.assistant.use_ordered_embeddings:
            logits = logits.masked_fill(~self.assistant.masked_embedding.visible(state), float("-inf"))
        return logits

    def every_draft_logit(self, state: Tensor) -> Tensor:
        return _capped(state @ self.assistant.model.embed_tokens.weight.T, self.config.assistant.text)


def _capped(logits: Tensor, config: TextConfig) -> Tensor:
    cap = config.final_logit_softcapping
    return cap * torch.tanh(logits / cap)
