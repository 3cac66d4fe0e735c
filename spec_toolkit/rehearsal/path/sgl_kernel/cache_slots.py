"""Bookkeeping between requests and KV slots: which slot of the pool holds which position of which request.

`req_to_token` is SGLang's table `[max_requests, pool_len]` int32: row = request slot, column = position, value = KV slot.
Row numbers, lengths and offsets are `[batch]`, int32 or int64. Callers: sglang/kernels/ops/speculative/{cache_locs,eagle}.py,
sglang/srt/mem_cache/allocation.py, sglang/srt/layers/attention/intel_amx_backend.py.
"""

import torch

from . import bounds


def _check_table(op: str, req_to_token: torch.Tensor, req_pool_indices: torch.Tensor, pool_len: int) -> None:
    bounds.equal(op, "pool_len", pool_len, req_to_token.shape[1])
    bounds.inside(op, "req_pool_indices", req_pool_indices, req_to_token.shape[0])


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Enter freshly allocated slots: request b's columns [start, end) take the next end - start values of `out_cache_loc`.

    Writes `req_to_token`. `out_cache_loc`: [sum(end - start)] int64, requests one after another.
    """
    op = "assign_req_to_token_pool_cpu"
    _check_table(op, req_to_token, req_pool_indices, pool_len)
    starts, ends = start_offset.tolist(), end_offset.tolist()
    bounds.spans(op, starts, ends, pool_len)
    bounds.fits(op, "out_cache_loc", sum(ends) - sum(starts), out_cache_loc.numel())
    taken = 0
    for row, start, end in zip(req_pool_indices.tolist(), starts, ends, strict=True):
        req_to_token[row, start:end] = out_cache_loc[taken : taken + end - start].to(req_to_token.dtype)
        taken += end - start


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Read slots back: columns [start, end) of each request, packed one request after another.

    Writes the first sum(end - start) elements of `out_cache_loc`, which may be longer; the tail is left as it was.
    """
    op = "assign_extend_cache_locs_cpu"
    _check_table(op, req_to_token, req_pool_indices, pool_len)
    starts, ends = start_offset.tolist(), end_offset.tolist()
    bounds.spans(op, starts, ends, pool_len)
    bounds.fits(op, "out_cache_loc", sum(ends) - sum(starts), out_cache_loc.numel())
    written = 0
    for row, start, end in zip(req_pool_indices.tolist(), starts, ends, strict=True):
        out_cache_loc[written : written + end - start] = req_to_token[row, start:end].to(out_cache_loc.dtype)
        written += end - start


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """The topk * num_steps slots that the allocator reserved behind each request's committed length.

    Writes `out_cache_loc`, [batch * topk * num_steps] int64: request by request, branch by branch, step by step.
    """
    op = "assign_draft_cache_locs_contiguous_cpu"
    _check_table(op, req_to_token, req_pool_indices, pool_len)
    reserved = topk * num_steps
    bounds.equal(op, "out_cache_loc's length", out_cache_loc.numel(), req_pool_indices.numel() * reserved)
    starts = seq_lens.tolist()
    bounds.spans(op, starts, [start + reserved for start in starts], pool_len)
    columns = seq_lens.long().unsqueeze(1) + torch.arange(reserved)
    slots = req_to_token[req_pool_indices.long().unsqueeze(1), columns]
    out_cache_loc.copy_(slots.flatten().to(out_cache_loc.dtype))


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """A table in which every branch looks like a request of its own, for the draft's decode attention.

    Returns [batch * topk, pool_len] int32. Row b * topk + t holds request b's committed slots, then branch t's num_steps
    slots; beyond seq_len + num_steps it holds slot 0, the pool's padding.
    """
    op = "build_draft_decode_metadata_cpu"
    _check_table(op, req_to_token, req_pool_indices, pool_len)
    lengths = seq_lens.tolist()
    bounds.spans(op, lengths, [length + topk * num_steps for length in lengths], pool_len)
    table = torch.zeros(len(lengths) * topk, pool_len, dtype=req_to_token.dtype)
    for batch_row, (row, length) in enumerate(zip(req_pool_indices.tolist(), lengths, strict=True)):
        for branch in range(topk):
            first = length + branch * num_steps
            entry = table[batch_row * topk + branch]
            entry[:length] = req_to_token[row, :length]
            entry[length : length + num_steps] = req_to_token[row, first : first + num_steps]
    return table


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor, out_cache_loc: torch.Tensor, accept_out_cache_loc: torch.Tensor
) -> None:
    """The KV slots of the accepted positions, packed in order.

    `accept_index`: any shape, flat positions into `out_cache_loc`, -1 = rejected. Writes the first `accepted` elements of
    `accept_out_cache_loc`, [>= accept_index.numel()].
    """
    op = "fill_accept_out_cache_loc_cpu"
    accepted = accept_index.flatten()
    accepted = accepted[accepted != -1].long()
    bounds.inside(op, "accept_index", accepted, out_cache_loc.numel())
    bounds.fits(op, "accept_out_cache_loc", accepted.numel(), accept_out_cache_loc.numel())
    accept_out_cache_loc[: accepted.numel()] = out_cache_loc[accepted].to(accept_out_cache_loc.dtype)
