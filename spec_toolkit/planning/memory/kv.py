"""KV bytes per token and rank, as the engine's pool configurators count them. Pure.

Source: SGLang 0.5.23, srt/model_executor/pool_configurator.py, srt/mem_cache/kv_cache_configurator.py (calculate_mla_kv_cache_dim) and
srt/mem_cache/deepseek_v4_memory_pool.py; a test runs that code and compares. Four kinds of attention, four rules:

    MLA       (kv_lora_rank + rope) * itemsize * layers, on every rank whole; the draft's layers at the same price
    DSA       the same latent, and 132 bytes of index key on each layer that owns an indexer; an FP8 latent whose rows carry their
              scales takes 656 bytes instead of 576; the draft's layers always own an indexer
    V4        a window token costs a slot on each layer and its share of the 4:1 rings; a token of the pool costs a share of a window
              token and the compressed entries; both grow by one layer in L with a draft; the 128:1 rings are fixed by request count
    Gemma 4   full layers at one price, window layers at another times the window pool's share, or, without a radix cache, by what the
              requests need; KV that layers share is allocated all the same; an assistant is charged as full layers, without a cache
"""

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from spec_toolkit.facts.model import (
    CompressedAttention,
    DsaAttention,
    MlaAttention,
    ModelShape,
    WindowedAttention,
)

_SCALE_BLOCK = 128  # elements that share one FP32 scale, in the latent and in the index key
_V4_PAGE = 256  # tokens
_V4_PAGE_BYTES = 576  # a page of slots is padded to a multiple of it
_V4_WINDOW_SHARE = 0.1
_GEMMA_WINDOW_SHARE = 0.8
_RAW_ROWS = frozenset({"trtllm"})


class KvDtype(Enum):
    BF16 = "bfloat16"
    FP8 = "fp8_e4m3"

    @property
    def bytes(self) -> int:
        return 2 if self is KvDtype.BF16 else 1


_OF_WORD = {
    "auto": KvDtype.BF16,  # the models here compute in it
    "bf16": KvDtype.BF16,
    "bfloat16": KvDtype.BF16,
    "fp8_e4m3": KvDtype.FP8,
    "fp8_e5m2": KvDtype.FP8,
}


class RequestWindows(Struct, frozen=True, kw_only=True):
    """A window pool that holds what its requests can need at worst, instead of a share of the whole (compute_swa_request_cap)."""

    tokens_each: int
    tokens_beside: int  # prefill chunks under way, and a page
    page_size: int

    def tokens(self, requests: int) -> int:
        return _ceil_to(self.tokens_each * requests + self.tokens_beside, self.page_size)


class Storage(Struct, frozen=True, kw_only=True):
    """How KV is stored, beside what the model's shape says."""

    dtype: KvDtype
    raw_rows: bool = False  # DSA in FP8, see stores_raw_rows
    window_share: float | None = None  # V4, Gemma 4; None: the engine's
    request_windows: RequestWindows | None = None  # Gemma 4 without a radix cache; None: by share


class RequestState(Struct, frozen=True, kw_only=True):
    """DeepSeek V4's 128:1 rings: rows by request, not by token."""

    ring_rows: int
    row_bytes: int
    layers: int

    def bytes(self, requests: int) -> int:
        """`requests`: of one rank; the engine keeps a slot more, and a ring more for padding."""
        rows = (requests + 1) * self.ring_rows + self.ring_rows + 1
        return _ceil_to(rows, 128) * self.row_bytes * self.layers


class KvBytes(Struct, frozen=True, kw_only=True):
    """Of one rank. `target` and `draft` are bytes per token of the pool (the engine's max_total_num_tokens)."""

    dtype: KvDtype
    target: float
    draft: float  # 0 without a draft
    draft_is_empty: bool = False  # charged, and never made: an assistant reads the target's
    rule: str  # how it was counted, for people
    window_token: float | None = None  # V4: bytes of one token of the window's pool, draft included
    window_share: float | None = None  # V4, Gemma 4: tokens of the window's pool for one of the whole
    request_state: RequestState | None = None
    request_windows: RequestWindows | None = None

    @property
    def total(self) -> float:
        return self.target + self.draft

    def fixed(self, requests: int) -> int:
        """Bytes that a pool for so many requests on this rank takes before its first token."""
        state = self.request_state.bytes(requests) if self.request_state else 0
        windows = self.request_windows.tokens(requests) if self.request_windows else 0
        return state + round(windows * (self.window_token or 0))


def dtype_of(word: str) -> KvDtype | None:
    """Of the engine's word (`resolved.kv_word`); None: one that is not counted here."""
    return _OF_WORD.get(word)


def stores_raw_rows(dtype: KvDtype, *, backends: Sequence[str | None], capability_major: int | None) -> bool | None:
    """Whether an FP8 latent of DSA lies without its scales; None: not known. `backends`: of prefill and of decode; None: the default."""
    if dtype is not KvDtype.FP8:
        return True
    if capability_major is None and None in backends:
        return None
    default = "trtllm" if capability_major is not None and capability_major >= 10 else "flashmla_kv"
    chosen = {backend or default for backend in backends}
    return bool(chosen & _RAW_ROWS) or chosen == {"tilelang"}


def kv_bytes_per_token(shape: ModelShape, storage: Storage, *, attention_tp: int = 1, draft_layers: int = 0) -> KvBytes:
    """`draft_layers`: of the MTP layer or the assistant, 0 without speculation."""
    share = storage.window_share
    match shape.attention:
        case MlaAttention() as mla:
            return _mla(mla, shape.layers, storage.dtype, draft_layers)
        case DsaAttention() as dsa:
            return _dsa(dsa, shape.layers, storage, draft_layers)
        case CompressedAttention() as v4:
            return _compressed(v4, storage, _V4_WINDOW_SHARE if share is None else share, speculates=draft_layers > 0)
        case WindowedAttention() as gemma:
            return _windowed(gemma, storage, attention_tp, draft_layers)


def _mla(mla: MlaAttention, layers: int, dtype: KvDtype, draft_layers: int) -> KvBytes:
    width = mla.kv_lora_rank + mla.qk_rope_head_dim
    target = width * dtype.bytes * layers
    rule = f"{width} x {dtype.bytes} B x {layers} layers"
    return KvBytes(dtype=dtype, target=target, draft=target * draft_layers // layers, rule=rule)


def _dsa(dsa: DsaAttention, layers: int, storage: Storage, draft_layers: int) -> KvBytes:
    rank, rope = dsa.mla.kv_lora_rank, dsa.mla.qk_rope_head_dim
    latent = (rank + rope) * storage.dtype.bytes
    if storage.dtype is KvDtype.FP8 and not storage.raw_rows:
        latent = rank + rank // _SCALE_BLOCK * 4 + rope * 2
    index = dsa.index_head_dim + dsa.index_head_dim // _SCALE_BLOCK * 4
    target = latent * layers + index * dsa.indexer_layers
    rule = f"latent {latent} B x {layers} layers, index key {index} B x {dsa.indexer_layers} indexers"
    return KvBytes(dtype=storage.dtype, target=target, draft=(latent + index) * draft_layers, rule=rule)


def _compressed(v4: CompressedAttention, storage: Storage, share: float, *, speculates: bool) -> KvBytes:
    layers = len(v4.compress_ratios)
    by_4, by_128 = v4.compress_ratios.count(4), v4.compress_ratios.count(128)
    rope = v4.qk_rope_head_dim
    slot = (v4.head_dim - rope) + 2 * rope + 8
    in_window, in_4, in_128 = (_padded(slot, _V4_PAGE // r) for r in (1, 4, 128))
    index = v4.index_head_dim + v4.index_head_dim // _SCALE_BLOCK * 4
    ring_4, ring_128 = (16, 256) if speculates else (8, 128)
    ring_bytes = (
        4 * (v4.head_dim + v4.index_head_dim) * 4
    )  # FP32 keys and values of two overlapping groups, and the indexer's
    window_token = in_window * layers + ring_4 / _V4_PAGE * ring_bytes * by_4
    target = share * window_token + (in_4 + index) / 4 * by_4 + in_128 / 128 * by_128
    grown = (layers + 1) / layers if speculates else 1.0
    return KvBytes(
        dtype=storage.dtype,
        target=target,
        draft=target * grown - target,
        rule=f"slot {slot} B; {share:g} x {window_token:,.1f} B of window, {by_4} layers at 4:1, {by_128} at 128:1, one layer more with a draft",
        window_token=window_token * grown,
        window_share=share,
        request_state=RequestState(ring_rows=ring_128, row_bytes=2 * v4.head_dim * 4, layers=by_128),
    )


def _windowed(gemma: WindowedAttention, storage: Storage, attention_tp: int, draft_layers: int) -> KvBytes:
    itemsize, by_requests = storage.dtype.bytes, storage.request_windows
    full = max(1, gemma.full_kv_heads // attention_tp) * 2 * gemma.full_head_dim * itemsize
    window = max(1, gemma.window_kv_heads // attention_tp) * 2 * gemma.window_head_dim * itemsize
    share = _GEMMA_WINDOW_SHARE if storage.window_share is None else storage.window_share
    of_windows = f"{'by requests' if by_requests else f'{share:g}'} x {window} B x {gemma.window_layers} window layers"
    return KvBytes(
        dtype=storage.dtype,
        target=full * gemma.full_layers + (0 if by_requests else share * window * gemma.window_layers),
        draft=full * draft_layers,
        rule=f"{full} B x {gemma.full_layers} full layers, {of_windows}",
        window_token=float(window * gemma.window_layers),
        window_share=None if by_requests else share,
        request_windows=by_requests,
    )


def _padded(slot: int, slots: int) -> float:
    """Bytes of a slot with its share of the page's padding."""
    return _ceil_to(slot * slots, _V4_PAGE_BYTES) / slots


def _ceil_to(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
