"""The draft tree of a round: built for the verify pass, then walked along the target's own choices.

A request's tree has num_draft_tokens nodes; node 0 is the root (the last emitted token), a chain is a tree with one child
each. The draft hands over its nodes as *candidates*: a candidate's number c says which beam produced it, `c // topk`, and
beam 0 hangs from the root; beam p > 0 hangs from the candidate numbered `parent_list[p]`. Of all candidates the draft keeps
the best num_draft_tokens - 1, in rising order, so a parent always stands before its children.
Caller: sglang/kernels/ops/speculative/spec_tree.py.
"""

import torch

from . import bounds

NO_NODE = -1  # how SGLang marks "no child", "no sibling" and a rejected position
FULL_MASK, BLOCKS_ONLY = 0, 1  # SGLang's TreeMaskMode FULL_MASK and QLEN_ONLY


class MalformedTreeError(ValueError):
    """A node without its parent, or links that leave the tree: the compiled kernel warns and goes on; a rehearsal stops."""


def parents_of(selected: list[int], parent_list: list[int], topk: int, request: int) -> list[int]:
    """Per node the node it hangs from, [num_draft_tokens]; the root has NO_NODE."""
    node_of = {candidate: node for node, candidate in enumerate(selected, start=1)}
    parents = [NO_NODE]
    for node, candidate in enumerate(selected, start=1):
        beam = candidate // topk
        if not 0 <= beam < max(len(parent_list), 1):
            raise MalformedTreeError(
                f"build_tree: request {request}, node {node} names beam {beam}; the draft had {len(parent_list)}."
            )
        parent = 0 if beam == 0 else node_of.get(parent_list[beam], NO_NODE)
        if not 0 <= parent < node:
            raise MalformedTreeError(
                f"build_tree: request {request}, node {node} has no parent among the nodes before it."
            )
        parents.append(parent)
    return parents


def ancestors_and_depths(parents: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Which nodes each node attends to, [n, n] bool (itself and the root included), and how deep it lies, [n] int64."""
    nodes = len(parents)
    sees = torch.eye(nodes, dtype=torch.bool)
    for node in range(1, nodes):  # parents stand before their children, so one pass is enough
        sees[node] |= sees[parents[node]]
    return sees, sees.sum(dim=1) - 1


def children_links(parents: list[int]) -> tuple[list[int], list[int]]:
    """(first child, next sibling) per node. Children come in node order, which is the draft's order of preference."""
    nodes = len(parents)
    child, sibling = [NO_NODE] * nodes, [NO_NODE] * nodes
    for node in range(nodes - 1, 0, -1):
        sibling[node], child[parents[node]] = child[parents[node]], node
    return child, sibling


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Lay out each request's tree for the verify pass.

    `parent_list`: [batch, topk * (depth - 1) + 1], empty for depth 1. `selected_index`: [batch, draft_token_num - 1],
    rising candidate numbers. `verified_seq_len`: [batch], committed length.

    Writes, with n = draft_token_num: `positions` [batch * n], committed length plus depth; `retrive_index` [batch, n], the
    node's flat number; `retrive_next_token` and `retrive_next_sibling` [batch, n], first child and next sibling, -1 = none;
    `tree_mask` bool. Mode 1 (SGLang's QLEN_ONLY, its default on a CPU): [batch * n * n]. Mode 0 (FULL_MASK): per request
    n rows of committed length + n; only the last n columns are written, the caller has filled the rest with true.
    """
    op = "build_tree_kernel_efficient_cpu"
    batch, nodes = verified_seq_len.numel(), draft_token_num
    lengths = verified_seq_len.tolist()
    if int(tree_mask_mode) not in (FULL_MASK, BLOCKS_ONLY):
        raise NotImplementedError(f"{op}: tree mask mode {int(tree_mask_mode)} (bit-packed) has no CPU form.")
    widths = [nodes + length if int(tree_mask_mode) == FULL_MASK else nodes for length in lengths]
    bounds.equal(op, "tree_mask's length", tree_mask.numel(), nodes * sum(widths))
    bounds.equal(op, "selected_index's shape", tuple(selected_index.shape), (batch, nodes - 1))
    bounds.equal(op, "positions' length", positions.numel(), batch * nodes)
    for name, links in (
        ("index", retrive_index),
        ("next_token", retrive_next_token),
        ("next_sibling", retrive_next_sibling),
    ):
        bounds.equal(op, f"retrive_{name}'s length", links.numel(), batch * nodes)
    if depth > 1:
        bounds.equal(op, "parent_list's shape", tuple(parent_list.shape), (batch, topk * (depth - 1) + 1))

    retrive_index.view(-1).copy_(torch.arange(batch * nodes))
    first_cell = 0
    for request in range(batch):
        parents = parents_of(selected_index[request].tolist(), parent_list[request].tolist(), topk, request)
        sees, depths = ancestors_and_depths(parents)
        if int(depths.max()) > depth:
            raise MalformedTreeError(
                f"{op}: request {request} is {int(depths.max())} deep; the draft made {depth} steps."
            )
        child, sibling = children_links(parents)
        retrive_next_token.view(batch, nodes)[request] = torch.tensor(child)
        retrive_next_sibling.view(batch, nodes)[request] = torch.tensor(sibling)
        positions.view(batch, nodes)[request] = depths + lengths[request]
        cells = nodes * widths[request]
        tree_mask.view(-1)[first_cell : first_cell + cells].view(nodes, widths[request])[:, -nodes:] = sees
        first_cell += cells


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Accept the longest path from the root on which every draft is the target's own greedy choice.

    With n nodes a request: `candidates` [batch, n], each node's token; the three links as build_tree wrote them;
    `target_predict` [batch, n], the target's greedy token *after* each node.

    Writes `predicts` [batch * n], the emitted tokens at their nodes' flat numbers: on the path the accepted drafts, at its
    end the bonus token. `accept_index` [batch, num_steps + 1], flat numbers of the path's nodes, the root first; the caller
    has filled it with -1. `accept_token_num` [batch], accepted drafts, bonus not counted.
    """
    op = "verify_tree_greedy_cpu"
    batch, nodes = candidates.shape
    bounds.equal(op, "predicts' length", predicts.numel(), batch * nodes)
    bounds.equal(op, "accept_index's rows", accept_index.shape[0], batch)
    bounds.inside(op, "retrive_index", retrive_index, batch * nodes)
    bounds.inside(op, "retrive_next_token + 1", retrive_next_token + 1, nodes + 1)
    bounds.inside(op, "retrive_next_sibling + 1", retrive_next_sibling + 1, nodes + 1)

    tokens, flat = candidates.tolist(), retrive_index.tolist()
    child, sibling = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    wanted = target_predict.reshape(-1).tolist()
    longest = accept_index.shape[1] - 1
    for request in range(batch):
        node, path = 0, [flat[request][0]]
        while len(path) <= longest:
            node = _child_with(wanted[path[-1]], child[request][node], tokens[request], sibling[request])
            if node == NO_NODE:
                break
            path.append(flat[request][node])
        for at in path:
            predicts[at] = wanted[at]
        accept_index[request, : len(path)] = torch.tensor(path, dtype=accept_index.dtype)
        accept_token_num[request] = len(path) - 1


def _child_with(token: int, first: int, tokens: list[int], sibling: list[int]) -> int:
    """The first node in a row of siblings that carries `token`, or NO_NODE."""
    node, seen = first, 0
    while node != NO_NODE and tokens[node] != token:
        node, seen = sibling[node], seen + 1
        if seen > len(tokens):
            raise MalformedTreeError("verify_tree_greedy_cpu: the siblings form a ring.")
    return node
