"""Runs sparse attention (DeepSeek V3.2, GLM-5.x) on the engine's CPU backend: its model code above, reference kernels beneath.

The engine's sparse backend is CUDA from end to end. Here its indexer module computes queries, keys and weights with its own
layers; `sgl_kernel` of the rehearsal selects positions, and its attention kernels see those alone. The selection stays what the
models hand from layer to layer and the draft from step to step: [tokens, topk] int32, request-local, -1 for none.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch

_index_keys: WeakKeyDictionary[Any, dict[int, torch.Tensor]] = WeakKeyDictionary()  # KV pool -> layer -> [slots, d]


def resolve_without_a_gpu(original: Callable[[Any], Any], arguments: Any) -> Any:
    """For a sparse model the engine asks the GPU's generation whatever it runs on; here it hears of none, for this call."""
    asked = torch.cuda.get_device_capability
    torch.cuda.get_device_capability = _no_generation
    try:
        return original(arguments)
    finally:
        torch.cuda.get_device_capability = asked


def _no_generation(_device: object = None) -> tuple[int, int]:
    return (0, 0)


def leave_as_asked(_original: Callable[[Any], dict[str, Any]], _arguments: Any) -> dict[str, Any]:
    """No bfloat16 KV pool and no CUDA kernels for the sparse backend, which is not the one that runs."""
    return {}


def take_the_absorbed_path(original: Callable[[Any, Any], Any], attention: Any, forward_batch: Any) -> Any:
    """A selection has a meaning where keys are latent rows of the pool; prompts would else take the path without it."""
    method = original(attention, forward_batch)
    return type(method).MLA if attention.use_dsa else method


def select_positions(  # noqa: PLR0913, PLR0917 - the engine's signature
    indexer: Any,
    x: torch.Tensor,
    q_lora: torch.Tensor,
    positions: torch.Tensor,
    forward_batch: Any,
    layer_id: int,
    return_indices: bool = True,
) -> torch.Tensor | None:
    """In place of Indexer.forward_native, which the engine leaves undone. x [tokens, hidden], q_lora [tokens, rank]."""
    from sgl_kernel.selection import NO_POSITION, select_positions_cpu  # noqa: PLC0415 - the rehearsal's, found when a scheduler runs

    # Beside a busy rank: its rows are nobody's, and what was planned is an earlier batch's.
    if forward_batch.forward_mode.is_idle():
        nothing = torch.full((x.shape[0], indexer.index_topk), NO_POSITION, dtype=torch.int32)
        return nothing if return_indices else None
    from sglang.srt.model_executor.forward_context import get_attn_backend, get_token_to_kv_pool  # noqa: PLC0415 - as above

    queries, keys = _rotated(indexer, x, q_lora, positions)
    weights = torch.nn.functional.linear(x.float(), indexer.weights_proj.weight.float())
    weights = weights * indexer.n_heads**-0.5 * indexer.softmax_scale
    pool = get_token_to_kv_pool()
    selected: torch.Tensor = select_positions_cpu(
        queries,
        keys,
        weights,
        _key_buffer(pool, layer_id, indexer.head_dim),
        forward_batch.out_cache_loc,
        *_planned(get_attn_backend(), forward_batch),
        indexer.index_topk,
    )
    return selected if return_indices else None


def _rotated(
    indexer: Any, x: torch.Tensor, q_lora: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries [tokens, heads, d] and keys [tokens, d]; the first rope_head_dim of d are turned by the position."""
    heads, dim, rope = indexer.n_heads, indexer.head_dim, indexer.rope_head_dim
    queries = indexer.wq_b(q_lora)[0].view(-1, heads, dim).float()
    keys = indexer.k_norm(indexer.wk(x)[0]).float()
    q_turned, k_turned = indexer.rotary_emb(
        positions, queries[..., :rope].contiguous(), keys[:, None, :rope].contiguous()
    )
    return (
        torch.cat([q_turned.view(-1, heads, rope), queries[..., rope:]], dim=-1),
        torch.cat([k_turned.view(-1, rope), keys[:, rope:]], dim=-1),
    )


def _key_buffer(pool: Any, layer_id: int, dim: int) -> torch.Tensor:
    """One float32 row per KV slot of the layer; target and draft have pools of their own, and so buffers."""
    layers = _index_keys.setdefault(pool, {})
    if layer_id not in layers:
        layers[layer_id] = torch.zeros(pool.get_key_buffer(layer_id).shape[0], dim)
    return layers[layer_id]


def _planned(backend: Any, forward_batch: Any) -> tuple[torch.Tensor, ...]:
    """What the backend planned for this pass: slots of positions, requests, their lengths, and which rows are theirs."""
    table, requests = backend.req_to_token_pool.req_to_token, forward_batch.req_pool_indices
    if not forward_batch.forward_mode.is_decode_or_idle():
        lengths, news, starts, _tree = backend.extend_metadata
        return table, requests, lengths, news, starts
    if backend.draft_decode_metadata is None:
        lengths = forward_batch.seq_lens
    else:
        table, lengths, requests = backend.draft_decode_metadata
    return table, requests, lengths, torch.ones_like(lengths), torch.arange(lengths.numel())


def attend_over_selection(
    original: Callable[..., torch.Tensor],
    backend: Any,
    *arguments: Any,
    topk_indices: torch.Tensor | None = None,
    **more: Any,
) -> torch.Tensor:
    """Around IntelAMXAttnBackend.forward_extend and forward_decode, which know no selection."""
    if topk_indices is None:
        return original(backend, *arguments, **more)
    with _selecting(backend, topk_indices):
        return original(backend, *arguments, **more)


@contextmanager
def _selecting(backend: Any, selected: torch.Tensor) -> Iterator[None]:
    """For one call the backend's kernels are the rehearsal's with the selection given."""
    from sgl_kernel import decode_attention_cpu, extend_attention_cpu  # noqa: PLC0415 - the rehearsal's

    kept = backend.extend_attention_fwd, backend.decode_attention_fwd
    backend.extend_attention_fwd = partial(extend_attention_cpu, selected=selected)
    backend.decode_attention_fwd = partial(decode_attention_cpu, selected=selected)
    try:
        yield
    finally:
        backend.extend_attention_fwd, backend.decode_attention_fwd = kept
