"""One stage of training: AdamW with warm-up and a cosine, the same for every family."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

WARM_UP_STEPS = 40
REPORT_EVERY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    name: str
    steps: int
    learning_rate: float  # after warm-up
    decay: float = 0.97  # share of the rate that the cosine takes away by the last step; 0: constant


def learning_rate(stage: Stage, step: int) -> float:
    warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
    cosine = 0.5 * (1 - math.cos(math.pi * step / stage.steps))
    return stage.learning_rate * warm_up * (1 - stage.decay * cosine)


def optimise(
    stage: Stage, parameters: list[nn.Parameter], loss_at: Callable[[int], Tensor], say: Callable[[str], None]
) -> None:
    """Minimise `loss_at(step)`, a scalar over a fresh batch. Norm weights are not decayed."""
    matrices = [p for p in parameters if p.dim() > 1]
    vectors = [p for p in parameters if p.dim() < 2]
    optimiser = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.95)
    )
    for step in range(stage.steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(stage, step)
        loss = loss_at(step)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        if step % REPORT_EVERY == 0 or step == stage.steps - 1:
            say(f"{stage.name}: step {step} of {stage.steps}, loss {loss.item():.3f}")
