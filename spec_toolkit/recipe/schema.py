"""A recipe as records: choices in, consequences out. Pure.

One recipe is one deployable cell: this target, this draft, this hardware, this goal. Flat: no inheritance, no templates.
Units stand in the key. What follows from a choice (the width of a chain, the engine's flags) is planning's and is left out.
"""

from typing import Annotated

from msgspec import Meta, Struct

from spec_toolkit.terms import Acceptance, Method, Mode

Count = Annotated[int, Meta(ge=1)]
Steps = Annotated[int, Meta(ge=1, le=64)]
Gib = Annotated[float, Meta(gt=0)]  # gibibytes on each rank
Seconds = Annotated[float, Meta(gt=0)]
Commit = Annotated[str, Meta(pattern=r"^([0-9a-f]{40}|sha256:[0-9a-f]{64})$")]  # a hub commit, or the content hash of a local folder
Sha256 = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
Image = Annotated[str, Meta(pattern=r"^[^\s@]+@sha256:[0-9a-f]{64}$")]
Flag = Annotated[str, Meta(pattern=r"^--[a-z0-9][a-z0-9-]*$")]


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every part of a recipe is: frozen, keyword-only, and deaf to keys it does not know."""


class Target(Record):
    """The model whose distribution is served."""

    model: str  # hub repository, a folder, or `rehearsal:<name>` for a tiny model that ships with the toolkit
    revision: Commit | None = None  # open: resolved once at deploy, recorded, and shown with the line to write
    tokenizer: Sha256 | None = None  # hash over vocabulary, merges, special tokens and chat template
    quantization: str | None = None  # as the checkpoint has it: fp8, nvfp4; open: the checkpoint says


class Draft(Record):
    """Whatever proposes tokens."""

    method: Method
    model: str = "same"  # 'same': the head ships in the target's checkpoint
    revision: Commit | None = None  # of a separate draft model only
    num_steps: Steps | None = None  # draft passes in a round
    topk: Annotated[int, Meta(ge=1, le=64)] = 1  # branches kept per pass; 1 is a chain
    num_draft_tokens: Annotated[int, Meta(ge=2, le=1024)] | None = None  # root included; a chain's follows from num_steps
    block_tokens: Count | None = None  # dspark only: it drafts a block and has no step count
    acceptance: Acceptance = Acceptance.TARGET_ONLY
    accept_threshold_single: Annotated[float, Meta(gt=0, le=1)] | None = None  # relaxed only; below 1 is lossy
    accept_threshold_accumulated: Annotated[float, Meta(gt=0, le=1)] | None = None  # relaxed only; below 1 is lossy


class Layout(Record):
    """How the target lies across ranks."""

    tp: Count = 1
    dp: Count = 1
    ep: Count = 1
    dp_attention: bool = False


class Hardware(Record):
    """What a deployment of this recipe stands on. `gpu: cpu` makes the recipe a rehearsal."""

    gpu: str  # h200, b200, ...; cpu
    count: Count = 1  # per node
    nodes: Count = 1
    layout: Layout = Layout()


class ExtraArg(Record):
    """The one escape hatch to an engine flag; every use of it is a warning."""

    flag: Flag
    why: str
    value: str | int | float | None = None  # left out: a switch


class Engine(Record):
    sglang: Annotated[str, Meta(pattern=r"^\d+\.\d+\.\d+([a-z0-9.+]*)$")]
    image: Image | None = None
    patches: tuple[str, ...] = ()  # by id, beyond those every deployment needs
    overlap: bool = True  # overlap scheduling: what production runs
    dtype: str | None = None  # open: the checkpoint says
    attention_backend: str | None = None  # open: the engine chooses
    extra_args: tuple[ExtraArg, ...] = ()


class Graphs(Record):
    decode_batch_sizes: tuple[Count, ...] | None = None  # open: derived from the admission cap


class Limits(Record):
    """Per rank where a rank has its own memory."""

    max_running_requests: Count
    context_tokens: Count
    kv_pool_tokens: Count | None = None  # open: what memory leaves
    memory_fraction: Annotated[float, Meta(gt=0, lt=1)] | None = None  # weights and KV pool over all of HBM; open: the engine's rule
    draft_weights_gib: Gib | None = None
    draft_kv_gib: Gib | None = None
    temporary_kv_gib: Gib | None = None


class Policy(Record):
    """What may be done about speculation at run time."""

    allow: tuple[Mode, ...] = (Mode.FULL, Mode.AUTOREGRESSIVE)
    dwell_seconds: Seconds = 60.0
    ready_seconds: Seconds = 1800.0  # from start to the first answer, or the start has failed
    drain_seconds: Seconds = 30.0  # from the request to stop to the kill


class Recipe(Record):
    summary: str
    target: Target
    draft: Draft
    hardware: Hardware
    engine: Engine
    limits: Limits
    graphs: Graphs = Graphs()
    policy: Policy = Policy()
    evidence: str | None = None  # a file under recipes/, written by a tool, with an autoregressive row; open: unproven
    simulated: bool = False  # acceptance is faked by the engine; labels every number

    @property
    def is_rehearsal(self) -> bool:
        return self.hardware.gpu == "cpu"

    @property
    def is_lossy(self) -> bool:
        return self.draft.acceptance is Acceptance.RELAXED
