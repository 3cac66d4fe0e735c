"""Sparse attention's indexer (arXiv 2512.02556, section 2.1): which earlier positions each new position may attend to.

    score(t, s) = sum over heads h of w(t, h) * relu(q(t, h) . k(s))        for s <= t
    selected(t) = the `topk` positions s of the highest score

**Tie rule: of two positions with the same score the earlier one is taken.** Ties are no rarity: where the relu is zero in
every head the score is exactly 0. `torch.topk` breaks them by the shape of its input, so a round that verifies four rows and
a decode of one row would select differently, and an honest speculative run would part from the autoregressive one. Each row
is also scored by itself, whatever stands beside it in the batch, because a product of matrices rounds by its shape too.

Everything is float32, and the keys lie in a buffer with one row per KV slot. What the kernels for GPUs add is left out: fp8 keys
with their scales, and the Hadamard rotation before them, which turns queries and keys alike and leaves their products.
The selection is request-local: positions, not slots, and -1 behind the last where fewer than `topk` are visible.
"""

import torch

from . import bounds

NO_POSITION = -1


def index_scores(queries: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """One row of the formula above: queries [heads, d], keys [positions, d], weights [heads] -> [positions]."""
    return (torch.relu(queries @ keys.T) * weights.unsqueeze(1)).sum(dim=0)


def highest(scores: torch.Tensor, topk: int) -> torch.Tensor:
    """The positions of the `topk` highest of `scores` [positions], by the tie rule; all of them where there are fewer."""
    return torch.sort(scores, descending=True, stable=True).indices[:topk]


def select_positions_cpu(
    queries: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor,
    key_buffer: torch.Tensor,
    loc: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    topk: int,
) -> torch.Tensor:
    """Store the new positions' index keys, then select for each of them among the positions up to its own.

    `queries` [tokens, heads, d] and `keys` [tokens, d], rotated; `weights` [tokens, heads], scaled; `loc` [tokens], the slots
    to store at. `seq_lens` [batch], the new positions counted, of which request b has the last `extend_seq_lens[b]`, its rows
    starting at `extend_start_loc[b]`; a decode has one each. `req_pool_indices` [>= batch].
    Writes rows `loc` of `key_buffer`, [slots, d]. Returns int32 [tokens, topk]; rows of no request (padding) are all -1.
    """
    op = "select_positions_cpu"
    bounds.inside(op, "req_pool_indices", req_pool_indices, req_to_token.shape[0])
    bounds.inside(op, "loc", loc, key_buffer.shape[0])
    bounds.equal(op, "loc's length", loc.numel(), queries.shape[0])
    bounds.equal(op, "keys' shape", tuple(keys.shape), (queries.shape[0], key_buffer.shape[1]))
    rows = bounds.planned(op, "req_pool_indices", req_pool_indices, seq_lens.numel()).tolist()
    news, starts = extend_seq_lens.tolist(), extend_start_loc.tolist()
    bounds.equal(op, "extend_seq_lens' length", len(news), len(rows))
    bounds.spans(op, starts, [start + new for start, new in zip(starts, news, strict=True)], queries.shape[0])

    key_buffer[loc] = keys.to(key_buffer.dtype)
    selected = torch.full((queries.shape[0], topk), NO_POSITION, dtype=torch.int32)
    for row, length, new, start in zip(rows, seq_lens.tolist(), news, starts, strict=True):
        bounds.fits(op, "seq_lens", new, length)
        bounds.fits(op, f"row {row} of req_to_token", length, req_to_token.shape[1])
        slots = req_to_token[row, :length].long()
        bounds.inside(op, f"row {row} of req_to_token", slots, key_buffer.shape[0])
        known = key_buffer[slots]
        for at in range(new):
            token, visible = start + at, length - new + at + 1
            found = highest(index_scores(queries[token], known[:visible], weights[token]), topk)
            selected[token, : found.numel()] = found.int()
    return selected


def selected_mask(selected: torch.Tensor, positions: int) -> torch.Tensor:
    """`selected` [rows, topk], -1 for none -> [rows, positions] bool; refuses a position that the request does not have."""
    bounds.inside("attention over a selection", "selected + 1", selected + 1, positions + 1)
    mask = torch.zeros(selected.shape[0], positions + 1, dtype=torch.bool)
    mask.scatter_(1, torch.where(selected < 0, positions, selected).long(), value=True)
    return mask[:, :positions]
