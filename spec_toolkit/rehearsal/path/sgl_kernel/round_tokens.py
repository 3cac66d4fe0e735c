"""The tokens a round hands to the next: bonus tokens, and the draft's shifted input.

Callers: sglang/kernels/ops/speculative/{eagle,multi_layer_eagle}.py.
"""

import torch

from . import bounds


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor, accept_lens: torch.Tensor, bonus_tokens: torch.Tensor, accept_stride: int
) -> None:
    """The last token each request emitted this round.

    `accept_tokens`: [batch * accept_stride], per request its emitted tokens, then filler. `accept_lens`: [batch], bonus
    included, so at least 1. Writes `bonus_tokens`, [batch].
    """
    op = "fill_bonus_tokens_cpu"
    batch = accept_lens.numel()
    bounds.equal(op, "accept_tokens' length", accept_tokens.numel(), batch * accept_stride)
    bounds.equal(op, "bonus_tokens' length", bonus_tokens.numel(), batch)
    last = accept_lens.long() - 1
    bounds.inside(op, "accept_lens - 1", last, accept_stride)
    tokens = accept_tokens.reshape(batch, accept_stride).gather(1, last.unsqueeze(1))
    bonus_tokens.copy_(tokens.flatten().to(bonus_tokens.dtype))


def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    extend_start_loc: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    topk_index: torch.Tensor,
    select_index: torch.Tensor | None = None,
) -> None:
    """Shift each request's segment left by one and put its newest token at the end: the draft reads one token ahead.

    Writes `input_ids`, [tokens]. Segment b is [start, start + length), an empty one is left alone. `topk_index`: the new
    token, [batch] or [batch, 1]. `select_index`: where to put it instead, [batch] positions in `input_ids`; None = at the
    segment's end.
    """
    op = "rotate_input_ids_cpu"
    starts, lengths = extend_start_loc.tolist(), extend_seq_lens.tolist()
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    bounds.spans(op, starts, ends, input_ids.numel())
    newest = topk_index.flatten()
    bounds.equal(op, "topk_index' length", newest.numel(), len(lengths))
    places = [end - 1 for end in ends]
    if select_index is not None:
        bounds.inside(op, "select_index", select_index, input_ids.numel())
        places = select_index.tolist()
    for start, end, place, token in zip(starts, ends, places, newest, strict=True):
        if start == end:
            continue
        input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
        input_ids[place] = token
