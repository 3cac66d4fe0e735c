"""What is put to the engine's resolver, and what it says. Pure records; they cross a process and lie in the cache as JSON."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct


class DescribedGpu(Struct, frozen=True, kw_only=True):
    """GPUs of one node, alike."""

    name: str  # as the driver spells it: "NVIDIA H200"
    capability: tuple[int, int]
    memory_mib: int  # of one, as nvidia-smi tells it
    multiprocessors: int | None
    count: int


class Question(Struct, frozen=True, kw_only=True):
    """One launch: the arguments after the launch command, and what they name."""

    argv: tuple[str, ...]
    gpu: DescribedGpu | None  # None: the CPU engine
    files: Mapping[str, Any] = {}  # by relative path, as JSON: "deepseek-ai/DeepSeek-V3/config.json"
    environment: Mapping[str, str] = {}  # set for the engine
    places: tuple[str, ...] = ()  # folders and files of this machine that the engine reads itself; absolute
    hooks: tuple[Mapping[str, str], ...] = ()  # ours that change what is resolved: target, file, function


class Outcome(Enum):
    RESOLVED = "resolved"
    REFUSED = "refused"  # the engine would not start, and says why
    UNANSWERED = "unanswered"  # a fault of it, or of what stands in for the GPU: says nothing about the launch


class Stage(Enum):
    """How far the engine came."""

    READ = "read"  # its parser
    RESOLVE = "resolve"
    CHECK = "check"  # its check_server_args
    DONE = "done"


class SeenModel(Struct, frozen=True, kw_only=True):
    architecture: str | None
    dtype: str
    context_tokens: int
    quantization: str | None


class Believed(Struct, frozen=True, kw_only=True):
    """What the engine's own probes said of the machine."""

    cuda: bool
    sm: int  # compute capability, times ten
    memory_mib: float | None


class Answer(Struct, frozen=True, kw_only=True):
    outcome: Outcome
    engine: str | None = None  # its version
    stage: Stage = Stage.READ
    said: tuple[str, ...] = ()  # its warnings, in order
    believed: Believed | None = None
    kind: str = ""  # the exception's class; empty where there is none
    sentence: str = ""  # its text; empty where there is none
    at: str = ""  # "validation_hook.py:161 in check_pipeline_parallel_compat"
    arguments: Mapping[str, Any] = {}  # every field of the engine's record, resolved; secrets are "***"
    prefill_attention: str | None = None
    decode_attention: str | None = None
    widest_round: int | None = None  # positions of the widest verify pass it may take; None: it does not speculate
    model: SeenModel | None = None
    seconds: float | None = None  # of parsing, resolving and checking
    imported_seconds: float | None = None  # of the engine's import, once for all questions of one process
