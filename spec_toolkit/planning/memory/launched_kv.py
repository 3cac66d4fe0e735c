"""What KV a launch stores, and what a token of it costs. Pure."""

from msgspec.structs import replace

from spec_toolkit.facts.model import DsaAttention, WindowedAttention
from spec_toolkit.planning.memory.kv import (
    KvBytes,
    KvDtype,
    RequestWindows,
    Storage,
    dtype_of,
    kv_bytes_per_token,
    stores_raw_rows,
)
from spec_toolkit.planning.memory.launched import layout_of, major_of, outside_of
from spec_toolkit.planning.memory.rounds import rounds_of
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.situation import Situation

_EVICTION_INTERVAL = 128  # tokens: SGLANG_SWA_EVICTION_INTERVAL's default


def kv_of(situation: Situation) -> KvBytes | None:
    """Bytes per token; None: not known."""
    measured, shape, asked = situation.measured.kv_bytes_per_token, situation.target.shape, situation.arguments
    if measured is not None:
        return KvBytes(dtype=KvDtype.BF16, target=measured, draft=0, rule="measured")
    draft_layers = _draft_layers(situation)
    if shape is None or draft_layers is None or (asked.pp_size or 1) > 1:
        return None
    word = resolved.kv_word(situation)
    dtype = dtype_of(word) if word is not None else None
    raw = _raw_rows(situation, dtype) if dtype is not None else None
    windows = _request_windows(situation) if _sized_by_requests(situation) else None
    if dtype is None or raw is None or (windows is None and _sized_by_requests(situation)):
        return None
    share = asked.swa_full_tokens_ratio
    storage = Storage(dtype=dtype, raw_rows=raw, window_share=share, request_windows=windows)
    found = kv_bytes_per_token(
        shape, storage, attention_tp=layout_of(situation).attention_tp, draft_layers=draft_layers
    )
    # srt/speculative/frozen_kv_mtp_worker_v2.py: its own pool is 64 tokens, whatever was charged.
    return replace(found, draft_is_empty=resolved.algorithm_of(situation) == "FROZEN_KV_MTP")


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


def _raw_rows(situation: Situation, dtype: KvDtype) -> bool | None:
    """The layout is that of the attention backends whose role this engine has."""
    asked, shape = situation.arguments, situation.target.shape
    if shape is None or not isinstance(shape.attention, DsaAttention):
        return True
    prefill, decode = asked.dsa_prefill_backend, asked.dsa_decode_backend
    major = major_of(situation)
    if major == 12 and situation.target.architecture == "GlmMoeDsaForCausalLM":
        prefill, decode = prefill or "flashinfer_sparse_mla", decode or "flashinfer_sparse_mla"
    by_role = {"prefill": (prefill,), "decode": (decode,)}
    backends = by_role.get(asked.disaggregation_mode or "", (prefill, decode))
    return stores_raw_rows(dtype, backends=backends, capability_major=major)


def _sized_by_requests(situation: Situation) -> bool:
    """Without a radix cache the window's pool of Gemma 4 is sized by the request cap, not by its share."""
    asked, shape = situation.arguments, situation.target.shape
    windowed = shape is not None and isinstance(shape.attention, WindowedAttention)
    return windowed and bool(asked.disable_radix_cache) and asked.max_running_requests is not None


def _request_windows(situation: Situation) -> RequestWindows | None:
    """None: not counted, or not known. Source: SGLang 0.5.23, srt/model_executor/pool_configurator.py, compute_swa_request_cap."""
    asked, shape, page = situation.arguments, situation.target.shape, resolved.page_tokens(situation)
    outside, rounds = outside_of(situation, chunk_of_rank=True), rounds_of(situation)
    attention = shape.attention if shape is not None else None
    if not isinstance(attention, WindowedAttention) or page is None or outside is None:
        return None
    if asked.disable_overlap_schedule or asked.disaggregation_mode == "decode" or (asked.chunked_prefill_size or 1) < 0:
        return None
    slots = rounds.slots_per_decode(page)
    if rounds.width is None or (rounds.steps and slots is None):
        return None
    decode = page if slots is None else 2 * slots
    each = attention.window_tokens + _EVICTION_INTERVAL * rounds.width + page + decode
    return RequestWindows(tokens_each=each, tokens_beside=2 * outside.chunk_tokens + page, page_size=page)
