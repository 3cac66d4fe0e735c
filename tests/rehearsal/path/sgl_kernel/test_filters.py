"""The cuts against their definitions, and a whole request's settings through both sides of a round."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sgl_kernel import (
    chain_speculative_sampling,
    top_k_renorm_prob,
    top_p_renorm_prob,
    tree_speculative_sampling_target_only,
)
from sgl_kernel.bounds import OutOfBoundsError

rows = st.lists(st.integers(0, 6), min_size=2, max_size=6).filter(any)  # weights; equal ones make ties


def ranked(weights: list[int]) -> list[int]:
    """Tokens from the likeliest down, the lower first where two are equal."""
    return sorted(range(len(weights)), key=lambda token: (-weights[token], token))


def renormalised(weights: list[int], kept: set[int]) -> list[float]:
    total = sum(weights[token] for token in kept)
    return [weight / total if token in kept else 0.0 for token, weight in enumerate(weights)]


@settings(max_examples=100)
@given(weights=rows, k=st.integers(1, 8))
def test_top_k_keeps_exactly_k_tokens(weights, k):
    probs = torch.tensor([weights]).double() / sum(weights)
    expected = renormalised(weights, set(ranked(weights)[:k]))
    assert top_k_renorm_prob(probs, torch.tensor([k], dtype=torch.int32))[0].tolist() == pytest.approx(expected)


@settings(max_examples=100)
@given(weights=rows, eighths=st.integers(1, 8))
def test_top_p_keeps_the_likeliest_until_the_mass_before_one_exceeds_p(weights, eighths):
    total = sum(weights)
    kept, before = set(), 0
    for token in ranked(weights):
        if before * 8 > eighths * total:  # in whole numbers: on the border a rounded sum would decide
            break
        kept.add(token)
        before += weights[token]
    # Double keeps the sums within 1e-15 of the fractions, so p is moved off the border.
    probs = torch.tensor([weights]).double() / total
    found = top_p_renorm_prob(probs, torch.tensor([eighths / 8 + 1e-9], dtype=torch.double))
    assert found[0].tolist() == pytest.approx(renormalised(weights, kept))


def test_each_row_has_its_own_cut():
    probs = torch.tensor([[0.5, 0.3, 0.2]]).repeat(3, 1)
    found = top_k_renorm_prob(probs, torch.tensor([1, 2, 1 << 30]))
    assert torch.allclose(found, torch.tensor([[1.0, 0, 0], [0.625, 0.375, 0], [0.5, 0.3, 0.2]]))
    found = top_p_renorm_prob(probs, torch.tensor([0.1, 0.6, 1.0]))
    assert torch.allclose(found, torch.tensor([[1.0, 0, 0], [0.625, 0.375, 0], [0.5, 0.3, 0.2]]))


@pytest.mark.parametrize("cut", [top_k_renorm_prob, top_p_renorm_prob])
def test_one_setting_for_each_row_is_needed(cut):
    with pytest.raises(OutOfBoundsError, match="length is 1; the other arguments imply 2"):
        cut(torch.full((2, 4), 0.25), torch.ones(1))


# --- a request's settings, through a round of one draft ---

TARGET = torch.tensor([1.2, 0.9, 0.4, -0.3, -1.1])  # logits
DRAFT = torch.tensor([0.2, 1.3, -0.5, 0.6, -0.9])
PENALTIES = torch.tensor([0.0, -1.5, 0.0, 0.7, 0.0])  # added to logits: frequency and presence, or a bias
POINTS, STEP = (
    987,
    610,
)  # a Fibonacci lattice: pairs of coins so even that the mass of a cell is off by well under OFF_GRID
OFF_GRID = 0.01


def law(logits: torch.Tensor, *, temperature=1.0, top_k=5, top_p=1.0, min_p=0.0, penalties=None) -> torch.Tensor:
    """The direct formula: penalties, temperature, softmax, then the tokens that every cut leaves."""
    logits = logits.double() + (0 if penalties is None else penalties)
    p = (logits / temperature).exp() / (logits / temperature).exp().sum()
    order = sorted(range(len(p)), key=lambda token: -float(p[token]))
    kept = [
        token
        for rank, token in enumerate(order)
        if rank < top_k and float(p[order[:rank]].sum()) <= top_p and p[token] >= min_p * p.max()
    ]
    cut = torch.zeros_like(p)
    cut[kept] = p[kept]
    return cut / cut.sum()


def one_draft(kernel, p, q, told=None) -> torch.Tensor:
    """The law of the first token a round emits when its draft is drawn from q."""
    words = len(p)
    at = torch.arange(POINTS).double()
    coins = torch.stack([(at + 0.5) / POINTS, (at * STEP + 0.5) % POINTS / POINTS], 1).repeat(words, 1)
    drafted = torch.arange(words).repeat_interleave(POINTS)
    rows = len(coins)
    index = torch.arange(rows * 2).view(rows, 2)
    links = torch.tensor([[1, -1]]).expand(rows, 2), torch.full((rows, 2), -1)
    predicts, accepted = torch.zeros(rows * 2, dtype=torch.int32), torch.zeros(rows, dtype=torch.int32)
    target, draft = p.expand(rows, 2, words), (q if told is None else told).expand(rows, 2, words)
    if kernel is tree_speculative_sampling_target_only:
        draft = torch.zeros(rows, 2, words).double()
    kernel(
        predicts=predicts, accept_index=torch.full((rows, 2), -1), accept_token_num=accepted,
        candidates=torch.stack([torch.zeros_like(drafted), drafted], 1), retrive_index=index, retrive_next_token=links[0],
        retrive_next_sibling=links[1], uniform_samples=coins[:, [0, 0]],
        uniform_samples_for_final_sampling=coins[:, 1], target_probs=target, draft_probs=draft, threshold_single=1.0,
        threshold_acc=1.0, deterministic=True,
    )  # fmt: skip
    weights = q[drafted] / POINTS
    return torch.zeros(words).double().index_add(0, predicts[index[:, 0]].long(), weights)


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().sum() / 2)


SETTINGS = {
    "temperature": {"temperature": 0.6},
    "top-k": {"top_k": 2},
    "top-p": {"top_p": 0.6},
    "min-p": {"min_p": 0.4},
    "penalties": {"penalties": PENALTIES},
    "all": {"temperature": 1.7, "top_k": 4, "top_p": 0.9, "min_p": 0.2, "penalties": PENALTIES},
}
RULES = {"rejection": chain_speculative_sampling, "target-only": tree_speculative_sampling_target_only}


@pytest.mark.parametrize("asked", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kernel", RULES.values(), ids=RULES)
def test_a_round_has_the_law_of_the_settings_applied_to_both_sides(kernel, asked):
    p, q = law(TARGET, **asked), law(DRAFT, **asked)
    assert apart(one_draft(kernel, p, q), p) < OFF_GRID


@pytest.mark.parametrize("asked", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kernel", RULES.values(), ids=RULES)
def test_settings_on_the_drafts_side_only_are_seen(kernel, asked):
    """The target is asked without them: the answer follows, whatever the draft was drawn from."""
    found = one_draft(kernel, law(TARGET), law(DRAFT, **asked))
    assert apart(found, law(TARGET, **asked)) > 5 * OFF_GRID


@pytest.mark.parametrize("asked", SETTINGS.values(), ids=SETTINGS)
def test_a_draft_drawn_with_settings_and_handed_over_without_is_seen(asked):
    p, q = law(TARGET, **asked), law(DRAFT, **asked)
    found = one_draft(chain_speculative_sampling, p, q, told=law(DRAFT))
    assert apart(found, p) > 5 * OFF_GRID


@pytest.mark.parametrize("asked", SETTINGS.values(), ids=SETTINGS)
def test_a_draft_drawn_and_handed_over_without_the_settings_costs_acceptance_and_no_correctness(asked):
    """So the engine drafts under rejection: it scales by temperature, and neither cuts nor penalises."""
    p = law(TARGET, **asked)
    assert apart(one_draft(chain_speculative_sampling, p, law(DRAFT)), p) < OFF_GRID


@pytest.mark.parametrize("asked", [{"top_k": 3}, {"top_p": 0.6}], ids=["top-k", "top-p"])
def test_the_kernels_cuts_are_those_of_the_formula(asked):
    cut = top_k_renorm_prob if "top_k" in asked else top_p_renorm_prob
    found = cut(law(TARGET)[None], torch.tensor(list(asked.values())))
    assert torch.allclose(found[0], law(TARGET, **asked))
