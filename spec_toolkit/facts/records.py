"""What can be known before an engine runs: tables, checkpoints, machines. Pure; absent is None, never zero."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

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


class ModelFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hub model. Draft fields are of the draft that ships inside it."""

    repo: Fact[str]
    architecture: Fact[str]
    max_position_embeddings: Fact[int]  # tokens
    num_nextn_predict_layers: Fact[int]  # MTP layers in the checkpoint
    engine_steps_topk_width: Fact[tuple[int, int, int]]  # what the engine takes where a launch says nothing


class GpuFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Fact[str]  # the word in the driver's product name: "H200" in "NVIDIA H200"


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
    engine: EngineFacts

    def model(self, repo: str) -> ModelFacts | None:
        return next((facts for facts in self.models.values() if facts.repo.v == repo), None)


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

    @property
    def has_mtp_layer(self) -> bool:
        """DeepSeek and GLM keep it as one more layer after the last; quantised copies often drop it."""
        return any(name.startswith(f"model.layers.{self.num_hidden_layers}.") for name in self.tensors)


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
