"""Dense and expert feed-forward layers. Experts are scored by a sigmoid and balanced by a correction bias (arXiv 2412.19437, 2.1.2)."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads
from torch import Tensor, nn

from tiny_models.deepseek_v3.config import Config

BIAS_STEP = 1e-3  # how far one training batch moves the correction bias of an expert with too little or too much load


class FeedForward(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    """Router weight [experts, hidden] and the correction bias [experts], which is moved by load and not by a gradient."""

    e_score_correction_bias: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.randn(config.n_routed_experts, config.hidden_size) * config.hidden_size**-0.5)
        self.register_buffer("e_score_correction_bias", torch.zeros(config.n_routed_experts))

    def forward(self, x: Tensor) -> Tensor:
        """Weight of each expert, [..., experts], zero for those not chosen. The bias has a say in the choice, none in the weight."""
        scores = (x @ self.weight.T).sigmoid()
        chosen = choose_experts((scores + self.e_score_correction_bias).detach(), self.config)
        if self.training:
            self._balance(chosen)
        weights = scores * chosen
        return weights / weights.sum(-1, keepdim=True) * self.config.routed_scaling_factor

    def _balance(self, chosen: Tensor) -> None:
        fair_share = self.config.num_experts_per_tok / self.config.n_routed_experts
        self.e_score_correction_bias += BIAS_STEP * (fair_share - chosen.flatten(0, -2).mean(0)).sign()


def choose_experts(biased_scores: Tensor, config: Config) -> Tensor:
    """1 where an expert is chosen, [..., experts]: the best experts of the best groups; a group counts as its two best experts do."""
    groups = biased_scores.unflatten(-1, (config.n_group, -1))
    best_groups = groups.topk(2, -1).values.sum(-1).topk(config.topk_group, -1).indices
    kept = torch.zeros_like(groups[..., 0]).scatter_(-1, best_groups, 1).bool()
    candidates = groups.masked_fill(~kept[..., None], float("-inf")).flatten(-2)
    best_experts = candidates.topk(config.num_experts_per_tok, -1).indices
    return torch.zeros_like(biased_scores).scatter_(-1, best_experts, 1)


class Experts(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, width = config.hidden_size, config.moe_intermediate_size
        self.gate = Gate(config)
        self.experts = nn.ModuleList(FeedForward(hidden, width) for _ in range(config.n_routed_experts))
        self.shared_experts = FeedForward(hidden, width * config.n_shared_experts)

    def forward(self, x: Tensor) -> Tensor:
        """Every expert sees every token, as one wide layer whose parts are weighted: at this size faster than sorting tokens."""
        gate, up = (torch.cat([getattr(e, name).weight for e in self.experts]) for name in ("gate_proj", "up_proj"))
        down = torch.cat([e.down_proj.weight for e in self.experts], 1)
        inner = (F.silu(x @ gate.T) * (x @ up.T)).unflatten(-1, (len(self.experts), -1))
        return (inner * self.gate(x)[..., None]).flatten(-2) @ down.T + self.shared_experts(x)
