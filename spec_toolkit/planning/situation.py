"""What a rule about the engine reads: what is asked of it, of which models, on which machines, beside what. Pure records.

A recipe, a pasted command and a pod template each become one. `where` in a finding of such a rule is the argument's name
(`speculative_eagle_topk`), a `site.`, `target.`, `draft.` or `workload.` path, or an environment variable's name; `naming` turns it into
the recipe's key or the command's flag.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.facts.model import Model
from spec_toolkit.facts.records import EngineFacts, GpuFacts


class Site(Struct, frozen=True, kw_only=True):
    """The machines a launch is for."""

    gpu: str | None = None  # a recipe's word: h200; None: not said
    facts: GpuFacts | None = None  # None: no such GPU in the tables
    gpus_per_node: int = 1
    nodes: int = 1

    @property
    def ranks(self) -> int:
        return self.gpus_per_node * self.nodes


class Pins(Struct, frozen=True, kw_only=True):
    """Versions that a launch is bound to; None: not said."""

    sglang: str | None = None  # "0.5.23"; of the recipe, of the image's tag, of the command
    image: str | None = None
    flashinfer: str | None = None
    transformers_model_types: tuple[str, ...] | None = None  # that the image's transformers can read
    compute_capabilities: tuple[tuple[int, int], ...] | None = None  # that the image's kernels are built for


class Workload(Struct, frozen=True, kw_only=True):
    """What clients will do; None: not said."""

    peak_concurrency: int | None = None  # requests at once
    context_tokens: int | None = None  # prompt and answer of one request
    longest_request_seconds: float | None = None
    canary_prompt_tokens: int | None = None  # the longest prompt that is tried before traffic


class Caps(Struct, frozen=True, kw_only=True):
    """What a draft may take of one rank's memory; None: no cap."""

    draft_weights_gib: float | None = None
    draft_kv_gib: float | None = None
    temporary_kv_gib: float | None = None
    may_run_autoregressive: bool = True  # where a cap is exceeded; False: the launch is refused


class Measured(Struct, frozen=True, kw_only=True):
    """What somebody saw on one rank of such a launch, in GiB; it goes before what is counted. None: nobody said."""

    memory_gib: float | None = None  # of the GPU
    free_before_load_gib: float | None = None
    free_after_load_gib: float | None = None  # the target loaded, no draft
    target_weights_gib: float | None = None
    draft_weights_gib: float | None = None
    draft_graphs_gib: float | None = None
    kv_bytes_per_token: float | None = None  # target and draft
    outside_gib: float | None = None  # activations, graphs, workspaces: all that is neither weights nor KV pool
    autoregressive_fraction: float | None = None  # the memory fraction that served without speculation
    autoregressive_spare_gib: float | None = None  # what was free then, after graphs were captured


class Situation(Struct, frozen=True, kw_only=True):
    arguments: Arguments
    target: Model
    draft: Model | None  # None: none, or the head ships in the target's checkpoint
    site: Site
    pins: Pins
    engine: EngineFacts
    workload: Workload = Workload()
    environment: Mapping[str, str] = field(default_factory=dict)  # variables set for the engine
    sets_environment: bool = (
        False  # whoever starts it sets what follows from the plan: a recipe, which has no key for it
    )
    loads_knob: bool = False  # our runtime_knob patch: steps come from outside, under attention data parallelism too
    require_graphs: bool = False  # a batch without a graph is refused, not warned of
    steps: tuple[
        int, ...
    ] = ()  # step counts the engine is started with, where a plan lists them; empty: the launch's own
    caps: Caps = Caps()
    measured: Measured = Measured()
