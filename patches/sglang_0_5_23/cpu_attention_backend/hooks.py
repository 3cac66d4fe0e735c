"""Keeps the attention backend that has CPU kernels on a CPU without AMX."""

from collections.abc import Callable
from typing import Any


def keep_backend(original: Callable[[Any], dict[str, Any]], arguments: Any) -> dict[str, Any]:
    """No fallback for `intel_amx`; the fallbacks of other platforms stay."""
    return {} if arguments.attention_backend == "intel_amx" else original(arguments)
