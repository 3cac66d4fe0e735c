"""Makes torch and the engine believe in GPUs that somebody described. Runs in the child only.

`torch.version.cuda` must be set before the engine is imported: without it the engine silently resolves for a CPU.
"""

import functools
import sys
from typing import Any

# What the engine's own wheels of this version are built for (its requirements name cu13), where torch is a build without CUDA.
_CUDA = "13.0"
_MIB = 2**20


class _Properties:
    gcnArchName = ""  # noqa: N815 - torch's name
    warp_size = 32

    def __init__(self, gpu: dict[str, Any]) -> None:
        self.name: str = gpu["name"]
        self.major, self.minor = gpu["capability"]
        self.total_memory: int = gpu["memory_mib"] * _MIB
        self.multi_processor_count: int | None = gpu["multiprocessors"]


def describe_to_torch(gpu: dict[str, Any]) -> None:
    """Before the engine is imported, and again where the GPU is another one."""
    import torch  # noqa: PLC0415 - seconds

    if torch.version.cuda is None:
        torch.version.cuda = _CUDA
    memory = gpu["memory_mib"] * _MIB
    said = {
        "is_available": True,
        "is_initialized": True,  # then nobody asks NVML, nor initialises
        "_lazy_init": None,
        "device_count": gpu["count"],
        "current_device": 0,
        "get_device_capability": tuple(gpu["capability"]),
        "get_device_name": gpu["name"],
        "get_device_properties": _Properties(gpu),
        "mem_get_info": (memory, memory),
    }
    for name, answer in said.items():
        setattr(torch.cuda, name, functools.partial(_answer, answer))


def describe_to_engine(gpu: dict[str, Any]) -> None:
    """After the engine is imported: what it asks of programs, and what it remembers of an earlier description."""
    from sglang.srt.utils import common  # noqa: PLC0415 - seconds

    common.get_nvgpu_memory_capacity = functools.partial(_answer, float(gpu["memory_mib"]))
    for module in [found for name, found in sys.modules.items() if name.startswith("sglang.")]:
        for value in list(vars(module).values()):
            if callable(getattr(value, "cache_clear", None)) and not isinstance(value, type):
                value.cache_clear()


def believed() -> dict[str, Any]:
    """What the engine takes the machine for, by its own probes."""
    from sglang.srt.utils import common  # noqa: PLC0415 - seconds

    return {
        "cuda": bool(common.is_cuda()),
        "sm": common.get_device_sm(),
        "memory_mib": common.get_device_memory_capacity("cuda") if common.is_cuda() else None,
    }


def _answer(answer: object, *_: object, **__: object) -> object:
    return answer
