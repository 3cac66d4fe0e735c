"""Attention over the paged KV pool: one query row per request (decode), or many behind a cached prefix (extend, verify).

    out = softmax(cap(scale * q k^T) + mask) v        cap(x) = c tanh(x / c) where a soft cap c > 0 is given
    a sink s_h per head joins the softmax's denominator as one more score, exp(s_h), with no value of its own

Scores and softmax are float32 whatever the inputs. Query heads share KV heads in groups. `req_to_token` [requests, pool_len]
maps a request's positions to rows of `k_buffer` and `v_buffer`, [slots, kv heads, head dim].

Padding: `seq_lens` says how large the batch is. Under attention DP the engine plans a draft's passes first and pads the
batch to the busiest rank's afterwards: `req_pool_indices` with row 0 and `loc` with slot 0, which no request owns, the
query's rows and with them the output's. A CUDA backend launches what it planned and never looks at the padding; so here,
and output rows of no request become zero. (The compiled CPU kernels compare the sizes and would refuse: read, not run.)

Sparse attention: `selected` [rows, topk] holds the positions each row may see, -1 for none (selection.py); left out, a row
sees all that causality leaves. The compiled operators have no such argument; a patch for rehearsals hands it over.
Caller: sglang/srt/layers/attention/intel_amx_backend.py, as torch.ops.sgl_kernel.{extend,decode}_attention_cpu.
"""

import torch

from . import bounds
from .selection import selected_mask


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
    logit_cap: float,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """The formula above: q [rows, heads, d], k [keys, kv heads, d], v [keys, kv heads, dv], visible [rows, keys] bool -> [rows, heads, dv]."""
    group = q.shape[1] // k.shape[1]
    k = k.to(q.dtype).repeat_interleave(group, dim=1)
    v = v.to(q.dtype).repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q, k).float() * scale
    if logit_cap > 0:
        scores = logit_cap * torch.tanh(scores / logit_cap)
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        column = sinks.float().view(-1, 1, 1).expand(-1, scores.shape[1], 1)
        weights = torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    return torch.einsum("hqk,khd->qhd", weights.to(q.dtype), v)


def _refuse_what_is_missing(
    op: str, buffer: torch.Tensor, scales: tuple[float, float], encoder_lens: torch.Tensor | None, *, cross: bool
) -> None:
    if cross or encoder_lens is not None:
        raise NotImplementedError(
            f"{op}: cross attention and encoder lengths are not implemented on the rehearsal's CPU."
        )
    if buffer.dtype.itemsize < 2 or scales != (1.0, 1.0):
        raise NotImplementedError(f"{op}: a quantised KV pool ({buffer.dtype}, scales {scales}) is not implemented.")


def _slots(op: str, req_to_token: torch.Tensor, row: int, length: int, pool: int) -> torch.Tensor:
    """The KV slots of a request's first `length` positions."""
    bounds.fits(op, f"row {row} of req_to_token", length, req_to_token.shape[1])
    slots = req_to_token[row, :length].long()
    bounds.inside(op, f"row {row} of req_to_token", slots, pool)
    return slots


def decode_attention_cpu(
    query: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: float,
    v_scale: float,
    output: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    loc: torch.Tensor | None,
    attn_logits: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
    selected: torch.Tensor | None = None,
) -> None:
    """One new position per request: store its key and value, then attend to everything up to it.

    `query` [rows, heads, d], `key` and `value` [rows, kv heads * d] or [rows, kv heads, d] (None: already in the pool),
    `loc` [rows] the slots to store at (None without a key: a draft that reads the target's KV), `seq_lens` [batch] int64
    with the new position counted, rows >= batch, `sliding_window_size` positions seen, the query's own included (0 = all),
    `sinks` [heads].
    Writes `output` [rows, heads, dv] and row `loc` of the buffers. With MLA the value is the key's first part and
    `v_buffer` a view of `k_buffer`: one store fills both. `attn_logits` is the compiled kernel's scratch, unused here.
    """
    op = "decode_attention_cpu"
    _refuse_what_is_missing(op, k_buffer, (k_scale, v_scale), encoder_lens, cross=is_cross_attn)
    bounds.inside(op, "req_pool_indices", req_pool_indices, req_to_token.shape[0])
    batch = seq_lens.numel()
    rows = bounds.planned(op, "req_pool_indices", req_pool_indices, batch).tolist()
    if loc is None and key is not None:
        raise bounds.OutOfBoundsError(f"{op}: a key to store and no loc to store it at.")
    if loc is not None:
        bounds.planned(op, "loc", loc, batch)
        bounds.equal(op, "loc's length", loc.numel(), query.shape[0])
    if key is not None:
        bounds.inside(op, "loc", loc, k_buffer.shape[0])
        k_buffer[loc] = key.reshape(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        if value is not None and v_buffer.data_ptr() != k_buffer.data_ptr():
            v_buffer[loc] = value.reshape(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    output[batch:] = 0
    for request, (row, length) in enumerate(zip(rows, seq_lens.tolist(), strict=True)):
        slots = _slots(op, req_to_token, row, length, k_buffer.shape[0])
        if selected is not None:
            slots = slots[selected_mask(selected[request : request + 1], length)[0]]
        if sliding_window_size > 0:
            slots = slots[-sliding_window_size:]
        visible = torch.ones(1, slots.numel(), dtype=torch.bool)
        q = query[request : request + 1]
        output[request : request + 1] = attend(q, k_buffer[slots], v_buffer[slots], visible, sm_scale, logit_cap, sinks)


def extend_attention_cpu(
    q_extend: torch.Tensor,
    k_extend: torch.Tensor | None,
    v_extend: torch.Tensor | None,
    o_extend: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    is_causal: bool,
    selected: torch.Tensor | None = None,
) -> None:
    """The last extend_seq_len positions of each request attend to its cached prefix and to one another.

    `q_extend` [tokens, heads, d]; `k_extend`, `v_extend` [tokens, kv heads, d] (None: a layer that shares its KV; all keys
    come from the pool); request b's rows start at `extend_start_loc[b]`. `seq_lens` [batch] int64, prefix and new rows;
    `req_pool_indices` [>= batch], `extend_seq_lens` and `extend_start_loc` [batch].
    `tree_mask`: [sum of extend_seq_len squared] bool, per request which new row sees which, in place of causality.
    `sliding_window_size`: positions seen, the query's own included (0 = all); in a tree positions count by depth, as they
    would for the accepted path alone. Writes `o_extend` [tokens, heads, dv].
    """
    op = "extend_attention_cpu"
    _refuse_what_is_missing(op, k_buffer, (k_scale, v_scale), encoder_lens, cross=is_cross_attn)
    bounds.inside(op, "req_pool_indices", req_pool_indices, req_to_token.shape[0])
    news, starts = extend_seq_lens.tolist(), extend_start_loc.tolist()
    rows = bounds.planned(op, "req_pool_indices", req_pool_indices, seq_lens.numel()).tolist()
    bounds.equal(op, "extend_seq_lens' length", len(news), seq_lens.numel())
    if len(news) < req_pool_indices.numel():
        _refuse_half_padded(op, req_pool_indices.numel(), news, q_extend.shape[0])
    bounds.spans(op, starts, [start + new for start, new in zip(starts, news, strict=True)], q_extend.shape[0])
    if tree_mask is not None:
        bounds.equal(op, "tree_mask's length", tree_mask.numel(), sum(new * new for new in news))
    o_extend.zero_()
    first_cell = 0
    for row, length, new, start in zip(rows, seq_lens.tolist(), news, starts, strict=True):
        prefix = length - new
        bounds.fits(op, "seq_lens", new, length)
        if new == 0:
            continue
        among = None
        if tree_mask is not None:
            among = tree_mask.view(-1)[first_cell : first_cell + new * new].view(new, new).bool()
            first_cell += new * new
        visible = _visible(prefix, new, among, sliding_window_size, causal=is_causal)
        slots = _slots(op, req_to_token, row, length, k_buffer.shape[0])
        k = _keys(op, k_buffer, k_extend, slots, prefix, start)
        v = _keys(op, v_buffer, v_extend, slots, prefix, start)
        if selected is not None:
            visible = visible & selected_mask(selected[start : start + new], length)
        q = q_extend[start : start + new]
        o_extend[start : start + new] = attend(q, k, v, visible, sm_scale, logit_cap, sinks)


def _refuse_half_padded(op: str, requests: int, news: list[int], tokens: int) -> None:
    """Requests are padded where all extend by the same number of tokens, and their tokens with them."""
    widths = set(news)
    if len(widths) != 1 or 0 in widths:
        raise bounds.OutOfBoundsError(
            f"{op}: {requests} requests for a batch of {len(news)} that extends by {news} tokens; only equal widths are padded."
        )
    bounds.equal(op, "req_pool_indices' length", requests, tokens // widths.pop())  # the engine's own formula


def _keys(
    op: str, buffer: torch.Tensor, extend: torch.Tensor | None, slots: torch.Tensor, prefix: int, start: int
) -> torch.Tensor:
    """A request's keys (or values), [prefix + new, kv heads, d]: the prefix from the pool, the new rows as they were given."""
    if extend is None:
        return buffer[slots]
    new = slots.numel() - prefix
    if prefix == 0:  # without a prefix the new rows may have other heads than the pool: MLA before it is absorbed
        return extend[start : start + new].reshape(new, -1, extend.shape[-1] if extend.dim() == 3 else buffer.shape[-1])
    if extend[0].numel() != buffer[0].numel():
        raise NotImplementedError(
            f"{op}: the new rows have {extend[0].numel()} elements and the pool's {buffer[0].numel()}; a prefix in another "
            "form than the new rows (MLA before it is absorbed) cannot be read from the pool."
        )
    fresh = extend[start : start + new].reshape(new, *buffer.shape[1:])
    return torch.cat([buffer[slots[:prefix]].to(fresh.dtype), fresh])


def _visible(prefix: int, new: int, among: torch.Tensor | None, window: int, *, causal: bool) -> torch.Tensor:
    """Which key each new row sees, [new, prefix + new] bool; `among` is the tree's part of it, [new, new]."""
    if among is None:
        among = torch.ones(new, new, dtype=torch.bool)
        if causal:
            among = among.tril()
    visible = torch.cat([torch.ones(new, prefix, dtype=torch.bool), among], dim=1)
    if window <= 0:
        return visible
    if not causal:
        raise NotImplementedError("extend_attention_cpu: a sliding window without causality has no CPU form.")
    depths = among.sum(dim=1) - 1  # of a row among the new ones; in a chain simply 0, 1, 2, ...
    key_positions = torch.cat([torch.arange(prefix), prefix + depths])
    return visible & (key_positions > (prefix + depths).unsqueeze(1) - window)
