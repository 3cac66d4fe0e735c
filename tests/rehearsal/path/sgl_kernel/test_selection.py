"""The indexer's kernel against its formula, position by position in Python floats, and attention over what it selects."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sgl_kernel import select_positions_cpu as select
from sgl_kernel.bounds import OutOfBoundsError
from sgl_kernel.selection import highest, selected_mask

HEADS, DIM, SLOTS = 2, 3, 64


class Requests:
    """Requests scattered over a key buffer, their first positions stored; what no request owns is poison."""

    def __init__(self, lengths: list[int], news: list[int], seed: int) -> None:
        make = torch.Generator().manual_seed(seed)
        self.lengths, self.news = lengths, [min(new, length) for new, length in zip(news, lengths, strict=True)]
        slots = torch.randperm(SLOTS, generator=make)[: sum(lengths)]
        self.slots = torch.split(slots, lengths)
        self.rows = torch.randperm(5, generator=make)[: len(lengths)]
        self.table = torch.full((5, 16), SLOTS + 99).int()
        # Small integers: sums are exact, and there are many ties.
        self.keys = [torch.randint(-1, 2, (n, DIM), generator=make).float() for n in lengths]
        self.queries = torch.randint(-1, 2, (sum(self.news), HEADS, DIM), generator=make).float()
        self.weights = torch.randint(-2, 3, (sum(self.news), HEADS), generator=make).float()
        self.buffer = torch.full((SLOTS, DIM), float("nan"))
        for row, mine, keys, new in zip(self.rows, self.slots, self.keys, self.news, strict=True):
            self.table[row, : len(mine)] = mine.int()
            self.buffer[mine[: len(mine) - new]] = keys[: len(mine) - new]

    def select(self, topk: int, **changes: torch.Tensor) -> torch.Tensor:
        new_keys = [keys[len(keys) - new :] for keys, new in zip(self.keys, self.news, strict=True)]
        loc = [mine[len(mine) - new :] for mine, new in zip(self.slots, self.news, strict=True)]
        news = torch.tensor(self.news)
        arguments = {
            "queries": self.queries, "keys": torch.cat(new_keys), "weights": self.weights, "key_buffer": self.buffer,
            "loc": torch.cat(loc), "req_to_token": self.table, "req_pool_indices": self.rows,
            "seq_lens": torch.tensor(self.lengths), "extend_seq_lens": news, "extend_start_loc": news.cumsum(0) - news,
        } | changes  # fmt: skip
        return select(*arguments.values(), topk)

    def expected(self, topk: int) -> list[list[int]]:
        """Sorted by falling score, then by rising position; -1 behind the last."""
        found, token = [], 0
        for keys, length, new in zip(self.keys, self.lengths, self.news, strict=True):
            for position in range(length - new, length):
                scores = [score(self.queries[token], key, self.weights[token]) for key in keys[: position + 1]]
                best = sorted(range(position + 1), key=lambda s: (-scores[s], s))[:topk]
                found.append(best + [-1] * (topk - len(best)))
                token += 1
        return found


def score(queries: torch.Tensor, key: torch.Tensor, weights: torch.Tensor) -> float:
    products = [max(0.0, sum(a * b for a, b in zip(q, key.tolist(), strict=True))) for q in queries.tolist()]
    return sum(w * p for w, p in zip(weights.tolist(), products, strict=True))


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    news=st.lists(st.integers(1, 12), min_size=4, max_size=4),
    topk=st.integers(1, 14),
    seed=st.integers(0, 2**16),
)
def test_each_new_position_selects_by_the_formula_and_the_tie_rule(lengths, news, topk, seed):
    requests = Requests(lengths, news[: len(lengths)], seed)
    assert requests.select(topk).tolist() == requests.expected(topk)


def test_a_tie_goes_to_the_earlier_position():
    assert highest(torch.tensor([0.0, 3.0, 0.0, 5.0, 3.0, 0.0]), 4).tolist() == [3, 1, 4, 0]


def test_a_negative_zero_is_a_zero():
    """A weight below 0 times a relu of 0: still a tie, still the earlier position's."""
    assert highest(torch.tensor([0.0, -0.0, 0.0, -0.0]), 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(5))
def test_a_position_selects_the_same_alone_and_beside_others(seed):
    """A decode has one row where a verification has four, and a prompt all: with real numbers, where products are rounded."""
    make = torch.Generator().manual_seed(seed)
    length, topk = 40, 8
    keys, queries = torch.randn(length, 128, generator=make), torch.randn(length, 2, 128, generator=make)
    weights = torch.randn(length, 2, generator=make)
    table, row = torch.randperm(SLOTS, generator=make)[None, :length].int(), torch.tensor([0])

    def selected(first: int, last: int, buffer: torch.Tensor) -> torch.Tensor:
        news = torch.tensor([last - first])
        rows = slice(first, last)
        return select(
            queries[rows], keys[rows], weights[rows], buffer, table[0, rows].long(), table, row, torch.tensor([last]),
            news, torch.tensor([0]), topk,
        )  # fmt: skip

    whole = selected(0, length, torch.zeros(SLOTS, 128))
    buffer = torch.zeros(SLOTS, 128)
    cuts = [(0, 20), (20, 21), (21, 22), (22, 26), (26, 30), *((at, at + 1) for at in range(30, length))]
    assert torch.equal(torch.cat([selected(first, last, buffer) for first, last in cuts]), whole)


def test_the_new_keys_are_stored_and_no_other_slot_is_touched():
    requests = Requests([5, 4], [2, 1], 0)
    before = requests.buffer.clone()
    requests.select(3)
    for mine, keys in zip(requests.slots, requests.keys, strict=True):
        assert torch.equal(requests.buffer[mine], keys)
    others = torch.ones(SLOTS, dtype=torch.bool)
    others[torch.cat(requests.slots)] = False
    assert torch.equal(requests.buffer[others].isnan(), before[others].isnan())


def test_rows_of_padding_select_nothing():
    requests = Requests([5], [2], 0)
    selected = requests.select(
        3,
        queries=torch.cat([requests.queries, torch.ones(2, HEADS, DIM)]),
        keys=torch.cat([requests.keys[0][3:], torch.zeros(2, DIM)]),
        weights=torch.cat([requests.weights, torch.ones(2, HEADS)]),
        loc=torch.cat([requests.slots[0][3:], torch.zeros(2, dtype=torch.int64)]),
        req_pool_indices=torch.cat([requests.rows, torch.tensor([0])]),
    )
    assert selected[:2].tolist() == requests.expected(3)
    assert selected[2:].tolist() == [[-1] * 3] * 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"loc": torch.tensor([1, SLOTS])}, f"loc holds {SLOTS}", id="a-slot-outside"),
        pytest.param({"loc": torch.tensor([1])}, "loc's length is 1; .* imply 2", id="a-slot-missing"),
        pytest.param({"keys": torch.zeros(2, DIM + 1)}, "keys' shape", id="keys-of-another-width"),
        pytest.param({"seq_lens": torch.tensor([1])}, "seq_lens has 1 elements, 2 are needed", id="more-new-than-there-are"),
        pytest.param({"seq_lens": torch.tensor([6])}, f"holds {SLOTS + 99}", id="a-position-without-a-slot"),
        pytest.param({"extend_start_loc": torch.tensor([1])}, "request 0 spans 1 to 3", id="rows-outside"),
        pytest.param({"req_pool_indices": torch.tensor([5])}, "req_pool_indices holds 5", id="no-such-request"),
    ],
)  # fmt: skip
def test_what_points_outside_is_refused(changes, says):
    with pytest.raises(OutOfBoundsError, match=says):
        Requests([5], [2], 0).select(3, **changes)


def test_a_selection_as_a_mask():
    mask = selected_mask(torch.tensor([[2, 0, -1], [1, 3, 2]]).int(), 4)
    assert mask.tolist() == [[True, False, True, False], [False, True, True, True]]
    with pytest.raises(OutOfBoundsError, match="selected \\+ 1 holds 5; only 0 to 4"):
        selected_mask(torch.tensor([[4]]).int(), 4)


def attended(keys: torch.Tensor, values: torch.Tensor, query: torch.Tensor, seen: list[int]) -> torch.Tensor:
    weights = [math.exp(float(query @ keys[s])) for s in seen]
    return sum(w * values[s] for w, s in zip(weights, seen, strict=True)) / sum(weights)


@pytest.mark.parametrize("kind", ["decode", "extend"])
def test_attention_sees_the_selected_positions_alone(kind):
    from sgl_kernel import decode_attention_cpu, extend_attention_cpu

    make = torch.Generator().manual_seed(3)
    length, new = 7, 1 if kind == "decode" else 3
    keys, values = torch.randn(2, length, 1, 4, generator=make)
    table = torch.randperm(SLOTS, generator=make)[None, :length].int()
    k_buffer, v_buffer = torch.zeros(2, SLOTS, 1, 4)
    k_buffer[table[0].long()], v_buffer[table[0].long()] = keys, values
    queries, out = torch.randn(new, 1, 4, generator=make), torch.zeros(new, 1, 4)
    picked = [[6, 1, -1]] if kind == "decode" else [[0, 3, 4], [5, -1, -1], [2, 1, 6]]
    selected, length_, row = torch.tensor(picked).int(), torch.tensor([length]), torch.tensor([0])
    if kind == "decode":
        decode_attention_cpu(
            queries, k_buffer, v_buffer, 1.0, 1.0, out, None, None, torch.tensor([0]), torch.zeros(0), table, row,
            length_, 1.0, 0.0, False, 0, None, None, selected=selected,
        )  # fmt: skip
    else:
        extend_attention_cpu(
            queries, keys[-new:], values[-new:], out, k_buffer, v_buffer, 1.0, 1.0, table, row, length_,
            torch.tensor([new]), torch.tensor([0]), new, 1.0, 0.0, False, 0, None, None, None, True, selected=selected,
        )  # fmt: skip
    for at, positions in enumerate(picked):
        seen = [s for s in positions if s >= 0]
        torch.testing.assert_close(out[at, 0], attended(keys[:, 0], values[:, 0], queries[at, 0], seen))


def test_a_selection_opens_nothing_that_causality_hides():
    from sgl_kernel import extend_attention_cpu

    keys, values = torch.randn(2, 2, 1, 4, generator=torch.Generator().manual_seed(1))
    out, table = torch.zeros(2, 1, 4), torch.tensor([[1, 2]]).int()
    extend_attention_cpu(
        keys, keys, values, out, torch.zeros(4, 1, 4), torch.zeros(4, 1, 4), 1.0, 1.0, table, torch.tensor([0]),
        torch.tensor([2]), torch.tensor([2]), torch.tensor([0]), 2, 1.0, 0.0, False, 0, None, None, None, True,
        selected=torch.tensor([[0, 1], [0, 1]]).int(),
    )  # fmt: skip
    torch.testing.assert_close(out[0], values[0])


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_the_network_that_replays_selects_the_same(shift):
    """tiny_models has the rule a second time, over whole batches; with and without ties."""
    from tiny_models.sparse_mla.config import GLM_52
    from tiny_models.sparse_mla.indexer import Indexer

    scores = torch.relu(torch.randn(60, generator=torch.Generator().manual_seed(2)) - 1) + shift * torch.rand(60)
    selected = Indexer(GLM_52).select(scores[None, None])[0, 0]
    assert sorted(highest(scores, GLM_52.index_topk).tolist()) == selected.nonzero().flatten().tolist()
