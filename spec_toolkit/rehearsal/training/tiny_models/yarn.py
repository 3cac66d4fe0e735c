"""Rotary positions stretched by YaRN (arXiv 2309.00071), as DeepSeek-V3's configuration and SGLang read it. Pure."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """The `rope_scaling` entry of config.json; field names are its keys."""

    factor: float
    beta_fast: float
    beta_slow: float
    mscale: float
    mscale_all_dim: float
    original_max_position_embeddings: int


def inverse_frequencies(dim: int, base: float, yarn: Yarn | None) -> Tensor:
    """Radians per position and pair, [dim / 2]: fast pairs keep their frequency, slow ones are divided by the factor; None: all keep it."""
    plain = base ** -(torch.arange(0, dim, 2).float() / dim)
    if yarn is None:
        return plain
    low = max(math.floor(_pair_with_rotations(yarn.beta_fast, dim, base, yarn)), 0)
    high = min(math.ceil(_pair_with_rotations(yarn.beta_slow, dim, base, yarn)), dim - 1)
    stretched = ((torch.arange(dim // 2).float() - low) / max(high - low, 1e-3)).clamp(0, 1)
    return plain * (1 - stretched) + plain / yarn.factor * stretched


def _pair_with_rotations(rotations: float, dim: int, base: float, yarn: Yarn) -> float:
    """Index of the pair that turns so many times over the original context."""
    positions = yarn.original_max_position_embeddings
    return dim * math.log(positions / (rotations * 2 * math.pi)) / (2 * math.log(base))


def attention_temperature(yarn: Yarn | None) -> float:
    """Factor of the softmax scale. cos and sin stay unscaled, because mscale equals mscale_all_dim."""
    if yarn is None:
        return 1.0
    return (0.1 * yarn.mscale_all_dim * math.log(yarn.factor) + 1) ** 2


def rotate_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (0, 1), (2, 3), ... of x [..., tokens, dim] by the angles of cos, sin [tokens, dim / 2]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As `rotate_interleaved`, the pairs being (0, dim / 2), (1, dim / 2 + 1), ..."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
