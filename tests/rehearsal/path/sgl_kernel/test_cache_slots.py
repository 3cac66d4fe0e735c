"""Each kernel against a dictionary: (row, position) -> slot, filled and read one element at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sgl_kernel import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    fill_accept_out_cache_loc_cpu,
)
from sgl_kernel.bounds import OutOfBoundsError

ROWS, POOL_LEN = 6, 24


def table() -> torch.Tensor:
    """Every cell its own value: row * 100 + column."""
    return (torch.arange(ROWS).unsqueeze(1) * 100 + torch.arange(POOL_LEN)).int()


@st.composite
def batches(draw, *, reserve: int = 0):
    """(rows, starts, ends) of a batch of distinct requests; each span leaves `reserve` columns behind it."""
    rows = draw(st.lists(st.integers(0, ROWS - 1), unique=True, max_size=ROWS))
    spans = [sorted(draw(st.tuples(*[st.integers(0, POOL_LEN - reserve)] * 2))) for _ in rows]
    return rows, [start for start, _ in spans], [end for _, end in spans]


@settings(deadline=None)
@given(batch=batches(), lengths_are=st.sampled_from([torch.int32, torch.int64]))
def test_slots_entered_are_the_slots_read_back(batch, lengths_are):
    rows, starts, ends = batch
    count = sum(ends) - sum(starts)
    start, end = torch.tensor(starts, dtype=lengths_are), torch.tensor(ends, dtype=lengths_are)
    req_to_token, row = torch.zeros(ROWS, POOL_LEN, dtype=torch.int32), torch.tensor(rows, dtype=torch.int64)
    slots = torch.arange(1000, 1000 + count)
    assign_req_to_token_pool_cpu(row, req_to_token, start, end, slots, POOL_LEN)

    cells = [(row, column) for row, s, e in zip(rows, starts, ends, strict=True) for column in range(s, e)]
    expected = dict(zip(cells, range(1000, 1000 + count), strict=True))
    assert {
        (r, c): req_to_token[r, c].item() for r in range(ROWS) for c in range(POOL_LEN) if req_to_token[r, c]
    } == expected

    read = torch.full((count + 3,), -7)
    assign_extend_cache_locs_cpu(row, req_to_token, start, end, read, POOL_LEN)
    assert read.tolist() == [*expected.values(), -7, -7, -7]


@settings(deadline=None)
@given(data=st.data(), topk=st.integers(1, 3), num_steps=st.integers(1, 4))
def test_draft_slots_follow_the_committed_length_branch_by_branch(data, topk, num_steps):
    rows, _, lengths = data.draw(batches(reserve=topk * num_steps))
    row, seq_lens = torch.tensor(rows, dtype=torch.int64), torch.tensor(lengths, dtype=torch.int64)
    out = torch.empty(len(rows) * topk * num_steps, dtype=torch.int64)
    assign_draft_cache_locs_contiguous_cpu(row, table(), seq_lens, out, POOL_LEN, topk, num_steps)
    assert out.tolist() == [
        r * 100 + n + i for r, n in zip(rows, lengths, strict=True) for i in range(topk * num_steps)
    ]

    expanded = build_draft_decode_metadata_cpu(table(), row, seq_lens, topk, num_steps, POOL_LEN)
    assert expanded.dtype == torch.int32
    branches = [(r, n, b) for r, n in zip(rows, lengths, strict=True) for b in range(topk)]
    assert expanded.tolist() == [
        [r * 100 + c for c in range(n)]
        + [r * 100 + n + b * num_steps + s for s in range(num_steps)]
        + [0] * (POOL_LEN - n - num_steps)
        for r, n, b in branches
    ]


@settings(deadline=None)
@given(accepted=st.lists(st.integers(-1, 11), max_size=12))
def test_accepted_slots_are_packed_in_order(accepted):
    out = torch.full((len(accepted) + 2,), -7)
    fill_accept_out_cache_loc_cpu(torch.tensor(accepted, dtype=torch.int32), torch.arange(500, 512), out)
    kept = [500 + index for index in accepted if index != -1]
    assert out.tolist() == kept + [-7] * (len(out) - len(kept))


def at(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


OUTSIDE = [
    pytest.param(lambda t: assign_req_to_token_pool_cpu(at(ROWS), t, at(0), at(1), at(9), POOL_LEN), id="enter-row"),
    pytest.param(
        lambda t: assign_req_to_token_pool_cpu(at(-1), t, at(0), at(1), at(9), POOL_LEN), id="enter-negative-row"
    ),
    pytest.param(
        lambda t: assign_req_to_token_pool_cpu(at(0), t, at(20), at(25), at(*[9] * 5), POOL_LEN), id="enter-column"
    ),
    pytest.param(
        lambda t: assign_req_to_token_pool_cpu(at(0), t, at(-1), at(1), at(9, 9), POOL_LEN), id="enter-before-row"
    ),
    pytest.param(lambda t: assign_req_to_token_pool_cpu(at(0), t, at(4), at(3), at(9), POOL_LEN), id="enter-backwards"),
    pytest.param(
        lambda t: assign_req_to_token_pool_cpu(at(0), t, at(0), at(3), at(9, 9), POOL_LEN), id="too-few-slots"
    ),
    pytest.param(lambda t: assign_req_to_token_pool_cpu(at(0), t, at(0), at(1), at(9), POOL_LEN - 1), id="other-pool"),
    pytest.param(
        lambda t: assign_extend_cache_locs_cpu(at(0), t, at(0), at(3), at(9, 9), POOL_LEN), id="read-too-small"
    ),
    pytest.param(lambda t: assign_extend_cache_locs_cpu(at(ROWS), t, at(0), at(1), at(9), POOL_LEN), id="read-row"),
    pytest.param(
        lambda t: assign_draft_cache_locs_contiguous_cpu(at(0), t, at(21), at(*[9] * 4), POOL_LEN, 2, 2),
        id="draft-beyond-row",
    ),
    pytest.param(
        lambda t: assign_draft_cache_locs_contiguous_cpu(at(0), t, at(0), at(9), POOL_LEN, 2, 2),
        id="draft-out-too-small",
    ),
    pytest.param(lambda t: build_draft_decode_metadata_cpu(t, at(0), at(21), 2, 2, POOL_LEN), id="branch-beyond-row"),
    pytest.param(lambda t: fill_accept_out_cache_loc_cpu(at(4), at(1, 2, 3), at(9)), id="accepted-beyond-slots"),
    pytest.param(lambda t: fill_accept_out_cache_loc_cpu(at(-2), at(1, 2, 3), at(9)), id="accepted-below-minus-one"),
    pytest.param(lambda t: fill_accept_out_cache_loc_cpu(at(0, 1), at(1, 2, 3), at(9)), id="accepted-more-than-room"),
]


@pytest.mark.parametrize("call", OUTSIDE)
def test_what_points_outside_is_refused_and_nothing_is_written(call):
    req_to_token = table()
    with pytest.raises(OutOfBoundsError):
        call(req_to_token)
    assert torch.equal(req_to_token, table())


def test_a_span_that_ends_with_its_row_is_inside():
    req_to_token, slots = table(), at(7, 8)
    assign_req_to_token_pool_cpu(at(5), req_to_token, at(22), at(24), slots, POOL_LEN)
    assert req_to_token[5, 22:].tolist() == [7, 8]
    out = torch.empty(4, dtype=torch.int64)
    assign_draft_cache_locs_contiguous_cpu(at(5), req_to_token, at(20), out, POOL_LEN, 2, 2)
    assert out.tolist() == [520, 521, 7, 8]
