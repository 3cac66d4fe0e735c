"""Draws up the account of a launch: what the engine makes of its arguments, as far as memory goes by it. Pure."""

from dataclasses import replace

from spec_toolkit.facts.model import DsaAttention, Model, WindowedAttention
from spec_toolkit.facts.records import MemoryDefaults
from spec_toolkit.planning.asked import autoregressive
from spec_toolkit.planning.memory.kv import (
    KvBytes,
    KvDtype,
    Storage,
    kv_bytes_per_token,
    resolve_kv_dtype,
    stores_raw_rows,
)
from spec_toolkit.planning.memory.ledger import Demand, How, Ledger, make_ledger
from spec_toolkit.planning.memory.reserve import GIB, MIB, Outside, default_fraction, outside_lines
from spec_toolkit.planning.memory.rounds import Rounds
from spec_toolkit.planning.memory.weights import (
    Layout,
    RankWeights,
    draft_apart,
    draft_in_checkpoint,
    target_weights,
)
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.resolved import Family
from spec_toolkit.planning.situation import Situation

_IMAGE_CACHE = 100 * MIB  # SGLANG_VLM_CACHE_SIZE_MB's default, srt/environ.py
_SEES_IMAGES = frozenset({"Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"})
_MOST_REQUESTS = 2048  # at least, where a launch says nothing and does not speculate (resolve_max_num_reqs)
_PREFILL_TOKENS = 16384  # where prefill is not chunked and a launch says nothing
_EXCHANGES = frozenset(
    {"deepep", "deepep_v2", "mooncake", "nixl", "mori", "pplx", "flashinfer", "megamoe", "flashinfer_megamoe"}
)


def draw_up(situation: Situation) -> Ledger:
    return make_ledger(demand_of(situation))


def without_draft(situation: Situation) -> Situation:
    """The same launch, autoregressive."""
    return replace(situation, arguments=autoregressive(situation.arguments), draft=None, steps=())


def requests_of(situation: Situation) -> int:
    """Most requests of one rank: the server's, shared by the ranks of attention data parallelism."""
    asked, engine = situation.arguments, situation.engine
    usual = engine.default_max_running_requests.v if asked.speculates else _MOST_REQUESTS
    of_model = engine.max_running_requests_of.v.get(situation.target.architecture or "", usual)
    return max(1, (asked.max_running_requests or of_model) // asked.attention_dp)


def rounds_of(situation: Situation) -> Rounds:
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    if algorithm is None:
        return Rounds()
    if algorithm == "DSPARK":
        block = asked.speculative_dspark_block_size or situation.target.dspark_block_size
        return Rounds(steps=(1,), width=block + 1 if block else 1, has_draft_passes=False)
    steps = asked.speculative_num_steps or resolved.DEFAULT_STEPS
    topk = asked.speculative_eagle_topk or 1
    candidates = situation.steps or ((0, steps) if resolved.is_adaptive(situation) else (steps,))
    width = max(candidates) + 1 if topk == 1 else asked.speculative_num_draft_tokens or steps * topk + 1
    return Rounds(steps=tuple(sorted(set(candidates))), topk=topk, width=width)


def kv_of(situation: Situation) -> KvBytes | None:
    """Bytes per token; None: not known."""
    measured, shape, asked = situation.measured.kv_bytes_per_token, situation.target.shape, situation.arguments
    if measured is not None:
        return KvBytes(dtype=KvDtype.BF16, target=measured, draft=0, rule="measured")
    draft_layers = _draft_layers(situation)
    if shape is None or draft_layers is None or (asked.pp_size or 1) > 1 or _sized_by_requests(situation):
        return None
    quantization = situation.target.quantization
    dtype = resolve_kv_dtype(
        shape,
        written=asked.kv_cache_dtype,
        capability_major=_major(situation),
        checkpoint_kv=quantization.kv_cache if quantization is not None else None,
    )
    raw = _raw_rows(situation, dtype) if dtype is not None else None
    if dtype is None or raw is None:
        return None
    storage = Storage(dtype=dtype, raw_rows=raw, window_share=asked.swa_full_tokens_ratio)
    return kv_bytes_per_token(shape, storage, attention_tp=layout_of(situation).attention_tp, draft_layers=draft_layers)


def layout_of(situation: Situation) -> Layout:
    asked = situation.arguments
    return Layout(
        tp=asked.tp_size or 1,
        attention_dp=asked.attention_dp,
        attention_cp=asked.attn_cp_size or 1,
        moe_dp=asked.moe_dp_size or 1,
        all_to_all=asked.moe_a2a_backend in _EXCHANGES,
        head_by_dp=bool(asked.enable_dp_lm_head),
        whole_embedding=asked.attention_dp > 1 and resolved.family_of(situation.target) is Family.V4,
    )


def outside_of(situation: Situation, *, chunk_of_rank: bool) -> Outside | None:
    """What the engine's estimate goes by; it takes the chunk before attention data parallelism divides it. None: memory not known."""
    memory, asked = memory_mib(situation), situation.arguments
    if memory is None:
        return None
    usual = _defaults(situation, memory)
    chunk = asked.chunked_prefill_size or usual.chunk_tokens
    chunk = chunk if chunk > 0 else asked.max_prefill_tokens or _PREFILL_TOKENS
    largest = _largest_graph(situation, usual)
    rounds = rounds_of(situation)
    family = resolved.family_of(situation.target)
    no_prefill = asked.disable_cuda_graph or asked.cuda_graph_backend_prefill == "disabled"
    return Outside(
        memory_mib=memory,
        ranks=(asked.tp_size or 1) * (asked.pp_size or 1),
        attention_dp=asked.attention_dp,
        chunk_tokens=chunk // asked.attention_dp if chunk_of_rank else chunk,
        largest_graph=largest,
        prefill_graphs=not no_prefill and family in {Family.MLA, Family.DSA},
        deepep=asked.moe_a2a_backend == "deepep",
        role=asked.disaggregation_mode if asked.disaggregation_mode in {"prefill", "decode"} else None,
        decode_tokens=(asked.max_running_requests or largest or 1) * rounds.width,
    )


def fraction_of(situation: Situation) -> tuple[float | None, str]:
    """Share of memory for weights and KV pool, and who says so."""
    written = situation.arguments.mem_fraction_static
    if written is not None:
        return written, "written"
    memory, measured = memory_mib(situation), situation.measured
    before = measured.free_before_load_gib or (memory / 1024 if memory is not None else None)
    if measured.outside_gib is not None and before is not None:
        return 1 - measured.outside_gib / before, "measured"
    outside = outside_of(situation, chunk_of_rank=False)
    if outside is None:
        return None, "the GPU's memory is not known"
    sees_images = situation.target.architecture in _SEES_IMAGES and not _decodes_only(situation)
    if sees_images and situation.target.vision is None:
        return None, "the engine lowers it for the tower for images, whose size is not known; write it"
    return default_fraction(outside, situation.target.vision if sees_images else None), "the engine's rule"


def memory_mib(situation: Situation) -> int | None:
    measured, facts = situation.measured.memory_gib, situation.site.facts
    if measured is not None:
        return round(measured * 1024)
    return facts.memory_mib.v if facts is not None else None


def demand_of(situation: Situation) -> Demand:
    asked, measured, rounds = situation.arguments, situation.measured, rounds_of(situation)
    memory = memory_mib(situation)
    fraction, says = fraction_of(situation)
    outside = outside_of(situation, chunk_of_rank=True)
    attention = situation.target.shape.attention if situation.target.shape is not None else None
    return Demand(
        memory=memory * MIB if memory is not None else None,
        free_before=_bytes(measured.free_before_load_gib),
        fraction=fraction,
        fraction_says=says,
        target=_target(situation),
        draft=_draft(situation) if rounds.steps else None,
        kv=kv_of(situation),
        page_size=resolved.page_tokens(situation),
        rounds=rounds,
        requests=requests_of(situation),
        context_tokens=asked.context_length or situation.workload.context_tokens,
        pool_tokens=asked.max_total_tokens,
        outside=outside_lines(outside) if outside is not None else None,
        outside_measured=_bytes(measured.outside_gib),
        window_tokens=getattr(attention, "window_tokens", None),
        image_cache=_IMAGE_CACHE if situation.target.architecture in _SEES_IMAGES else 0,
    )


def _target(situation: Situation) -> tuple[int | None, How, str]:
    measured = situation.measured
    seen = measured.target_weights_gib
    if seen is None and measured.free_before_load_gib is not None and measured.free_after_load_gib is not None:
        seen = measured.free_before_load_gib - measured.free_after_load_gib
    return _weights(seen, target_weights(situation.target, layout_of(situation)), situation, situation.target)


def _draft(situation: Situation) -> tuple[int | None, How, str]:
    target, draft = situation.target, situation.draft
    algorithm = resolved.algorithm_of(situation)
    counted = None
    if algorithm == "NGRAM":
        return 0, How.COUNTED, "a table of what was seen has no weights"
    if draft is not None:
        counted = draft_apart(draft)
    elif not resolved.has_draft_of_its_own(situation):
        stages = _stages(target) if algorithm == "DSPARK" else None
        counted = draft_in_checkpoint(target, layout_of(situation), stages=stages)
    return _weights(situation.measured.draft_weights_gib, counted, situation, draft or target)


def _weights(
    seen: float | None, counted: RankWeights | None, situation: Situation, model: Model
) -> tuple[int | None, How, str]:
    if seen is not None:
        return _bytes(seen), How.MEASURED, "seen on a rank"
    if counted is None:
        return None, How.UNKNOWN, f"too little is known of {model.name} ({model.says})"
    if (situation.arguments.pp_size or 1) > 1:
        return None, How.UNKNOWN, "how pipeline stages divide the layers is not counted"
    return counted.bytes, How.COUNTED, f"{counted.says}; {model.says}"


def _draft_layers(situation: Situation) -> int | None:
    """Layers that the pool is charged for; None: not known."""
    target, draft, algorithm = situation.target, situation.draft, resolved.algorithm_of(situation)
    if algorithm in {None, "NGRAM"}:
        return 0
    if algorithm == "DSPARK":
        return 1
    if draft is not None:
        return draft.shape.layers if draft.shape is not None else draft.num_hidden_layers
    if resolved.has_draft_of_its_own(situation):
        return None
    return target.shape.mtp_layers if target.shape is not None else None


def _stages(target: Model) -> int | None:
    attention = target.shape.attention if target.shape is not None else None
    ratios = getattr(attention, "compress_ratios_draft", ())
    return len(ratios) or None


def _raw_rows(situation: Situation, dtype: KvDtype) -> bool | None:
    """The layout is that of the attention backends whose role this engine has."""
    asked, shape = situation.arguments, situation.target.shape
    if shape is None or not isinstance(shape.attention, DsaAttention):
        return True
    prefill, decode = asked.dsa_prefill_backend, asked.dsa_decode_backend
    major = _major(situation)
    if major == 12 and situation.target.architecture == "GlmMoeDsaForCausalLM":
        prefill, decode = prefill or "flashinfer_sparse_mla", decode or "flashinfer_sparse_mla"
    by_role = {"prefill": (prefill,), "decode": (decode,)}
    backends = by_role.get(asked.disaggregation_mode or "", (prefill, decode))
    return stores_raw_rows(dtype, backends=backends, capability_major=major)


def _sized_by_requests(situation: Situation) -> bool:
    """Without a radix cache the window's pool of Gemma 4 is sized by the request cap, by another rule than its share."""
    asked, shape = situation.arguments, situation.target.shape
    windowed = shape is not None and isinstance(shape.attention, WindowedAttention)
    return windowed and bool(asked.disable_radix_cache) and asked.max_running_requests is not None


def _largest_graph(situation: Situation, usual: MemoryDefaults) -> int:
    asked = situation.arguments
    if asked.disable_cuda_graph or asked.cuda_graph_backend_decode == "disabled":
        return 0
    if asked.cuda_graph_bs_decode:
        return max(asked.cuda_graph_bs_decode)
    if asked.cuda_graph_max_bs_decode is not None:
        return asked.cuda_graph_max_bs_decode
    largest = usual.largest_graph_few if (asked.tp_size or 1) < 4 else usual.largest_graph_many
    return min(largest, asked.max_running_requests or largest)


def _defaults(situation: Situation, memory: int) -> MemoryDefaults:
    by_memory = situation.engine.by_memory.v
    return next(row for row in by_memory if row.below_mib is None or memory < row.below_mib)


def _decodes_only(situation: Situation) -> bool:
    return situation.arguments.disaggregation_mode == "decode"


def _major(situation: Situation) -> int | None:
    facts = situation.site.facts
    capability = facts.compute_capability.v if facts is not None else None
    return capability[0] if capability is not None else None


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else round(gib * GIB)
