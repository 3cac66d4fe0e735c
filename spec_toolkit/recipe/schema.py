"""A recipe as records: choices in, consequences out. Pure.

One recipe is one deployable cell: this target, this draft, this hardware, this goal. Flat: no inheritance, no templates.
Units stand in the key. What follows from a choice (the width of a chain, the engine's flags) is planning's and is left out.
"""

from typing import Annotated

from msgspec import Meta, Struct

from spec_toolkit.terms import Acceptance, Basis, Comeback, Method, Mode, RanksAfterFault

# Descriptions are the loader's words for people and the editor's hover text. Upper bounds only catch slips of the keyboard or the
# unit (bytes typed for GiB) and keep what is derived from a number small; what a machine can hold is planning's to say.
Count = Annotated[int, Meta(ge=1, le=1024)]
Requests = Annotated[int, Meta(ge=1, le=65_536)]
Tokens = Annotated[int, Meta(ge=1, le=2**40)]
Steps = Annotated[int, Meta(ge=1, le=64)]
Branches = Annotated[int, Meta(ge=1, le=64)]
Width = Annotated[int, Meta(ge=2, le=1024)]  # positions of one verify pass, root included
Fraction = Annotated[float, Meta(gt=0, lt=1)]
Gib = Annotated[float, Meta(gt=0, le=65_536)]  # gibibytes on each rank
Seconds = Annotated[float, Meta(gt=0, le=1_000_000)]
Threshold = Annotated[float, Meta(gt=0, le=1)]
Commit = Annotated[
    str,
    Meta(
        pattern=r"^([0-9a-f]{40}|sha256:[0-9a-f]{64})$",
        description="a commit of 40 hexadecimal digits, or 'sha256:' and the 64 of a local folder's content hash",
    ),
]
Sha256 = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$", description="'sha256:' and 64 hexadecimal digits")]
Image = Annotated[
    str,
    Meta(
        pattern=r"^[^\s@]+(@sha256:[0-9a-f]{64})?$",
        description="an image's name, name:tag, or better by digest, name@sha256:<64 hexadecimal digits>",
    ),
]
Flag = Annotated[
    str, Meta(pattern=r"^--[a-z0-9][a-z0-9-]*$", description="a flag as the engine spells it, --like-this")
]
Word = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.-]*$", description="one lower-case word")]
Version = Annotated[str, Meta(pattern=r"^\d+\.\d+\.\d+([a-z0-9.+]*)$", description="an exact version such as 0.5.23")]
Line = Annotated[str, Meta(min_length=1, max_length=300, description="a sentence on one line")]
EvidenceFile = Annotated[
    str,
    Meta(
        pattern=r"^evidence/[a-z0-9_]+(/[a-z0-9_]+)*\.json$", description="a file under recipes/, evidence/<name>.json"
    ),
]
Model = Annotated[
    str,
    Meta(
        pattern=r"^(rehearsal:[a-z0-9_]+|[A-Za-z0-9][\w.-]*/[\w.-]+|(/|\./|\.\./|~/).+)$",
        description="a hub repository (owner/name), a folder (/..., ./..., ~/...) or rehearsal:<name>",
    ),
]
DraftModel = Annotated[
    str,
    Meta(
        pattern=r"^(same|rehearsal:[a-z0-9_]+|[A-Za-z0-9][\w.-]*/[\w.-]+|(/|\./|\.\./|~/).+)$",
        description="'same', a hub repository (owner/name), a folder (/..., ./..., ~/...) or rehearsal:<name>",
    ),
]


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every part of a recipe is; frozen and keyword-only are said again below because neither is inherited."""


class Target(Record, frozen=True, kw_only=True):
    """The model whose distribution is served."""

    model: Model  # hub repository, a folder, or `rehearsal:<name>` for a tiny model that ships with the toolkit
    revision: Commit | None = None  # open: resolved once at deploy, recorded, and shown with the line to write
    tokenizer: Sha256 | None = None  # hash over vocabulary, merges, special tokens and chat template
    quantization: Word | None = None  # as the checkpoint has it: fp8, nvfp4; open: the checkpoint says


class Draft(Record, frozen=True, kw_only=True):
    """Whatever proposes tokens."""

    method: Method
    model: DraftModel = "same"  # 'same': the head ships in the target's checkpoint
    revision: Commit | None = None  # of a separate draft model only
    num_steps: Steps | None = None  # draft passes in a round
    topk: Branches = 1  # branches kept per pass; 1 is a chain
    num_draft_tokens: Width | None = None  # root included; a chain's follows from num_steps
    block_tokens: Count | None = None  # dspark only: it drafts a block and has no step count
    acceptance: Acceptance = Acceptance.TARGET_ONLY
    accept_threshold_single: Threshold | None = None  # relaxed only; below 1 is lossy
    accept_threshold_accumulated: Threshold | None = None  # relaxed only; below 1 is lossy
    moe_runner_backend: Word | None = None  # of the draft's experts; open: the engine takes the target's
    moe_a2a_backend: Word | None = None  # as above


class Layout(Record, frozen=True, kw_only=True):
    """How the target lies across ranks."""

    tp: Count = 1
    dp: Count = 1
    ep: Count = 1
    dp_attention: bool = False
    dp_lm_head: bool = False  # each attention rank computes its own logits
    moe_a2a_backend: Word | None = None  # how tokens reach the experts of other ranks: deepep, ...; open: all-reduce


class Hardware(Record, frozen=True, kw_only=True):
    """What a deployment of this recipe stands on. `gpu: cpu` makes the recipe a rehearsal."""

    gpu: Word  # h200, b200, ...; cpu
    count: Count = 1  # per node
    nodes: Count = 1
    layout: Layout = Layout()


class ExtraArg(Record, frozen=True, kw_only=True):
    """The one escape hatch to an engine flag; every use of it is a warning."""

    flag: Flag
    why: Line
    value: str | int | float | None = None  # left out: a switch


class Engine(Record, frozen=True, kw_only=True):
    sglang: Version
    image: Image | None = None  # a name without a digest is open: `spec-toolkit pin` adds it
    patches: tuple[Word, ...] = ()  # by id, beyond those every deployment needs
    overlap: bool = True  # overlap scheduling: what production runs
    dtype: Word | None = None  # open: the checkpoint says
    attention_backend: Word | None = None  # open: the engine chooses
    moe_runner_backend: Word | None = None  # kernels of the experts; open: the engine chooses
    moe_precision: Word | None = None  # what MXFP4 experts compute in: bf16, fp8; open: the engine chooses
    kv_cache_dtype: Word | None = None  # bf16, fp8_e4m3; open: the engine asks checkpoint and GPU
    chunked_prefill_tokens: Tokens | None = None  # of one prefill pass; open: the engine's rule
    extra_args: tuple[ExtraArg, ...] = ()


class Graphs(Record, frozen=True, kw_only=True):
    decode_batch_sizes: tuple[Requests, ...] | None = None  # open: derived from the admission cap


class Limits(Record, frozen=True, kw_only=True):
    """Per rank where a rank has its own memory."""

    max_running_requests: Requests  # of the whole server, as the engine counts it: attention DP ranks share it
    context_tokens: Tokens  # prompt and answer of one request
    kv_pool_tokens: Tokens | None = None  # open: what memory leaves
    memory_fraction: Fraction | None = None  # weights and KV pool over all of HBM; open: the engine's rule
    window_pool_ratio: Fraction | None = (
        None  # tokens in the pool of layers that see a window, over those of the others
    )
    draft_weights_gib: Gib | None = None
    draft_kv_gib: Gib | None = None
    temporary_kv_gib: Gib | None = None


class Policy(Record, frozen=True, kw_only=True):
    """What may be done about speculation at run time, and for how long a client waits meanwhile."""

    allow: tuple[Mode, ...] = (Mode.FULL, Mode.REDUCED, Mode.ZERO_DRAFT, Mode.AUTOREGRESSIVE)
    reduced_steps: tuple[Steps, ...] | None = None  # step counts between none and num_steps; open: half of it
    dwell_seconds: Seconds = 60.0  # least time between two moves that no fault forces
    window_seconds: Seconds = 10.0  # least time that says anything about load or acceptance
    queue_high: Requests = 8  # requests waiting throughout a window: drafting gives way
    cool_down_seconds: Seconds = 60.0  # nothing is drafted after a first draft fault; longer after each further one
    crash_cool_down_seconds: Seconds = 600.0  # autoregressive after a first crash; longer after each further one
    comeback: Comeback = Comeback.IN_PLACE  # how a speculating engine takes over from an autoregressive one
    ranks_after_draft_fault: RanksAfterFault = RanksAfterFault.VOTE
    ready_seconds: Seconds = 1800.0  # from start to the first answer, or the start has failed
    drain_seconds: Seconds = 30.0  # from the request to stop to the kill
    watchdog_seconds: Seconds = 60.0  # one forward pass takes less, or the engine hangs and is ended
    resume_deadline_seconds: Seconds = 900.0  # a client's stream waits at most this long for an engine to go on with it
    max_waiting_requests: Requests = 256  # beyond those that run; more are answered 429


class Source(Record, frozen=True, kw_only=True):
    """Who says that this cell works. What it earns is evidence, and only a measurement says that."""

    basis: Basis
    says: Line  # where it is written, and under which mark


class Recipe(Record, frozen=True, kw_only=True):
    summary: Line
    target: Target
    draft: Draft
    hardware: Hardware
    engine: Engine
    limits: Limits
    graphs: Graphs = Graphs()
    policy: Policy = Policy()
    source: Source | None = None  # left out: nobody
    evidence: EvidenceFile | None = None  # written by a tool, with an autoregressive row; open: unproven
    simulated: bool = False  # acceptance is faked by the engine; labels every number

    @property
    def is_rehearsal(self) -> bool:
        return self.hardware.gpu == "cpu"

    @property
    def is_lossy(self) -> bool:
        return self.draft.acceptance is Acceptance.RELAXED
