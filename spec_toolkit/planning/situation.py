"""What a rule about the engine reads: what is asked of it, of which models, on which machines, beside what. Pure records.

A recipe, a pasted command and a pod template each become one. `where` in a finding of such a rule is the argument's name
(`speculative_eagle_topk`), a `site.`, `target.`, `draft.` or `workload.` path, or an environment variable's name; `naming` turns it into
the recipe's key or the command's flag.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.facts.model import Model
from spec_toolkit.facts.records import EngineFacts, GpuFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The machines a launch is for."""

    gpu: str | None = None  # a recipe's word: h200; None: not said
    facts: GpuFacts | None = None  # None: no such GPU in the tables
    gpus_per_node: int = 1
    nodes: int = 1

    @property
    def ranks(self) -> int:
        return self.gpus_per_node * self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Versions that a launch is bound to; None: not said."""

    sglang: str | None = None  # "0.5.23"; of the recipe, of the image's tag, of the command
    image: str | None = None
    flashinfer: str | None = None
    transformers_model_types: tuple[str, ...] | None = None  # that the image's transformers can read


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What clients will do; None: not said."""

    peak_concurrency: int | None = None  # requests at once
    context_tokens: int | None = None  # prompt and answer of one request
    longest_request_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    arguments: Arguments
    target: Model
    draft: Model | None  # None: none, or the head ships in the target's checkpoint
    site: Site
    pins: Pins
    engine: EngineFacts
    workload: Workload = Workload()
    environment: Mapping[str, str] = field(default_factory=dict)  # variables set for the engine
    require_graphs: bool = False  # a batch without a graph is refused, not warned of
