"""What can be known before an engine runs: tables, checkpoints, machines. Pure; absent is None, never zero."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from spec_toolkit.facts.model import Inside, Weights

T = TypeVar("T")


class Level(Enum):
    """How good a source is; the levels of the project's model facts."""

    OFFICIAL_CONFIG = "official-config"
    OFFICIAL_CARD = "official-card"
    OFFICIAL_DOCS = "official-docs"
    SGLANG_SOURCE = "sglang-source"  # read there, or got by running it
    TRANSFORMERS_SOURCE = "transformers-source"
    PAPER = "paper"
    THIRD_PARTY = "third-party"
    UNKNOWN = "unknown"


class Fact(Struct, Generic[T], frozen=True, forbid_unknown_fields=True):
    """A value with its evidence level and its source's id in the table; short keys because tables are mostly these."""

    v: T
    e: Level
    s: str
    note: str = ""


class CheckpointFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One repository of a model: how its weights are stored, and what draft ships inside."""

    weights: Fact[Weights]
    bytes: Fact[int | None]  # of all weight files, a draft inside included
    draft: Fact[Inside | None] | None = None  # None: its target needs a draft of its own
    draft_weights: Fact[Weights | None] | None = None
    draft_bytes: Fact[int | None] | None = None
    quantization_config: Fact[dict[str, Any] | None]  # config.json's; a '*' in module names stands for all layers
    hf_quant_config: Fact[dict[str, Any]] | None = (
        None  # the `quantization` of hf_quant_config.json, where config.json has none
    )
    config: dict[str, Fact[Any]] = {}  # what its config.json says otherwise than the model's; None: has no such field


class EngineDefaults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the engine makes of a model where a launch says nothing."""

    algorithm: Fact[str]
    steps_topk_width: Fact[tuple[int, int, int] | None]  # None: it takes none, or refuses; the note says which
    max_running_requests: Fact[int]  # with speculation
    target_class: Fact[str]
    draft_class: Fact[str]
    dspark_class: Fact[str] | None = None
    nextn_alias: Fact[str] | None = None
    draft_path_needed: Fact[bool] | None = None


class ModelFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model of the hub, in one or several repositories; a Gemma 4 assistant is a model of its own."""

    repo: Fact[str]  # the one that the others are made from
    drafts_for: str | None = None  # id of the target, of an assistant
    architecture: Fact[str]
    model_type: Fact[str]
    text_model_type: Fact[str] | None = None  # not None: config.json keeps the language model's fields in `text_config`
    config: dict[str, Fact[Any]]  # the language model's fields, as config.json spells them
    wrapper: dict[str, Fact[Any]] = {}  # config.json's fields beside `text_config`
    params: dict[str, Fact[int]]  # counts of parameters; `draft`: of one MTP layer without embedding and head
    tokenizer: dict[str, Fact[Any]]
    engine: EngineDefaults | None = None  # None: an assistant
    checkpoints: dict[str, CheckpointFacts]  # by repository

    def count(self, field: str) -> int | None:
        """A whole number of the configuration; None where the table has none."""
        fact = self.config.get(field)
        return fact.v if fact is not None and isinstance(fact.v, int) else None


class GpuFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    planned_for: bool = True  # False: known to exist, and no more
    name: Fact[str]  # the word in the driver's product name: "H200" in "NVIDIA H200"
    compute_capability: Fact[tuple[int, int] | None]
    memory_mib: Fact[int | None]  # total, as nvidia-smi reports
    multiprocessors: Fact[int | None]
    memory_bandwidth: Fact[int | None]  # bytes a second
    bf16_flops: Fact[int | None]  # dense operations a second
    fp8_flops: Fact[int | None]
    fp4_flops: Fact[int | None]
    link_bandwidth: Fact[int | None]  # bytes a second, one way, to the GPUs of its node
    gpus_per_node: Fact[int | None]


class AcceptanceCurve(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str  # id
    repo: str
    method: str  # mtp, dspark
    thinking: bool
    emitted: Fact[tuple[float, ...]]  # emitted length with 1, 2, ... drafts


class AcceptanceReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str  # id
    said: Fact[str]


class Floor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lower bound that upstream's tests assert of a setup."""

    repo: str
    setup: str
    emitted: float | None = None  # emitted length
    tokens_per_second: float | None = None  # at batch 1
    gsm8k: float | None = None  # share of right answers
    e: Level
    s: str
    note: str = ""


class Acceptance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prior for where a recipe has no evidence of its own."""

    measured: str  # how the curves were
    curves: tuple[AcceptanceCurve, ...]
    reports: tuple[AcceptanceReport, ...]
    floors: tuple[Floor, ...]


class Since(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first engine that is known to run something."""

    models: tuple[str, ...]  # ids
    method: str  # a recipe's word
    weights: Weights | None = None  # None: however they are stored
    attention_dp: bool | None = None
    since: Fact[str | None]


class Rung(Struct, frozen=True, forbid_unknown_fields=True):
    """Batch sizes first, first + step, ... up to last; without a last, up to the cap."""

    first: int
    last: int | None
    step: int


class DispatchLimit(Struct, frozen=True, forbid_unknown_fields=True):
    """A buffer of an expert-parallel all-to-all: tokens one rank may send in one pass."""

    variable: str  # of the environment
    default: int  # tokens
    most: int | None  # tokens the variable may say; None: no ceiling is known


class MemoryDefaults(Struct, frozen=True, forbid_unknown_fields=True):
    """What the engine takes on a GPU of less memory than this, where a launch says nothing."""

    below_mib: int | None  # None: any
    chunk_tokens: int
    largest_graph_few: int  # batch size, with tensor parallelism below 4
    largest_graph_many: int  # with 4 or more


class RefusedFlag(Struct, frozen=True, forbid_unknown_fields=True):
    """A flag that a recipe's extra_args may not carry, and where it belongs."""

    flag: str  # ending in '*': every flag that begins so
    why: str
    instead: str


class EngineFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One version of SGLang."""

    version: str
    default_max_running_requests: Fact[int]  # with speculation, where a launch says nothing
    decode_graphs_speculating: Fact[tuple[Rung, ...]]
    decode_graphs_autoregressive: Fact[tuple[Rung, ...]]
    max_running_requests_of: Fact[
        dict[str, int]
    ]  # by architecture, with or without speculation, where a launch says nothing
    prefill_graphs: Fact[tuple[Rung, ...]]  # tokens; the list's end is not added
    prefill_graph_most_mla: Fact[int]  # tokens
    by_memory: Fact[tuple[MemoryDefaults, ...]]  # ascending
    dispatch: Fact[dict[str, DispatchLimit]]  # by all-to-all backend
    refused_flags: tuple[RefusedFlag, ...]


class Tables(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the package knows by heart."""

    sources: dict[str, str]  # by id
    models: dict[str, ModelFacts]
    gpus: dict[str, GpuFacts]  # by a recipe's word: "h200"
    acceptance: Acceptance
    versions: tuple[Since, ...]
    engine: EngineFacts

    def model(self, repo: str) -> ModelFacts | None:
        return next((facts for facts in self.models.values() if repo in facts.checkpoints), None)

    def checkpoint(self, repo: str) -> CheckpointFacts | None:
        facts = self.model(repo)
        return facts.checkpoints[repo] if facts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model's folder, read without loading a weight."""

    folder: Path
    architecture: str
    num_hidden_layers: int
    num_nextn_predict_layers: int | None
    max_position_embeddings: int | None  # tokens
    tensors: Mapping[str, int]  # bytes by tensor name
    tokenizer: str  # "sha256:..." over vocabulary, merges, special tokens and chat template


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    index: int
    uuid: str
    name: str  # as the driver spells it: "NVIDIA H200"
    memory_mib: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this process could use."""

    gpus: tuple[Gpu, ...]  # visible ones: CUDA_VISIBLE_DEVICES is respected
    hidden_gpus: int  # present, but hidden by CUDA_VISIBLE_DEVICES
    driver: str | None  # version of NVIDIA's
    cores: int  # this process may run on
    memory_mib: int | None  # of the machine or of the container, whichever is less
    origin: str  # what was asked, and what it said where it did not answer
