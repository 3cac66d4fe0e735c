"""What is put to the engine's resolver, and what it says. Pure records; they cross a process and lie in the cache as JSON."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from spec_toolkit.errors import Finding


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


class Decided(Struct, frozen=True, kw_only=True):
    """None: the engine leaves it open, or it does not arise."""

    prefill_attention: str | None
    decode_attention: str | None
    draft_attention: str | None  # None: as the target's
    verify_attention: str | None  # which of the two above a verify pass takes: prefill, decode
    sparse_prefill: str | None
    sparse_decode: str | None
    kv_cache_dtype: str | None  # auto: the model's own
    page_tokens: int | None
    memory_fraction: float | None  # weights and KV pool over all of HBM
    pool_tokens: int | None  # a ceiling on the KV pool
    max_running_requests: int | None  # of the whole server; None: what memory leaves
    decode_graph_backend: str | None
    decode_graphs: tuple[int, ...]  # batch sizes of one rank; empty: none is captured
    prefill_graph_backend: str | None
    prefill_graphs: tuple[int, ...]  # tokens; empty: none is captured
    chunked_prefill_tokens: int | None  # of one rank; -1: not chunked
    max_prefill_tokens: int | None
    moe_runner: str | None
    moe_all_to_all: str | None
    draft_moe_runner: str | None
    draft_moe_all_to_all: str | None
    dtype: str | None
    quantization: str | None
    sampling: str | None
    overlap: bool
    radix_cache: bool
    conservativeness: float | None
    tp: int
    attention_dp: int
    ep: int
    pp: int
    nodes: int
    algorithm: str | None  # None: it does not speculate
    num_steps: int | None
    topk: int | None
    num_draft_tokens: int | None
    widest_round: int | None  # positions of the widest verify pass
    adaptive: bool
    draft_model: str | None
    rejection_sampling: bool


class Resolution(Struct, frozen=True, kw_only=True):
    """What `spec-toolkit resolve` says; --json prints it."""

    name: str
    machine: str  # "2 nodes of 8 H200"
    engine: str | None  # its version
    answered: bool  # False: what came says nothing about the launch
    resolved: bool
    decided: Decided | None
    autoregressive: Decided | None  # the same engine without speculation; None where that is not asked, or refused
    said: tuple[str, ...]  # the engine's warnings
    findings: tuple[Finding, ...]
    seconds: float | None  # the engine took, once imported
    of_tables: bool = True  # False: it follows from files of this machine too
