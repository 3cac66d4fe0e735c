"""Rotary positions that are not scaled (GLM-5.x), on a CPU."""

from collections.abc import Callable
from typing import Any


def plain_where_nothing_is_scaled(  # noqa: PLR0913, PLR0917 - the engine's signature
    original: Callable[..., Any],
    head_size: int,
    rotary_dim: int,
    max_position: int,
    base: float,
    is_neox_style: bool = True,
    rope_scaling: dict[str, Any] | None = None,
    dtype: Any = None,
    partial_rotary_factor: float = 1.0,
    device: str | None = None,
) -> Any:
    """The CPU's factory makes YaRN alone; the engine's general factory makes the plain kind, which computes in torch."""
    shape = (head_size, rotary_dim, max_position, base, is_neox_style, rope_scaling, dtype, partial_rotary_factor)
    if rope_scaling is not None:
        return original(*shape, device)
    from sglang.srt.layers.rotary_embedding.factory import get_rope  # noqa: PLC0415 - found when a scheduler runs

    return get_rope(*shape)
