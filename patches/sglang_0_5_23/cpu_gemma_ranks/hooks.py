"""Lets several ranks share a Gemma 4's heads on a CPU as they do on GPUs."""

from collections.abc import Callable
from typing import Any


def as_for_one_rank(
    original: Callable[..., Any],
    model_config: Any,
    load_config: Any,
    tp_size: int,  # noqa: ARG001 - the engine's signature
) -> Any:
    """The engine pads heads that ranks do not divide, which Gemma 4's per-layer counts refuse; its attention repeats them by itself."""
    return original(model_config, load_config, 1)
