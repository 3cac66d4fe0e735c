"""The law of what a round emits, computed and not sampled: every draft path by its probability, every coin on a grid.

Probabilities are quarters, so that each threshold lies between two coins and the sums are exact. A round emits between one
token and one more than it drafted; completed by draws from the target, that must be the target's law over whole sequences.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from sgl_kernel.tree import children_links

WORDS = 3
QUARTERS = 4
LAST = 12  # a residual holds 1 to 4 quarters, so its thresholds are twelfths
Tokens = tuple[int, ...]
Law = Callable[[Tokens], torch.Tensor]  # tokens so far -> what comes next, [WORDS]
EXACT = 1e-12


def laws(parts: tuple[Tokens, ...]) -> st.SearchStrategy[Law]:
    """A distribution for each context of at most four tokens, in quarters."""
    choices = sorted({shuffled for part in parts for shuffled in itertools.permutations(part)})
    contexts = [c for length in range(5) for c in itertools.product(range(WORDS), repeat=length)]
    rows = st.lists(st.sampled_from(choices), min_size=len(contexts), max_size=len(contexts))

    def law(drawn: list[Tokens]) -> Law:
        known = {context: torch.tensor(row) / QUARTERS for context, row in zip(contexts, drawn, strict=True)}
        return known.__getitem__

    return rows.map(law)


TARGETS = laws(((4, 0, 0), (3, 1, 0), (2, 2, 0), (2, 1, 1)))
DRAFTS = laws(((4, 0, 0), (2, 2, 0), (2, 1, 1)))  # no three: p / q is then a quarter too


@dataclass(frozen=True)
class Rounds:
    """Rounds to verify: one a row, with its weight."""

    weights: torch.Tensor  # [rows]
    candidates: torch.Tensor  # [rows, nodes]
    target: torch.Tensor  # [rows, nodes, WORDS]
    draft: torch.Tensor  # as target
    coins: torch.Tensor  # [rows, nodes]
    last: torch.Tensor  # [rows]
    parents: list[int]  # of each node
    depth: int


def grid(steps: int) -> list[float]:
    return [(i + 0.5) / steps for i in range(steps)]


Tables = Iterator[tuple[float, Tokens, torch.Tensor, torch.Tensor]]


def rounds(tables: Tables, parents: list[int], depth: int, steps: int = QUARTERS) -> Rounds:
    """Each (weight, candidates, p per node, q per node) under every coin; a leaf needs none."""
    nodes = len(parents)
    judged = sorted({parent for parent in parents if parent >= 0})
    coins = torch.full((steps ** len(judged) * LAST, nodes + 1), 0.5)
    coins[:, [*judged, nodes]] = torch.tensor(list(itertools.product(*[grid(steps)] * len(judged), grid(LAST))))
    many = len(coins)
    weights, candidates, target, draft = zip(*tables, strict=True)
    return Rounds(
        torch.tensor(weights).double().repeat_interleave(many) / many,
        torch.tensor(candidates).repeat_interleave(many, 0),
        torch.stack(target).repeat_interleave(many, 0),
        torch.stack(draft).repeat_interleave(many, 0),
        coins[:, :nodes].repeat(len(weights), 1),
        coins[:, nodes].repeat(len(weights)),
        parents,
        depth,
    )


def chain(p: Law, q: Law, drafts: int, *, told: Law | None = None, steps: int = QUARTERS) -> Rounds:
    """Drafts drawn from q; `told` is what the kernel is told they were drawn from."""

    def tables() -> Tables:
        for path in itertools.product(range(WORDS), repeat=drafts):
            weight = 1.0
            for i, word in enumerate(path):
                weight *= float(q(path[:i])[word])
            if weight:
                before = [path[:i] for i in range(drafts + 1)]
                yield weight, (0, *path), torch.stack([*map(p, before)]), torch.stack([*map(told or q, before)])

    return rounds(tables(), list(range(-1, drafts)), drafts, steps)


def tree(p: Law, parents: list[int], tokens: Tokens) -> Rounds:
    """One tree; tokens[0] is the root's and is in no context."""
    paths: list[Tokens] = [()]
    for node in range(1, len(parents)):
        paths.append((*paths[parents[node]], tokens[node]))
    target = torch.stack([p(path) for path in paths])
    depth = max(map(len, paths))
    return rounds(iter([(1.0, tokens, target, torch.zeros_like(target))]), parents, depth)


def emitted(kernel: Callable[..., None], given: Rounds, **more: object) -> dict[Tokens, float]:
    """What the rounds emit, accepted drafts and the token behind them, with its probability; read as the engine reads it."""
    rows, nodes = given.candidates.shape
    child, sibling = children_links(given.parents)
    index = torch.arange(rows * nodes).view(rows, nodes)
    predicts = torch.full((rows * nodes,), -7, dtype=torch.int32)
    accept_index = torch.full((rows, given.depth + 1), -1, dtype=torch.int32)
    accepted = torch.empty(rows, dtype=torch.int32)
    arguments = {
        "predicts": predicts, "accept_index": accept_index, "accept_token_num": accepted, "candidates": given.candidates,
        "retrive_index": index, "retrive_next_token": torch.tensor([child]).expand(rows, nodes),
        "retrive_next_sibling": torch.tensor([sibling]).expand(rows, nodes), "uniform_samples": given.coins,
        "uniform_samples_for_final_sampling": given.last, "target_probs": given.target.clone(),
        "draft_probs": given.draft.clone(), "threshold_single": 1.0, "threshold_acc": 1.0, "deterministic": True,
    }  # fmt: skip
    kernel(**{**arguments, **more})
    on_path = accept_index >= 0
    assert torch.equal(on_path, torch.arange(given.depth + 1) <= accepted[:, None])
    assert torch.equal(accept_index[:, 0].long(), index[:, 0])
    tokens = torch.where(on_path, predicts[accept_index.clamp(min=0).long()], -1)
    drafted = given.candidates.flatten()[accept_index[:, 1:].clamp(min=0).long()]
    assert torch.equal(tokens[:, :-1][on_path[:, 1:]].long(), drafted[on_path[:, 1:]])
    kinds, kind = torch.unique(tokens, dim=0, return_inverse=True)
    weights = torch.zeros(len(kinds)).double().index_add(0, kind, given.weights)
    return {tuple(t for t in row if t >= 0): w for row, w in zip(kinds.tolist(), weights.tolist(), strict=True)}


def reaching(found: dict[Tokens, float], drafts: int) -> float:
    """How likely a round accepts at least so many drafts."""
    return sum(weight for tokens, weight in found.items() if len(tokens) > drafts)


def distance(found: dict[Tokens, float], given: Rounds, p: Law) -> float:
    """Total variation from the target over sequences one longer than the deepest draft, shorter ones completed by p."""
    off = 0.0
    for sequence in itertools.product(range(WORDS), repeat=given.depth + 1):
        ahead = [float(p(sequence[:i])[word]) for i, word in enumerate(sequence)]
        reached = sum(found.get(sequence[:i], 0.0) * math.prod(ahead[i:]) for i in range(1, len(sequence) + 1))
        off += abs(math.prod(ahead) - reached) / 2
    return off


def off_target(kernel: Callable[..., None], given: Rounds, p: Law, **more: object) -> float:
    return distance(emitted(kernel, given, **more), given, p)


def fixed(*rows: tuple[float, ...]) -> Law:
    """The same for every context of a length; the last row for all that are longer."""
    return lambda context: torch.tensor(rows[min(len(context), len(rows) - 1)])
