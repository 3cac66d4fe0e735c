"""Bytes of weights on each rank: parameters by kind, as stored, divided by the layout. Pure.

How SGLang 0.5.23 divides (srt/models/deepseek_v2.py, deepseek_v4.py, deepseek_nextn.py; srt/layers/vocab_parallel_embedding.py):

    attention projections and output   by the ranks that share a request's attention: tp / attention DP
    latents, indexer, norms, gates     whole on each rank
    embedding                          by attention tp; whole on each rank of V4 under attention DP
    output head                        by tp; by attention tp where the launch asks for a head of each DP rank
    dense MLP, routed experts          by tp, however expert parallelism cuts it
    shared experts                     by tp; whole on each rank beside an all-to-all of experts

Where the size of the checkpoint is known the kinds are scaled to it, or, where towers for images and sound are in it, the remainder is
charged whole to each rank; the line says which. A draft in the checkpoint shares embedding and head with its target.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

from spec_toolkit.facts.model import CompressedAttention, Model, Weights, WindowedAttention
from spec_toolkit.planning.memory.parameters import Count, Kind, count_draft, count_target

_BLOCK_SCALE = 4 / (128 * 128)  # bytes a weight: one FP32 scale for a block
_BYTES = {
    Weights.BF16: 2.0,
    Weights.FP8: 1 + _BLOCK_SCALE,
    Weights.NVFP4: 0.5 + 1 / 16,  # an FP8 scale for 16 weights
    Weights.MXFP4: 0.5 + 1 / 32,  # an E8M0 scale for 32
    Weights.W4A16: 0.5 + 2 / 32,  # a BF16 scale for 32: q4_0
    Weights.W4A8: 0.5 + 2 / 128,
}
_NEVER_QUANTISED = frozenset({Kind.EMBEDDING, Kind.HEAD, Kind.SMALL, Kind.LAYER_EMBEDDING})
# A module of each kind, as checkpoints name it, to look it up in the list of those that are not quantised.
_MODULES = {
    Kind.PROJECTIONS: ("self_attn.q_b_proj", "self_attn.q_proj"),
    Kind.OUTPUT: ("self_attn.o_proj",),
    Kind.LATENTS: ("self_attn.q_a_proj", "self_attn.q_proj"),
    Kind.INDEXER: ("self_attn.indexer.wq_b",),
    Kind.ROUTED: ("mlp.experts.0.gate_proj", "experts.0.gate_proj"),
    Kind.SHARED: ("mlp.shared_experts.gate_proj",),
}


class Layout(Struct, frozen=True, kw_only=True):
    tp: int = 1
    attention_dp: int = 1
    attention_cp: int = 1
    moe_dp: int = 1
    all_to_all: bool = False  # experts exchange tokens: deepep and its like
    head_by_dp: bool = False  # enable_dp_lm_head
    whole_embedding: bool = False  # V4 under attention DP

    @property
    def attention_tp(self) -> int:
        return max(1, self.tp // self.attention_dp // self.attention_cp)

    def shares(self, kind: Kind) -> int:
        """Ranks that one copy of this kind is divided among."""
        embedding = 1 if self.whole_embedding else self.attention_tp
        divided = {
            Kind.PROJECTIONS: self.attention_tp,
            Kind.OUTPUT: self.attention_tp,
            Kind.EMBEDDING: embedding,
            Kind.LAYER_EMBEDDING: embedding,
            Kind.HEAD: self.attention_tp if self.head_by_dp else self.tp,
            Kind.DENSE: self.tp,
            Kind.ROUTED: max(1, self.tp // self.moe_dp),
            Kind.SHARED: 1 if self.all_to_all else self.tp,
        }
        return divided.get(kind, 1)


class Stored(Struct, frozen=True, kw_only=True):
    """What a rank holds of one kind."""

    kind: Kind | None  # None: what the checkpoint holds beside the kinds that are counted
    params: int
    bytes: float  # in the checkpoint
    bytes_per_rank: float


class RankWeights(Struct, frozen=True, kw_only=True):
    parts: tuple[Stored, ...]
    says: str  # how it was got, for people
    most: int | None = None  # bytes of a rank, where the parts are the least that they can be

    @property
    def bytes(self) -> int:
        return round(sum(part.bytes_per_rank for part in self.parts))


def target_weights(model: Model, layout: Layout) -> RankWeights | None:
    """None: too little is known of the model."""
    shape, stored_as = model.shape, model.weights
    if shape is None or stored_as is None:
        return None
    counts = count_target(shape)
    if stored_as is Weights.W4A16 and model.weight_bytes is None:
        return None
    stored = [_stored(count, bytes_of(model, count.kind, stored_as), layout) for count in counts]
    if model.weight_bytes is None:
        return RankWeights(
            parts=tuple(stored), says=f"parameters x {stored_as.value}; the checkpoint's size is not known"
        )
    in_draft = model.draft_weight_bytes or _draft_bytes(model) or 0
    main = model.weight_bytes - in_draft - _copies(model)
    if isinstance(shape.attention, WindowedAttention):
        return _with_remainder(stored, main, stored_as)
    return _scaled(stored, main, f"{stored_as.value} checkpoint of {model.weight_bytes:,} bytes without its draft")


def draft_in_checkpoint(model: Model, layout: Layout, *, stages: int | None = None) -> RankWeights | None:
    """Of an MTP layer or DSpark's stages; None: not known."""
    if model.shape is None:
        return None
    stored_as = draft_stored_as(model)
    counts = count_draft(model.shape, stages=stages)
    if stored_as is None or not counts:
        return None
    stored = [_stored(count, bytes_of(model, count.kind, stored_as, of_draft=True), layout) for count in counts]
    if model.draft_weight_bytes is None:
        return RankWeights(parts=tuple(stored), says=f"parameters x {stored_as.value}")
    return _scaled(stored, model.draft_weight_bytes, f"{stored_as.value} draft of {model.draft_weight_bytes:,} bytes")


def assistant_weights(assistant: Model, layout: Layout) -> RankWeights | None:
    """Of a Gemma 4 assistant (srt/models/gemma4_mtp.py): cut like its target, its two projections whole on each rank.

    Its file holds no keys and values; the engine makes room for them all the same. None: too little is known of it.
    """
    shape, stored_as, backbone = assistant.shape, assistant.weights, assistant.backbone_hidden_size
    if shape is None or stored_as is None or backbone is None or not isinstance(shape.attention, WindowedAttention):
        return None
    stored = [_stored(count, bytes_of(assistant, count.kind, stored_as), layout) for count in count_target(shape)]
    beside = 3 * shape.hidden_size * backbone * _BYTES[stored_as]
    says = f"{stored_as.value} parameters by kind; {beside:,.0f} bytes of projections whole on each rank"
    return RankWeights(parts=(*stored, Stored(kind=None, params=0, bytes=beside, bytes_per_rank=beside)), says=says)


def draft_apart(draft: Model, layout: Layout) -> RankWeights | None:
    """Of a model of its own of which nobody knows how the engine cuts it: from an equal share to the whole of it on each rank."""
    if draft.weight_bytes is None:
        return None
    whole, share = draft.weight_bytes, draft.weight_bytes / layout.tp
    parts = (Stored(kind=None, params=0, bytes=whole, bytes_per_rank=share),)
    if layout.tp == 1:
        return RankWeights(parts=parts, says=f"{draft.name}'s {whole:,} bytes")
    says = f"{draft.name}'s {whole:,} bytes, an {layout.tp}th on each rank at least and the whole at most"
    return RankWeights(parts=parts, says=says, most=whole)


def draft_stored_as(model: Model) -> Weights | None:
    """The NextN class drops modelopt's FP4 for the MTP layer, so it runs in BF16 (srt/models/deepseek_nextn.py)."""
    if model.draft_weights is not None:
        return model.draft_weights
    if model.weights is Weights.NVFP4 and model.shape is not None:
        return Weights.FP8 if isinstance(model.shape.attention, CompressedAttention) else Weights.BF16
    return model.weights


def bytes_of(model: Model, kind: Kind, stored_as: Weights, *, of_draft: bool = False) -> float:
    """Bytes of one parameter of this kind."""
    if kind in _NEVER_QUANTISED:
        return _BYTES[Weights.BF16]
    if stored_as is Weights.FP4_FP8:
        return _BYTES[Weights.MXFP4 if kind is Kind.ROUTED else Weights.FP8]
    if stored_as is Weights.NVFP4:
        if _is_quantised(model, kind, of_draft=of_draft):
            return _BYTES[Weights.NVFP4]
        v4 = model.shape is not None and isinstance(model.shape.attention, CompressedAttention)
        return _BYTES[Weights.FP8 if v4 else Weights.BF16]
    return _BYTES[stored_as]


def _is_quantised(model: Model, kind: Kind, *, of_draft: bool) -> bool:
    """Whether NVFP4 holds for this kind: by the checkpoint's list of what it leaves out, else for routed experts alone."""
    ignored = model.quantization.ignored if model.quantization is not None else ()
    if of_draft or (model.shape is not None and isinstance(model.shape.attention, CompressedAttention)):
        return kind is Kind.ROUTED and not of_draft
    if not ignored:
        return kind is Kind.ROUTED
    layer = 1 if kind is Kind.DENSE else 10  # the first layers are the dense ones
    names = _MODULES.get(kind, ("mlp.gate_proj",))
    modules = [f"{root}.layers.{layer}.{name}" for name in names for root in ("model", "model.language_model")]
    return not any(
        fnmatchcase(module, pattern) or module.startswith(f"{pattern}.") for module in modules for pattern in ignored
    )


def _stored(count: Count, each: float, layout: Layout) -> Stored:
    total = count.params * each
    return Stored(kind=count.kind, params=count.params, bytes=total, bytes_per_rank=total / layout.shares(count.kind))


def _scaled(parts: Iterable[Stored], whole: float, what: str) -> RankWeights:
    parts = tuple(parts)
    factor = whole / sum(part.bytes for part in parts)
    scaled = tuple(
        Stored(
            kind=part.kind,
            params=part.params,
            bytes=part.bytes * factor,
            bytes_per_rank=part.bytes_per_rank * factor,
        )
        for part in parts
    )
    return RankWeights(parts=scaled, says=f"parameters by kind, times {factor:.4f} to a {what}")


def _with_remainder(parts: Iterable[Stored], whole: float, stored_as: Weights) -> RankWeights:
    parts = tuple(parts)
    rest = whole - sum(part.bytes for part in parts)
    if rest <= 0:
        return _scaled(parts, whole, f"{stored_as.value} checkpoint of {whole:,.0f} bytes")
    says = f"{stored_as.value} parameters by kind; {rest:,.0f} bytes beside them (towers for images and sound) whole on each rank"
    return RankWeights(parts=(*parts, Stored(kind=None, params=0, bytes=rest, bytes_per_rank=rest)), says=says)


def _draft_bytes(model: Model) -> float | None:
    stored_as = draft_stored_as(model)
    if model.shape is None or stored_as is None:
        return None
    return sum(c.params * bytes_of(model, c.kind, stored_as, of_draft=True) for c in count_draft(model.shape))


def _copies(model: Model) -> float:
    """DeepSeek's own V3 files hold the MTP layer's copies of embedding and head, which nobody keeps once loaded."""
    owned = model.architecture in {"DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM"} and model.weights is Weights.FP8
    return 2 * 2 * model.shape.vocab_size * model.shape.hidden_size if owned and model.shape else 0.0
