"""The kernels against attention written position by position, head by head, in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sgl_kernel.bounds import OutOfBoundsError

decode = torch.ops.sgl_kernel.decode_attention_cpu
extend = torch.ops.sgl_kernel.extend_attention_cpu
SLOTS, DIM = 64, 4


def one_row(query, keys, values, scale, cap, sink) -> list[float]:
    """One query, one head: query [d], keys [n][d], values [n][dv] as Python floats."""
    scores = [scale * sum(a * b for a, b in zip(query, key, strict=True)) for key in keys]
    scores = [cap * math.tanh(score / cap) if cap else score for score in scores]
    weights = [math.exp(score) for score in scores]
    total = sum(weights) + (math.exp(sink) if sink is not None else 0.0)
    return [sum(w * value[d] for w, value in zip(weights, values, strict=True)) / total for d in range(len(values[0]))]


class Pool:
    """A KV pool with requests scattered over it; remembers the keys and values of every position as it was given."""

    def __init__(self, lengths: list[int], kv_heads: int, seed: int) -> None:
        self.make = torch.Generator().manual_seed(seed)
        self.kv_heads, self.lengths = kv_heads, lengths
        self.k_buffer, self.v_buffer = torch.full((2, SLOTS, kv_heads, DIM), float("nan"))
        slots = torch.randperm(SLOTS, generator=self.make)[: sum(lengths)]
        self.req_to_token = torch.full((5, 32), SLOTS + 99).int()  # what no request owns must never be read
        self.rows = torch.randperm(5, generator=self.make)[: len(lengths)]
        self.slots = torch.split(slots, lengths)
        self.k = [self.random(n, kv_heads, DIM) for n in lengths]
        self.v = [self.random(n, kv_heads, DIM) for n in lengths]
        for row, mine in zip(self.rows, self.slots, strict=True):
            self.req_to_token[row, : len(mine)] = mine.int()

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.make)

    def store(self, request: int, upto: int) -> None:
        mine = self.slots[request][:upto]
        self.k_buffer[mine], self.v_buffer[mine] = self.k[request][:upto], self.v[request][:upto]

    def expected(self, request, query, visible, scale, cap, sinks) -> torch.Tensor:
        """The query, [heads, d], sees the positions in `visible` -> [heads, dv]."""
        group = query.shape[0] // self.kv_heads
        rows = [
            one_row(
                query[head].tolist(),
                [self.k[request][p, head // group].tolist() for p in visible],
                [self.v[request][p, head // group].tolist() for p in visible],
                scale, cap, None if sinks is None else sinks[head].item(),
            )
            for head in range(query.shape[0])
        ]  # fmt: skip
        return torch.tensor(rows)


CASES = {
    "seed": st.integers(0, 2**16),
    "kv_heads": st.sampled_from([1, 2]),
    "group": st.sampled_from([1, 3]),
    "cap": st.sampled_from([0.0, 2.5]),
    "window": st.sampled_from([0, 1, 3, 50]),
    "with_sinks": st.booleans(),
}


@settings(deadline=None, max_examples=60)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4), stored_before=st.booleans(), **CASES)
def test_decode_sees_everything_up_to_its_own_position(
    lengths, stored_before, seed, kv_heads, group, cap, window, with_sinks
):
    pool = Pool(lengths, kv_heads, seed)
    batch, heads = len(lengths), kv_heads * group
    query, sinks = pool.random(batch, heads, DIM), pool.random(heads) if with_sinks else None
    for request, length in enumerate(lengths):
        pool.store(request, length if stored_before else length - 1)
    new_k = new_v = None
    if not stored_before:
        new_k, new_v = (torch.stack([x[n - 1] for x, n in zip(xs, lengths, strict=True)]) for xs in (pool.k, pool.v))
    loc = torch.stack([mine[-1] for mine in pool.slots])
    out = torch.full((batch, heads, DIM), float("nan"))
    decode(
        query, pool.k_buffer, pool.v_buffer, 1.0, 1.0, out, new_k, new_v, loc, torch.empty(0), pool.req_to_token,
        pool.rows, torch.tensor(lengths), 0.7, cap, False, window, None, sinks,
    )  # fmt: skip
    for request, length in enumerate(lengths):
        visible = [p for p in range(length) if not window or p > length - 1 - window]
        torch.testing.assert_close(out[request], pool.expected(request, query[request], visible, 0.7, cap, sinks))
        torch.testing.assert_close(pool.k_buffer[pool.slots[request]], pool.k[request])


def run_extend(pool, news, query, *, window=0, cap=0.0, sinks=None, tree_mask=None, causal=True, from_pool=False):
    """Extend each request by its last `news[b]` positions; the prefix lies in the pool."""
    for request, (length, new) in enumerate(zip(pool.lengths, news, strict=True)):
        pool.store(request, length if from_pool else length - new)
    fresh = [torch.cat([x[n - e :] for x, n, e in zip(xs, pool.lengths, news, strict=True)]) for xs in (pool.k, pool.v)]
    starts = torch.tensor(news).cumsum(0) - torch.tensor(news)
    out = torch.full_like(query, float("nan"))
    k, v = (None, None) if from_pool else fresh
    extend(
        query, k, v, out, pool.k_buffer, pool.v_buffer, 1.0, 1.0, pool.req_to_token, pool.rows, torch.tensor(pool.lengths),
        torch.tensor(news).int(), starts.int(), max(news), 0.7, cap, False, window, None, sinks, tree_mask, causal,
    )  # fmt: skip
    return torch.split(out, news)


@settings(deadline=None, max_examples=60)
@given(
    spans=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), min_size=1, max_size=3).filter(
        lambda s: any(n for _, n in s)
    ),
    from_pool=st.booleans(),
    causal=st.booleans(),
    **CASES,
)
def test_extend_sees_its_prefix_and_what_stands_before_it(
    spans, from_pool, causal, seed, kv_heads, group, cap, window, with_sinks
):
    window = window if causal else 0
    lengths, news = [prefix + new for prefix, new in spans], [new for _, new in spans]
    pool = Pool(lengths, kv_heads, seed)
    query = pool.random(sum(news), kv_heads * group, DIM)
    sinks = pool.random(kv_heads * group) if with_sinks else None
    outs = run_extend(pool, news, query, window=window, cap=cap, sinks=sinks, causal=causal, from_pool=from_pool)
    for request, ((prefix, new), out) in enumerate(zip(spans, outs, strict=True)):
        for row in range(new):
            at = prefix + row
            visible = [p for p in range(prefix + new) if (p <= at or not causal) and (not window or p > at - window)]
            mine = query[sum(news[:request]) + row]
            torch.testing.assert_close(out[row], pool.expected(request, mine, visible, 0.7, cap, sinks))


@settings(deadline=None, max_examples=60)
@given(prefixes=st.lists(st.integers(0, 6), min_size=1, max_size=3), data=st.data(), **CASES)
def test_a_tree_node_sees_its_path_and_the_window_counts_along_it(
    prefixes, data, seed, kv_heads, group, cap, window, with_sinks
):
    nodes = 5
    parents = [[None, *(data.draw(st.integers(0, node - 1)) for node in range(1, nodes))] for _ in prefixes]

    def path(request: int, node: int | None) -> list[int]:
        return [] if node is None else [*path(request, parents[request][node]), node]

    mask = torch.tensor([[[m in path(r, n) for m in range(nodes)] for n in range(nodes)] for r in range(len(prefixes))])
    pool = Pool([prefix + nodes for prefix in prefixes], kv_heads, seed)
    query = pool.random(nodes * len(prefixes), kv_heads * group, DIM)
    sinks = pool.random(kv_heads * group) if with_sinks else None
    outs = run_extend(
        pool, [nodes] * len(prefixes), query, window=window, cap=cap, sinks=sinks, tree_mask=mask.flatten()
    )
    for request, prefix in enumerate(prefixes):
        for node in range(nodes):
            mine = path(request, node)
            # As if the path alone had been decoded: prefix, then one position per node of the path.
            visible = [*range(prefix), *(prefix + other for other in mine)]
            visible = visible[-window:] if window else visible
            expected = pool.expected(request, query[request * nodes + node], visible, 0.7, cap, sinks)
            torch.testing.assert_close(outs[request][node], expected)


def test_with_shared_storage_one_store_fills_key_and_value():
    pool = Pool([3], 1, 0)
    buffer = torch.zeros(SLOTS, 1, DIM)  # MLA: the value is the first part of the key
    values = buffer[:, :, :2]
    buffer[pool.slots[0][:2]] = pool.k[0][:2]
    out = torch.empty(1, 2, 2)
    query, new = pool.random(1, 2, DIM), pool.k[0][2:]
    decode(
        query, buffer, values, 1.0, 1.0, out, new, new[..., :2] * 0, pool.slots[0][2:], torch.empty(0), pool.req_to_token,
        pool.rows, torch.tensor([3]), 1.0, 0.0, False, 0, None, None,
    )  # fmt: skip
    assert torch.equal(values[pool.slots[0]], pool.k[0][..., :2])
    pool.v[0] = pool.k[0][..., :2]
    torch.testing.assert_close(out[0], pool.expected(0, query[0], range(3), 1.0, 0.0, None))


def padded(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """As the engine pads a batch under attention DP: zeros behind it."""
    return torch.cat([tensor, tensor.new_zeros(rows, *tensor.shape[1:])])


@pytest.mark.parametrize("rows", [1, 3])
def test_a_batch_padded_after_it_was_planned_decodes_as_without(rows):
    lengths = [4, 2]
    pool = Pool(lengths, 1, 0)
    for request, length in enumerate(lengths):
        pool.store(request, length - 1)
    query, padding = pool.random(2, 2, DIM), pool.random(rows, 2, DIM)
    new_k, new_v = (torch.stack([xs[0][3], xs[1][1]]) for xs in (pool.k, pool.v))
    out = torch.full((2 + rows, 2, DIM), float("nan"))
    kept = [slot for slot in range(1, SLOTS) if slot not in torch.cat(pool.slots)]
    decode(
        torch.cat([query, padding]), pool.k_buffer, pool.v_buffer, 1.0, 1.0, out, padded(new_k, rows), padded(new_v, rows),
        padded(torch.stack([mine[-1] for mine in pool.slots]), rows), torch.empty(0), pool.req_to_token,
        padded(pool.rows, rows), torch.tensor(lengths), 0.7, 0.0, False, 0, None, None,
    )  # fmt: skip
    for request, length in enumerate(lengths):
        torch.testing.assert_close(out[request], pool.expected(request, query[request], range(length), 0.7, 0.0, None))
    assert torch.equal(out[2:], torch.zeros(rows, 2, DIM))
    assert pool.k_buffer[kept].isnan().all(), "padding was stored in a slot that is not its own"


def decode_with(**changes):
    pool = Pool([3], 1, 0)
    pool.store(0, 3)
    arguments = {
        "query": pool.random(1, 1, DIM), "k_buffer": pool.k_buffer, "v_buffer": pool.v_buffer, "k_scale": 1.0, "v_scale": 1.0,
        "output": torch.empty(1, 1, DIM), "key": pool.k[0][2:], "value": pool.v[0][2:], "loc": pool.slots[0][2:],
        "attn_logits": torch.empty(0), "req_to_token": pool.req_to_token, "req_pool_indices": pool.rows,
        "seq_lens": torch.tensor([3]), "sm_scale": 1.0, "logit_cap": 0.0, "is_cross_attn": False, "sliding_window_size": 0,
        "encoder_lens": None, "sinks": None,
    }  # fmt: skip
    before = pool.k_buffer.nan_to_num().clone()
    try:
        decode(**(arguments | changes))
    finally:
        assert torch.equal(pool.k_buffer.nan_to_num(), before)


def test_a_decode_that_changes_nothing_passes():
    decode_with()


def test_a_draft_that_reads_the_targets_kv_names_no_slot():
    outputs = [torch.empty(1, 1, DIM), torch.empty(1, 1, DIM)]
    decode_with(key=None, value=None, output=outputs[0])
    decode_with(key=None, value=None, output=outputs[1], loc=None)
    assert torch.equal(*outputs)


def test_a_key_without_a_slot_to_store_it_at_is_refused():
    with pytest.raises(OutOfBoundsError, match="a key to store and no loc"):
        decode_with(loc=None)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"loc": torch.tensor([SLOTS])}, "loc holds 64", id="slot-beyond-the-pool"),
        pytest.param({"loc": torch.tensor([-1])}, "loc holds -1", id="negative-slot"),
        pytest.param({"req_pool_indices": torch.tensor([5])}, "req_pool_indices holds 5", id="no-such-request"),
        pytest.param({"seq_lens": torch.tensor([4])}, "holds 163", id="longer-than-its-slots"),
        pytest.param({"seq_lens": torch.tensor([33])}, "32 elements, 33 are needed", id="longer-than-its-row"),
        pytest.param(
            {"seq_lens": torch.tensor([3, 3])},
            "req_pool_indices has 1 elements, 2 are needed",
            id="more-lengths-than-requests",
        ),
        pytest.param(
            {"req_pool_indices": torch.tensor([1, 2])},
            "padding is 0, behind the batch stands 2",
            id="a-request-behind-the-batch",
        ),
        pytest.param(
            {"query": torch.zeros(2, 1, DIM), "loc": torch.tensor([3, 4])},
            "loc has 2 elements for a batch of 1; padding is 0, behind the batch stands 4",
            id="a-slot-behind-the-batch",
        ),
        pytest.param({"query": torch.zeros(2, 1, DIM)}, "loc's length is 1; .* imply 2", id="a-row-without-a-slot"),
    ],
)
def test_decode_refuses_what_points_outside(changes, says):
    with pytest.raises(OutOfBoundsError, match=says):
        decode_with(**changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"is_cross_attn": True}, "cross attention", id="cross-attention"),
        pytest.param({"encoder_lens": torch.tensor([3])}, "encoder lengths", id="encoder"),
        pytest.param({"k_scale": 0.5}, "quantised KV pool", id="scaled-keys"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(changes, says):
    with pytest.raises(NotImplementedError, match=f"decode_attention_cpu: .*{says}"):
        decode_with(**changes)


@pytest.mark.parametrize("cells", [8, 10, 25])
def test_a_tree_mask_of_another_size_is_refused(cells):
    pool = Pool([5], 1, 0)
    with pytest.raises(OutOfBoundsError, match=f"tree_mask's length is {cells}; the other arguments imply 9"):
        run_extend(pool, [3], pool.random(3, 1, DIM), tree_mask=torch.ones(cells, dtype=torch.bool))


def test_a_window_without_causality_is_refused():
    pool = Pool([5], 1, 0)
    with pytest.raises(NotImplementedError, match="sliding window without causality"):
        run_extend(pool, [3], pool.random(3, 1, DIM), window=2, causal=False)


def test_a_prefix_in_another_form_than_the_new_rows_is_refused():
    pool = Pool([5], 1, 0)
    pool.store(0, 2)
    two_heads = pool.random(
        3, 2, DIM
    )  # MLA before it is absorbed: the pool holds one latent row, the new rows all heads
    with pytest.raises(
        NotImplementedError, match="extend_attention_cpu: the new rows have 8 elements and the pool's 4"
    ):
        extend(
            two_heads, two_heads, two_heads, torch.empty_like(two_heads), pool.k_buffer, pool.v_buffer, 1.0, 1.0,
            pool.req_to_token, pool.rows, torch.tensor([5]), torch.tensor([3]).int(), torch.tensor([0]).int(), 3, 1.0, 0.0,
            False, 0, None, None, None, True,
        )  # fmt: skip


def test_without_a_prefix_the_new_rows_may_have_other_heads_than_the_pool():
    pool = Pool([3], 1, 0)
    rows, out = pool.random(3, 2, DIM), torch.empty(3, 2, DIM)
    extend(
        rows, rows, rows, out, pool.k_buffer, pool.v_buffer, 1.0, 1.0, pool.req_to_token, pool.rows, torch.tensor([3]),
        torch.tensor([3]).int(), torch.tensor([0]).int(), 3, 0.7, 0.0, False, 0, None, None, None, True,
    )  # fmt: skip
    pool.k, pool.v, pool.kv_heads = [rows], [rows], 2
    torch.testing.assert_close(out[1], pool.expected(0, rows[1], range(2), 0.7, 0.0, None))


def extend_padded(*, news=(2, 2), rows=(0,), tokens=2, causal=True, **changes):
    """Two requests, planned; then `rows` of requests and `tokens` of query behind them."""
    pool = Pool([5, 3], 1, 0)
    for request, new in enumerate(news):
        pool.store(request, pool.lengths[request] - new)
    fresh = [
        torch.cat([x[n - e :] for x, n, e in zip(xs, pool.lengths, news, strict=True)] + [pool.random(tokens, 1, DIM)])
        for xs in (pool.k, pool.v)
    ]
    query = pool.random(sum(news) + tokens, 2, DIM)
    out = torch.full_like(query, float("nan"))
    starts = torch.tensor(news).cumsum(0) - torch.tensor(news)
    arguments = {
        "req_pool_indices": torch.cat([pool.rows, torch.tensor(rows, dtype=torch.int64)]),
        "seq_lens": torch.tensor(pool.lengths), "extend_seq_lens": torch.tensor(news).int(), "extend_start_loc": starts.int(),
    } | changes  # fmt: skip
    extend(
        query, *fresh, out, pool.k_buffer, pool.v_buffer, 1.0, 1.0, pool.req_to_token, *arguments.values(), max(news), 0.7, 0.0,
        False, 0, None, None, None, causal,
    )  # fmt: skip
    return pool, query, out


@pytest.mark.parametrize(
    ("rows", "tokens"),
    [
        pytest.param((), 0, id="not-padded"),
        pytest.param((0,), 2, id="one-request"),
        pytest.param((0, 0, 0), 6, id="more-requests-than-there-were"),
        pytest.param((0,), 3, id="tokens-rounded-up-to-the-ranks"),
        pytest.param((), 1, id="tokens-alone-rounded-up"),
    ],
)
def test_a_batch_padded_after_it_was_planned_extends_as_without(rows, tokens):
    pool, query, out = extend_padded(rows=rows, tokens=tokens)
    for request, length in enumerate(pool.lengths):
        for row in range(2):
            at, seen = 2 * request + row, range(length - 1 + row)
            torch.testing.assert_close(out[at], pool.expected(request, query[at], seen, 0.7, 0.0, None))
    assert torch.equal(out[4:], torch.zeros(tokens, 2, DIM))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"rows": (3,)}, "3 elements for a batch of 2; padding is 0, .* stands 3", id="a-request-left-out"),
        pytest.param({"rows": (0, 4), "tokens": 4}, "padding is 0, .* stands 4", id="a-request-among-the-padding"),
        pytest.param({"rows": (0,), "tokens": 0}, "length is 3; .* imply 2", id="a-request-without-tokens"),
        pytest.param({"rows": (0,), "tokens": 4}, "length is 3; .* imply 4", id="tokens-of-more-requests"),
        pytest.param({"news": (2, 1)}, r"extends by \[2, 1\] tokens; only equal widths", id="a-prefill-is-not-padded"),
        pytest.param(
            {"seq_lens": torch.tensor([5])}, "extend_seq_lens' length is 2; .* imply 1", id="a-length-missing"
        ),
        pytest.param(
            {"seq_lens": torch.tensor([5, 3, 1]), "rows": (0,)}, "length is 2; .* imply 3", id="lengths-padded-alone"
        ),
        pytest.param(
            {"seq_lens": torch.tensor([5, 3, 1]), "rows": ()}, "2 elements, 3 are needed", id="a-request-missing"
        ),
        pytest.param({"req_pool_indices": torch.tensor([1, 2, 5])}, "req_pool_indices holds 5", id="no-such-request"),
    ],
)
def test_extend_refuses_what_is_no_padding(changes, says):
    with pytest.raises(OutOfBoundsError, match=says):
        extend_padded(**changes)
