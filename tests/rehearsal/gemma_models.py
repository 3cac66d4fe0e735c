"""The committed tiny Gemma 4 models, and seeded ones whose every weight has a value of its own."""

from pathlib import Path

import torch
from tiny_models.gemma4.checkpoint import read_checkpoint
from tiny_models.gemma4.config import FAMILIES
from tiny_models.gemma4.network import Network

from spec_toolkit.shipped import rehearsal


def target_folder(family: str) -> Path:
    return rehearsal() / "models" / f"{family}_tiny"


def assistant_folder(family: str) -> Path:
    return rehearsal() / "models" / f"{family}_tiny_assistant"


COMMITTED = [family for family in FAMILIES if target_folder(family).is_dir()]


def trained(family: str) -> Network:
    return read_checkpoint(target_folder(family), assistant_folder(family), FAMILIES[family]())


def seeded(family: str, seed: int = 0) -> Network:
    """Random, and no norm or scalar left at one: a weight that is not read shows."""
    torch.manual_seed(seed)
    network = Network(FAMILIES[family]())
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter.mul_(1 + 0.2 * torch.randn(parameter.shape))
    return network.eval()
