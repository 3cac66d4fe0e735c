"""Trees are drawn as parent lists and handed to the kernels in SGLang's candidate numbering.

The kernels are compared with recursion over paths: a node is its tuple of tokens-so-far, never a pointer.
"""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sgl_kernel import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu
from sgl_kernel.bounds import OutOfBoundsError
from sgl_kernel.tree import BLOCKS_ONLY, FULL_MASK, MalformedTreeError


@dataclass(frozen=True)
class Drafted:
    """One request's draft: what SGLang's select_top_k_tokens and organize_draft_results would hand over."""

    topk: int
    depth: int
    parent_list: list[int]  # per beam the candidate it continues, [topk * (depth - 1) + 1]; beam 0 is the root
    selected: list[int]  # rising candidate numbers, [num_draft_tokens - 1]

    def path(self, candidate: int) -> tuple[int, ...]:
        """The candidates from the root to this one, itself included."""
        beam = candidate // self.topk
        return (*(self.path(self.parent_list[beam]) if beam else ()), candidate)


@st.composite
def drafts(draw, topk: int, depth: int, nodes: int) -> Drafted:
    """A random tree of `nodes` nodes, root included, closed under parents as the best-scoring candidates are.

    Step 0 makes candidates 0..topk-1 (from beam 0); step s >= 1 continues topk beams, each the best of the step before:
    beam b = 1 + (s - 1) * topk + i makes candidates b * topk .. b * topk + topk - 1.
    """
    parent_list = [-1]
    level = list(range(topk))
    for step in range(1, depth):
        parent_list += draw(st.permutations(level))[:topk]
        first_beam = 1 + (step - 1) * topk
        level = [beam * topk + i for beam in range(first_beam, first_beam + topk) for i in range(topk)]
    drafted = Drafted(topk, depth, parent_list, [])
    everything = range((1 + topk * (depth - 1)) * topk)
    chosen: set[int] = set()
    while len(chosen) < nodes - 1:
        open_ones = [c for c in everything if c not in chosen and set(drafted.path(c)[:-1]) <= chosen]
        chosen.add(draw(st.sampled_from(open_ones)))
    return Drafted(topk, depth, parent_list, sorted(chosen))


@st.composite
def shapes(draw) -> tuple[int, int, int]:
    """(topk, depth, nodes); topk 1 is a chain, which must be whole."""
    topk, depth = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    most = 1 + topk + (depth - 1) * topk * topk
    return topk, depth, (depth + 1 if topk == 1 else draw(st.integers(2, min(most, 10))))


@dataclass
class Built:
    mask: torch.Tensor
    positions: torch.Tensor
    index: torch.Tensor
    child: torch.Tensor
    sibling: torch.Tensor


def build(batch: list[Drafted], lengths: list[int], mode: int = BLOCKS_ONLY, mask: torch.Tensor | None = None) -> Built:
    nodes, size = len(batch[0].selected) + 1, len(batch)
    cells = nodes * nodes * size + (nodes * sum(lengths) if mode == FULL_MASK else 0)
    links = torch.full((3, size, nodes), -1)
    built = Built(
        torch.ones(cells, dtype=torch.bool) if mask is None else mask, torch.empty(size * nodes).long(), *links
    )
    depth, topk = batch[0].depth, batch[0].topk
    parents = torch.tensor([d.parent_list if depth > 1 else [] for d in batch]).long()
    selected = torch.tensor([d.selected for d in batch]).long().view(size, nodes - 1)
    build_tree_kernel_efficient_cpu(
        parents, selected, torch.tensor(lengths), built.mask, built.positions, built.index, built.child, built.sibling,
        topk, depth, nodes, mode,
    )  # fmt: skip
    return built


def descendants(built: Built, request: int, node: int) -> list[int]:
    """Children in the order that the links give them."""
    found, child = [], built.child[request, node].item()
    while child != -1:
        found.append(child)
        child = built.sibling[request, child].item()
    return found


@settings(deadline=None)
@given(data=st.data(), shape=shapes(), lengths=st.lists(st.integers(0, 9), min_size=1, max_size=3))
def test_the_mask_shows_each_node_its_own_path_and_positions_count_its_depth(data, shape, lengths):
    batch = [data.draw(drafts(*shape)) for _ in lengths]
    nodes = shape[2]
    built = build(batch, lengths)
    mask = built.mask.view(len(batch), nodes, nodes)
    for request, (drafted, length) in enumerate(zip(batch, lengths, strict=True)):
        paths = [(), *(drafted.path(candidate) for candidate in drafted.selected)]
        assert mask[request].tolist() == [[other == path[: len(other)] for other in paths] for path in paths]
        assert built.positions.view(-1, nodes)[request].tolist() == [length + len(path) for path in paths]
        assert built.index[request].tolist() == list(range(request * nodes, (request + 1) * nodes))
        for node, path in enumerate(paths):
            children = [other for other, p in enumerate(paths) if p and p[:-1] == path]
            assert descendants(built, request, node) == children


@settings(deadline=None)
@given(data=st.data(), shape=shapes(), lengths=st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_the_full_mask_is_the_same_blocks_behind_an_untouched_prefix(data, shape, lengths):
    batch = [data.draw(drafts(*shape)) for _ in lengths]
    nodes = shape[2]
    blocks = build(batch, lengths).mask.view(len(batch), nodes, nodes)
    flat = build(batch, lengths, FULL_MASK).mask
    cells = torch.split(flat, [nodes * (nodes + length) for length in lengths])
    for block, mine, length in zip(blocks, cells, lengths, strict=True):
        rows = mine.view(nodes, length + nodes)
        assert rows[:, :length].all()
        assert torch.equal(rows[:, length:], block)


@settings(deadline=None, max_examples=200)
@given(data=st.data(), shape=shapes(), size=st.integers(1, 3))
def test_verify_accepts_the_longest_path_that_the_target_would_have_written(data, shape, size):
    batch = [data.draw(drafts(*shape)) for _ in range(size)]
    nodes, depth = shape[2], shape[1]
    built = build(batch, [0] * size)
    # Two tokens only, so that drafts are often right; siblings may even carry the same token.
    tokens = st.lists(st.integers(0, 1), min_size=nodes, max_size=nodes)
    candidates = [data.draw(tokens) for _ in range(size)]
    target = [data.draw(tokens) for _ in range(size)]
    predicts = torch.full((size * nodes,), -7, dtype=torch.int32)
    accept_index = torch.full((size, depth + 1), -1, dtype=torch.int32)
    accepted = torch.empty(size, dtype=torch.int32)
    verify_tree_greedy_cpu(
        predicts=predicts, accept_index=accept_index, accept_token_num=accepted, candidates=torch.tensor(candidates),
        retrive_index=built.index, retrive_next_token=built.child, retrive_next_sibling=built.sibling,
        target_predict=torch.tensor(target),
    )  # fmt: skip
    for request, drafted in enumerate(batch):
        nodes_of = {(): 0} | {drafted.path(c): i for i, c in enumerate(drafted.selected, start=1)}
        path: tuple[int, ...] = ()
        expected = [0]
        while True:  # the first child, in candidate order, that carries the target's token
            wanted = target[request][nodes_of[path]]
            right = [p for p in sorted(nodes_of) if p and p[:-1] == path and candidates[request][nodes_of[p]] == wanted]
            if not right:
                break
            path = right[0]
            expected.append(nodes_of[path])
        found = accept_index[request].tolist()
        assert found == [request * nodes + node for node in expected] + [-1] * (depth + 1 - len(expected))
        assert accepted[request].item() == len(expected) - 1
        emitted = {request * nodes + node: target[request][node] for node in expected}
        block = predicts.view(size, nodes)[request].tolist()
        assert {request * nodes + i: t for i, t in enumerate(block) if t != -7} == emitted


def test_no_more_is_accepted_than_there_is_room_for():
    built = build([Drafted(1, 3, [-1, 0, 1], [0, 1, 2])], [5])
    accept_index, accepted = torch.full((1, 2), -1).int(), torch.empty(1).int()
    predicts = torch.full((4,), -7).int()
    same = torch.zeros(1, 4).long()
    verify_tree_greedy_cpu(predicts, accept_index, accepted, same, built.index, built.child, built.sibling, same)
    assert (accept_index.tolist(), accepted.tolist(), predicts.tolist()) == ([[0, 1]], [1], [0, 0, -7, -7])


CHAIN = Drafted(1, 3, [-1, 0, 1], [0, 1, 2])
TREE = Drafted(2, 2, [-1, 1, 0], [0, 1, 2])


@pytest.mark.parametrize(
    ("drafted", "says"),
    [
        pytest.param(Drafted(1, 3, [-1, 0, 1], [0, 2, 3]), "node 2 has no parent", id="parent-not-selected"),
        pytest.param(Drafted(1, 3, [-1, 0, 1], [0, 1, 9]), "names beam 9; the draft had 3", id="beam-beyond-the-list"),
        pytest.param(Drafted(1, 3, [-1, 0, 1], [0, 1, -1]), "names beam -1", id="negative-candidate"),
        pytest.param(Drafted(2, 2, [-1, 3, 0], [2, 3, 4]), "node 1 has no parent", id="child-before-its-parent"),
        pytest.param(Drafted(1, 3, [-1, 0, 2], [0, 1, 2]), "node 3 has no parent", id="own-parent"),
    ],
)
def test_a_malformed_tree_is_refused(drafted, says):
    with pytest.raises(MalformedTreeError, match=says):
        build([CHAIN if drafted.topk == 1 else TREE, drafted], [4, 4])


@pytest.mark.parametrize("cells", [pytest.param(15, id="one-cell-short"), pytest.param(17, id="one-cell-long")])
def test_a_mask_of_another_size_is_refused_and_not_written(cells):
    mask = torch.ones(cells, dtype=torch.bool)
    with pytest.raises(OutOfBoundsError, match=f"tree_mask's length is {cells}; the other arguments imply 16"):
        build([CHAIN], [4], mask=mask)
    assert mask.all()


def test_a_bit_packed_mask_is_refused_by_name():
    with pytest.raises(NotImplementedError, match="build_tree_kernel_efficient_cpu: tree mask mode 2"):
        build([CHAIN], [4], mode=2)


@pytest.mark.parametrize(
    ("link", "value"),
    [
        pytest.param("index", 4, id="flat-number-beyond-the-batch"),
        pytest.param("child", 4, id="child-beyond-the-tree"),
        pytest.param("child", -2, id="child-below-none"),
        pytest.param("sibling", 9, id="sibling-beyond-the-tree"),
    ],
)
def test_links_that_leave_the_tree_are_refused(link, value):
    built = build([CHAIN], [4])
    getattr(built, link)[0, 1] = value
    predicts, zeros = torch.full((4,), -7).int(), torch.zeros(1, 4).long()
    with pytest.raises(OutOfBoundsError):
        verify_tree_greedy_cpu(
            predicts,
            torch.full((1, 4), -1).int(),
            torch.empty(1).int(),
            zeros,
            built.index,
            built.child,
            built.sibling,
            zeros,
        )
    assert (predicts == -7).all()


def test_a_ring_of_siblings_ends_with_an_error():
    built = build([CHAIN], [4])
    built.sibling[0, 1] = 1
    zeros = torch.zeros(1, 4).long()
    with pytest.raises(MalformedTreeError, match="ring"):
        verify_tree_greedy_cpu(
            torch.zeros(4).int(), torch.full((1, 4), -1).int(), torch.empty(1).int(), zeros,
            built.index, built.child, built.sibling, zeros + 1,
        )  # fmt: skip
