"""The hooks' arithmetic against the engine's own sampler and penalizers, whose sources are read and run one by one."""

import ast
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest
import torch

from patches.sglang_0_5_23.whole_sampling import hooks
from spec_toolkit.fingerprint import package_folder

WORDS = 7
SAMPLER = "srt/layers/sampler.py"
PENALTIES = "srt/sampling/penaltylib"


def engines_own(path: str, name: str, **around: Any) -> Any:
    """One definition of the engine's, run by itself; importing its module would take half a minute and a GPU's libraries."""
    tree = ast.parse((Path(package_folder("sglang")) / path).read_text(encoding="utf-8"))
    (found,) = (each for each in tree.body if getattr(each, "name", None) == name)
    found.decorator_list = []  # torch.compile
    scope = {"torch": torch, "Optional": Optional, "_BatchedPenalizer": object, **around}
    exec(compile(ast.Module([found], []), path, "exec"), scope)  # noqa: S102 - the installed engine's source
    return scope[name]


def samplers_law(probs: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """What the autoregressive engine's sampler draws from."""
    sample = engines_own(SAMPLER, "top_k_top_p_min_p_sampling_from_probs_torch")
    rows = len(probs)
    _, kept, order, _ = sample(
        probs.clone(), torch.full((rows,), top_k), torch.full((rows,), top_p), torch.full((rows,), min_p), min_p > 0, None,
        torch.zeros(rows), return_filtered_probs=True,
    )  # fmt: skip
    kept = torch.zeros_like(probs).scatter(1, order.long(), kept)
    return kept / kept.sum(-1, keepdim=True)


def top_k_renorm(probs: torch.Tensor, ks: torch.Tensor) -> torch.Tensor:
    least = probs.sort(descending=True).values.gather(1, ks.long()[:, None].clamp(max=probs.shape[1]) - 1)
    kept = torch.where(probs >= least, probs, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def top_p_renorm(probs: torch.Tensor, ps: torch.Tensor) -> torch.Tensor:
    ranked, order = probs.sort(descending=True)
    kept = torch.zeros_like(probs).scatter(1, order, torch.where(ranked.cumsum(1) - ranked <= ps[:, None], ranked, 0.0))
    return kept / kept.sum(-1, keepdim=True)


def whole(
    probs: torch.Tensor, top_k: int | None, top_p: float | None, min_p: float | None, *, in_turn: bool = False
) -> torch.Tensor:
    def of_rows(value: float | None) -> torch.Tensor | None:
        return None if value is None else torch.full((len(probs),), value)

    return hooks.cut(
        probs, top_k=top_k_renorm, top_p=top_p_renorm, in_turn=in_turn, top_ks=of_rows(top_k), top_ps=of_rows(top_p),
        min_ps=of_rows(min_p),
    )  # fmt: skip


def probabilities(rows: int = 64) -> torch.Tensor:
    return (2 * torch.randn(rows, WORDS, generator=torch.Generator().manual_seed(0))).double().softmax(-1)


class Batch:
    device = "cpu"


class Adds:
    is_multiplicative = False

    def __init__(self, _: object) -> None: ...

    def prepare_if_required(self) -> bool:
        return True


class Scales(Adds):
    is_multiplicative = True


class AddsToo(Adds): ...


def test_what_scales_comes_last_whatever_the_order_of_the_engines_set() -> None:
    """Its classes come in another order in another process, and (l - a) / s is not l / s - a."""
    name = "BatchedPenalizerOrchestrator"
    hints = {"ScheduleBatch": object, name: object, "Set": set, "Type": type}
    orchestrator = engines_own(f"{PENALTIES}/orchestrator.py", name, weakref=weakref, **hints)
    batch = Batch()
    assert [*orchestrator(WORDS, batch, [Scales, Adds, AddsToo]).penalizers] == [Scales, Adds, AddsToo]
    ours = object.__new__(orchestrator)
    hooks.scale_last(orchestrator.__init__, ours, WORDS, batch, penalizers=[Adds, Scales, AddsToo])
    assert [*ours.penalizers] == [Adds, AddsToo, Scales]
    assert ours.is_required


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"),
    [
        pytest.param(None, None, 0.3, id="min-p"),
        pytest.param(3, 0.6, None, id="top-k-and-top-p"),
        pytest.param(3, None, 0.2, id="top-k-and-min-p"),
        pytest.param(None, 0.8, 0.2, id="top-p-and-min-p"),
        pytest.param(4, 0.7, 0.1, id="all"),
        pytest.param(1, 0.5, 0.3, id="a-greedy-request-among-them"),
    ],
)
def test_the_cuts_are_the_samplers(top_k: int | None, top_p: float | None, min_p: float | None) -> None:
    probs = probabilities()
    expected = samplers_law(probs, top_k or WORDS, top_p or 1.0, min_p or 0.0)
    assert torch.allclose(whole(probs, top_k, top_p, min_p), expected)


def test_top_p_of_what_top_k_left_is_another_law() -> None:
    probs = probabilities()
    expected = samplers_law(probs, 3, 0.6, 0.0)
    assert not torch.allclose(whole(probs, 3, 0.6, None, in_turn=True), expected)


# --- penalties ---


def penalizers(batch: int, **asked: list[float]) -> dict[str, Any]:
    """The engine's, one row a request, as it prepares them; the stop token is the last word."""
    scale = engines_own(f"{PENALTIES}/repetition_penalty.py", "apply_scaling_penalties")
    found: dict[str, Any] = {}
    for kind, name in (("frequency", "Frequency"), ("presence", "Presence"), ("repetition", "Repetition")):
        engines = engines_own(
            f"{PENALTIES}/{kind}_penalty.py", f"Batched{name}Penalizer", apply_scaling_penalties=scale
        )
        one = engines()
        neutral = torch.ones if kind == "repetition" else torch.zeros
        setattr(one, f"{kind}_penalties", torch.tensor(asked[kind])[:, None])
        setattr(one, f"cumulated_{kind}_penalties", neutral(batch, WORDS))
        found[kind] = one
    shortest = engines_own(f"{PENALTIES}/min_new_tokens.py", "BatchedMinNewTokensPenalizer")()
    shortest.min_new_tokens = torch.tensor(asked["shortest"])[:, None]
    shortest.stop_token_penalties = torch.zeros(batch, WORDS).index_fill(1, torch.tensor([WORDS - 1]), float("-inf"))
    shortest.len_output_tokens = torch.zeros(batch, 1)
    return {**found, "shortest": shortest}


def one_by_one(logits: torch.Tensor, contexts: list[list[int]], **asked: list[float]) -> torch.Tensor:
    """Each row penalised as the engine's sampler does after the tokens of its context, fed one at a time."""
    rows = []
    for row, context in enumerate(contexts):
        mine = penalizers(1, **{name: [values[row]] for name, values in asked.items()})
        for token in context:
            for each in mine.values():
                each._cumulate_output_tokens(output_ids=torch.tensor([token]))
        added = torch.zeros(1, WORDS)
        for name in ("frequency", "presence", "shortest"):
            mine[name]._apply(added)
        after = logits[row : row + 1] + added
        mine["repetition"]._apply(after)
        rows.append(after)
    return torch.cat(rows)


def verify_of(parents: list[int], tokens: list[list[int]]) -> SimpleNamespace:
    """A round's tree, the same for each request, with the links the engine builds."""
    nodes, batch = len(parents), len(tokens)
    first, sibling = [-1] * nodes, [-1] * nodes
    for node in range(nodes - 1, 0, -1):
        sibling[node], first[parents[node]] = first[parents[node]], node
    return SimpleNamespace(
        draft_token=torch.tensor(tokens).flatten(), draft_token_num=nodes, topk=1 if parents == list(range(-1, nodes - 1)) else 2,
        retrieve_next_token=torch.tensor([first] * batch), retrieve_next_sibling=torch.tensor([sibling] * batch),
    )  # fmt: skip


def path_to(node: int, parents: list[int]) -> list[int]:
    return [*path_to(parents[node], parents), node] if node >= 0 else []


ASKED = {
    "frequency": [0.7, 0.0, 1.5], "presence": [0.4, 1.1, 0.0], "repetition": [1.0, 1.8, 1.3], "shortest": [0, 4, 6],
}  # fmt: skip
CHAIN, TREE = [-1, 0, 1, 2], [-1, 0, 0, 1, 1, 2, 4]


def request(said: list[int], *, prompt: int = 5, retractions: int = 0) -> SimpleNamespace:
    return SimpleNamespace(output_ids=said, origin_input_ids=[0] * prompt, retraction_count=retractions)


@pytest.mark.parametrize("parents", [CHAIN, TREE, [-1]], ids=["chain", "tree", "no-draft"])
def test_each_node_is_penalised_for_its_own_context(parents: list[int]) -> None:
    said = [[1, 1, 3], [], [0, 6]]
    tokens = [
        [3, 1, 1, 4, 2, 1, 1][: len(parents)],
        [2, 2, 2, 2, 2, 5, 2][: len(parents)],
        [6, 0, 3, 0, 0, 3, 1][: len(parents)],
    ]
    logits = torch.randn(3 * len(parents), WORDS, generator=torch.Generator().manual_seed(1))
    contexts = [
        said[row] + [tokens[row][at] for at in path_to(node, parents)]
        for row in range(3)
        for node in range(len(parents))
    ]
    asked = {name: [value for value in values for _ in parents] for name, values in ASKED.items()}
    expected = one_by_one(logits, contexts, **asked)

    verify = verify_of(parents, tokens)
    lengths = torch.tensor([5 + len(each) for each in said])
    before = hooks.counts_before([request(each) for each in said], lengths, WORDS)
    counts = hooks.counts_behind(before, torch.tensor(tokens), hooks.ancestors(verify))
    hooks.penalise(
        logits, hooks._asked({type(each): Prepared(each) for each in penalizers(3, **ASKED).values()}), counts
    )
    assert torch.allclose(logits, expected, atol=1e-6)


class Prepared:
    """A penalizer of the engine's that says so."""

    def __init__(self, penalizer: Any) -> None:
        self.__dict__ = penalizer.__dict__

    def is_prepared(self) -> bool:
        return True


def test_one_penalty_for_a_whole_round_is_seen() -> None:
    """The defect the patch removes: the drafts of a round do not count for one another."""
    logits = torch.zeros(4, WORDS)
    contexts = [[1], [1, 1], [1, 1, 1], [1, 1, 1, 2]]
    expected = one_by_one(logits, contexts, **{name: [values[0]] * 4 for name, values in ASKED.items()})
    relaxed = one_by_one(logits, [[1]] * 4, **{name: [values[0]] * 4 for name, values in ASKED.items()})
    assert not torch.allclose(relaxed, expected)
    assert torch.allclose(relaxed[0], expected[0])


def test_a_round_counts_the_root_and_what_it_accepted_and_the_next_goes_on_from_there() -> None:
    requests = [request([3]), request([])]
    drafted = torch.tensor([[4, 1, 1, 2], [5, 0, 0, 0]])
    said = hooks.counts_before(requests, torch.tensor([6, 5]), WORDS)
    hooks.remember(requests, said, drafted, torch.tensor([[0, 1, 2, -1], [4, -1, -1, -1]], dtype=torch.int32))
    # The host's lists have not moved: under the overlap schedule they are a round late.
    after = hooks.counts_before(requests, torch.tensor([9, 6]), WORDS)
    assert after.tolist() == [[0, 2, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 0]]


@pytest.mark.parametrize("said", [[3, 1], [3, 1, 4]], ids=["the-root-is-not-here-yet", "the-root-is-here-already"])
def test_a_first_round_counts_what_lies_before_its_root(said: list[int]) -> None:
    assert hooks.counts_before([request(said)], torch.tensor([7]), WORDS).tolist() == [[0, 1, 0, 1, 0, 0, 0]]


def test_a_retracted_request_is_counted_anew() -> None:
    one = request([3])
    said = hooks.counts_before([one], torch.tensor([6]), WORDS)
    hooks.remember([one], said, torch.tensor([[4, 1]]), torch.tensor([[0, 1]]))
    one.output_ids, one.retraction_count = [3, 4, 1, 2], 1
    assert hooks.counts_before([one], torch.tensor([9]), WORDS).tolist() == [[0, 1, 1, 1, 1, 0, 0]]


def test_a_batch_loses_and_gains_requests_without_mixing_them_up() -> None:
    first, second = request([3]), request([1, 1])
    said = hooks.counts_before([first, second], torch.tensor([6, 7]), WORDS)
    hooks.remember([first, second], said, torch.tensor([[4], [2]]), torch.tensor([[0], [1]]))
    mixed = hooks.counts_before([second, request([6])], torch.tensor([8, 6]), WORDS)
    assert mixed.tolist() == [[0, 2, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1]]
