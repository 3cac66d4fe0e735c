"""Grouped-query attention, sliding or full, whose keys and values may be another layer's or another model's."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads
from torch import Tensor, nn

from tiny_models.gemma4.config import FULL, FULL_ROTARY_SHARE, ROPE_THETA, SLIDING, TextConfig


@dataclass(frozen=True, slots=True)
class KeysValues:
    """Of all tokens up to the last, each [batch, kv heads, tokens, head dim]."""

    keys: Tensor
    values: Tensor

    def then(self, later: "KeysValues") -> "KeysValues":
        return KeysValues(torch.cat((self.keys, later.keys), 2), torch.cat((self.values, later.values), 2))


@dataclass(slots=True)
class LayerCache:
    """What one layer keeps of the tokens it has seen; a layer that reads another's stays empty."""

    kept: KeysValues | None = None

    def append(self, new: KeysValues) -> KeysValues:
        self.kept = new if self.kept is None else self.kept.then(new)
        return self.kept


def inverse_frequencies(config: TextConfig, layer_type: str) -> Tensor:
    """Radians per position and pair, [head dim / 2]. A full layer turns its first pairs only; the others have frequency 0."""
    dim = config.head_dim_of(layer_type)
    frequencies = ROPE_THETA[layer_type] ** -(torch.arange(0, dim, 2).float() / dim)
    if layer_type == FULL:
        frequencies[int(FULL_ROTARY_SHARE * dim) // 2 :] = 0
    return frequencies


def rotate_halves(x: Tensor, angles: Tensor) -> Tensor:
    """Turn the pairs (0, d/2), (1, d/2 + 1), ... of x [..., tokens, d] by angles [tokens, d/2]."""
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Attention(nn.Module):
    """Parameters are named as in the checkpoint. Scores are not scaled: the norms of queries and keys have learnt weights."""

    frequencies: Tensor

    def __init__(self, config: TextConfig, layer: int, *, owns_kv: bool) -> None:
        super().__init__()
        self.layer_type = config.layer_types[layer]
        self.window = config.sliding_window if self.layer_type == SLIDING else None
        self.heads, self.kv_heads = config.num_attention_heads, config.kv_heads_of(self.layer_type)
        self.dim = config.head_dim_of(self.layer_type)
        self.eps = config.rms_norm_eps
        self.q_proj = nn.Linear(config.hidden_size, self.heads * self.dim, bias=False)
        self.q_norm = self._head_norm()
        if owns_kv:
            self.k_proj = nn.Linear(config.hidden_size, self.kv_heads * self.dim, bias=False)
            self.k_norm = self._head_norm()
            if not config.keys_are_values(self.layer_type):
                self.v_proj = nn.Linear(config.hidden_size, self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, config.hidden_size, bias=False)
        self.register_buffer("frequencies", inverse_frequencies(config, self.layer_type), persistent=False)

    def _head_norm(self) -> nn.RMSNorm:
        """Begins so that the score of a random query and a random key has variance 1."""
        norm = nn.RMSNorm(self.dim, eps=self.eps)
        nn.init.constant_(norm.weight, self.dim**-0.25)
        return norm

    def queries(self, x: Tensor, first_position: int) -> Tensor:
        """Of x [batch, tokens, hidden], whose first token sits at `first_position`: [batch, heads, tokens, head dim]."""
        return self._turned(self.q_norm(self._split(self.q_proj(x), self.heads)), first_position)

    def keys_values(self, x: Tensor, first_position: int) -> KeysValues:
        raw = self._split(self.k_proj(x), self.kv_heads)
        values = self._split(self.v_proj(x), self.kv_heads) if hasattr(self, "v_proj") else raw
        keys = self._turned(self.k_norm(raw), first_position)
        return KeysValues(keys, F.rms_norm(values, (self.dim,), eps=self.eps))  # the norm of values has no weight

    def attend(self, queries: Tensor, seen: KeysValues, first_row: int) -> Tensor:
        """Row r of the queries sees the keys of rows 0 .. first_row + r, or the last `window` of them. [batch, tokens, hidden]."""
        rows = first_row + torch.arange(queries.shape[2])[:, None]
        columns = torch.arange(seen.keys.shape[2])
        visible = columns <= rows
        if self.window is not None:
            visible &= columns > rows - self.window
        group = self.heads // self.kv_heads
        keys, values = (x.repeat_interleave(group, 1) for x in (seen.keys, seen.values))
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=visible, scale=1.0)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.dim)).transpose(1, 2)

    def _turned(self, x: Tensor, first_position: int) -> Tensor:
        positions = first_position + torch.arange(x.shape[2]).float()
        return rotate_halves(x, torch.outer(positions, self.frequencies))
