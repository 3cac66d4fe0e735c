"""A decoder layer and its parts: dense feed-forward, experts beside it, the gate of a per-layer embedding."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads
from torch import Tensor, nn

from tiny_models.gemma4.attention import Attention, KeysValues
from tiny_models.gemma4.config import TextConfig


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


class FeedForward(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(gelu(self.gate_proj(x)) * self.up_proj(x))


class Router(nn.Module):
    """Experts are chosen by a softmax over the logits of the best, each weight then times the expert's own scale."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.hidden, self.chosen, self.eps = config.hidden_size, config.top_k_experts, config.rms_norm_eps
        self.scale = nn.Parameter(torch.ones(config.hidden_size))
        self.proj = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        nn.init.normal_(self.proj.weight)  # its input is divided by the root of the hidden size
        self.per_expert_scale = nn.Parameter(torch.ones(config.num_experts))

    def forward(self, x: Tensor) -> Tensor:
        """Weight of each expert, [..., experts], zero for those not chosen."""
        logits = self.proj(F.rms_norm(x, (self.hidden,), eps=self.eps) * self.scale * self.hidden**-0.5)
        best, which = logits.topk(self.chosen, -1)
        return torch.zeros_like(logits).scatter(-1, which, best.softmax(-1)) * self.per_expert_scale


class Experts(nn.Module):
    """All experts in two tensors, gate and up one behind the other, as the checkpoint has them."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        experts, width, hidden = config.num_experts, config.moe_intermediate_size, config.hidden_size
        self.gate_up_proj = nn.Parameter(torch.randn(experts, 2 * width, hidden) * hidden**-0.5)
        self.down_proj = nn.Parameter(torch.randn(experts, hidden, width) * width**-0.5)

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        """Every expert sees every token, as one wide layer whose parts are weighted: at this size faster than sorting tokens."""
        gate, up = self.gate_up_proj.chunk(2, 1)
        inner = gelu(x @ gate.flatten(0, 1).T) * (x @ up.flatten(0, 1).T)
        inner = inner.unflatten(-1, (len(self.down_proj), -1)) * weights[..., None]
        return inner.flatten(-2) @ self.down_proj.transpose(1, 2).flatten(0, 1)


class DecoderLayer(nn.Module):
    """x is what the stream holds; each branch is normed before and after. The stream leaves times a scalar of the layer's."""

    def __init__(self, config: TextConfig, layer: int, *, owns_kv: bool) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = Attention(config, layer, owns_kv=owns_kv)
        self.mlp = FeedForward(hidden, config.mlp_width(layer))
        self.layer_scalar = nn.Parameter(torch.ones(1))
        names = [
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ]
        if config.enable_moe_block:
            names += ["post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"]
            self.router, self.experts = Router(config), Experts(config)
        if config.hidden_size_per_layer_input:
            names.append("post_per_layer_input_norm")
            self.per_layer_input_gate = nn.Linear(hidden, config.hidden_size_per_layer_input, bias=False)
            self.per_layer_projection = nn.Linear(config.hidden_size_per_layer_input, hidden, bias=False)
        for name in names:
            self.add_module(name, nn.RMSNorm(hidden, eps=eps))

    def keys_values(self, x: Tensor, first_position: int) -> KeysValues:
        return self.self_attn.keys_values(self.input_layernorm(x), first_position)

    def forward(
        self, x: Tensor, seen: KeysValues, first_row: int, first_position: int, own_embedding: Tensor | None = None
    ) -> Tensor:
        """From x [batch, tokens, hidden], row `first_row` of `seen` and on, turned as from `first_position` on."""
        queries = self.self_attn.queries(self.input_layernorm(x), first_position)
        x = x + self.post_attention_layernorm(self.self_attn.attend(queries, seen, first_row))
        x = x + self.post_feedforward_layernorm(self._feed_forward(x))
        if own_embedding is not None:
            gated = gelu(self.per_layer_input_gate(x)) * own_embedding
            x = x + self.post_per_layer_input_norm(self.per_layer_projection(gated))
        return x * self.layer_scalar

    def _feed_forward(self, x: Tensor) -> Tensor:
        plain = self.mlp(self.pre_feedforward_layernorm(x))
        if not hasattr(self, "experts"):
            return plain
        routed = self.experts(self.pre_feedforward_layernorm_2(x), self.router(x))
        return self.post_feedforward_layernorm_1(plain) + self.post_feedforward_layernorm_2(routed)
