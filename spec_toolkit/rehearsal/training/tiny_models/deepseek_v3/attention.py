"""Multi-head latent attention (arXiv 2405.04434, section 2.1), keys and values materialised."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads
from torch import Tensor, nn

from tiny_models.deepseek_v3.config import Config
from tiny_models.yarn import attention_temperature, inverse_frequencies, rotate_interleaved


@dataclass(slots=True)
class LayerCache:
    """Keys and values of the tokens one layer has seen, each [batch, heads, tokens, head dim]; grows by `append`."""

    keys: Tensor | None = None
    values: Tensor | None = None

    @property
    def tokens(self) -> int:
        return 0 if self.keys is None else self.keys.shape[2]

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.keys = keys if self.keys is None else torch.cat((self.keys, keys), 2)
        self.values = values if self.values is None else torch.cat((self.values, values), 2)
        return self.keys, self.values


class Attention(nn.Module):
    """Parameters are named as in the checkpoint; q_a and kv_a are two tensors there and one fused matrix in the engine."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        heads, eps = config.num_attention_heads, config.rms_norm_eps
        nope, rope, value = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
        self.heads, self.nope, self.rope, self.value = heads, nope, rope, value
        self.kv_rank = config.kv_lora_rank
        self.softmax_scale = (nope + rope) ** -0.5 * attention_temperature(config.rope_scaling)

        self.q_a_proj = nn.Linear(config.hidden_size, config.q_lora_rank, bias=False)
        self.q_a_layernorm = nn.RMSNorm(config.q_lora_rank, eps=eps)
        self.q_b_proj = nn.Linear(config.q_lora_rank, heads * (nope + rope), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(config.hidden_size, self.kv_rank + rope, bias=False)
        self.kv_a_layernorm = nn.RMSNorm(self.kv_rank, eps=eps)
        self.kv_b_proj = nn.Linear(self.kv_rank, heads * (nope + value), bias=False)
        self.o_proj = nn.Linear(heads * value, config.hidden_size, bias=False)

        positions = torch.arange(config.max_position_embeddings).float()
        angles = torch.outer(positions, inverse_frequencies(rope, config.rope_theta, config.rope_scaling))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def project(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values [batch, heads, tokens, head dim] of x [batch, tokens, hidden], whose first token is at `start`."""
        cos, sin = (table[start : start + x.shape[1]] for table in (self.cos, self.sin))
        queries = self._split_heads(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))))
        q_nope, q_rope = queries.split([self.nope, self.rope], -1)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([self.kv_rank, self.rope], -1)
        k_nope, values = self._split_heads(self.kv_b_proj(self.kv_a_layernorm(latent))).split(
            [self.nope, self.value], -1
        )
        k_rope = rotate_interleaved(k_rope[:, None], cos, sin).expand(-1, self.heads, -1, -1)  # one for all heads
        return torch.cat((q_nope, rotate_interleaved(q_rope, cos, sin)), -1), torch.cat((k_nope, k_rope), -1), values

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def join(self, mixed: Tensor) -> Tensor:
        """Mixed values [batch, heads, tokens, value dim] -> [batch, tokens, hidden]."""
        return self.o_proj(mixed.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        """Causal attention over x, or over the cache and x, which is then the whole prompt or one token."""
        start = cache.tokens if cache else 0
        if start and x.shape[1] > 1:
            raise ValueError(f"x: {x.shape[1]} tokens after {start} cached ones; only one at a time is masked rightly")
        queries, keys, values = self.project(x, start)
        if cache:
            keys, values = cache.append(keys, values)
        # Only for values as wide as keys does torch take its fused kernel, which halves the time of a training step.
        padded = F.pad(values, (0, keys.shape[-1] - self.value))
        mixed = F.scaled_dot_product_attention(queries, keys, padded, is_causal=start == 0, scale=self.softmax_scale)
        return self.join(mixed[..., : self.value])
