"""The sampling kernels against the law of theory: what a round emits follows the target exactly, and defects are seen."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sgl_kernel import chain_speculative_sampling, sampling, tree_speculative_sampling_target_only
from sgl_kernel.bounds import OutOfBoundsError
from sgl_kernel.tree import MalformedTreeError

from tests.rehearsal.path.sgl_kernel.rounds import (
    DRAFTS,
    EXACT,
    TARGETS,
    WORDS,
    Tokens,
    chain,
    distance,
    emitted,
    fixed,
    off_target,
    reaching,
    tree,
)  # fmt: skip


@settings(max_examples=25)
@given(p=TARGETS, q=DRAFTS, drafts=st.integers(1, 3))
def test_rejection_emits_the_targets_law_whatever_the_draft(p, q, drafts):
    given = chain(p, q, drafts)
    assert off_target(chain_speculative_sampling, given, p) < EXACT


@settings(max_examples=25)
@given(p=TARGETS, q=DRAFTS, drafts=st.integers(1, 2))
def test_a_draft_passes_with_the_mass_that_target_and_draft_share(p, q, drafts):
    given = chain(p, q, drafts)
    first = reaching(emitted(chain_speculative_sampling, given), 1)
    assert first == pytest.approx(float(torch.minimum(p(()), q(())).sum()), abs=EXACT)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], Tokens]:
    """(parents, tokens) of two to four nodes, siblings differing as the draft's top-k makes them."""
    parents, tokens = [-1], [0]
    for node in range(1, draw(st.integers(2, 4))):
        free = [
            (parent, word)
            for parent in range(node)
            for word in range(WORDS)
            if (parent, word) not in zip(parents, tokens, strict=True)
        ]
        parent, word = draw(st.sampled_from(free))
        parents.append(parent)
        tokens.append(word)
    return parents, tuple(tokens)


@settings(max_examples=40)
@given(p=TARGETS, drafted=trees())
def test_target_only_emits_the_targets_law_on_any_tree(p, drafted):
    given = tree(p, *drafted)
    assert off_target(tree_speculative_sampling_target_only, given, p) < EXACT


@settings(max_examples=15)
@given(p=TARGETS, words=st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=3))
def test_target_only_on_a_chain_goes_on_exactly_as_long_as_the_target_would(p, words):
    given = tree(p, list(range(-1, len(words))), (0, *words))
    found = emitted(tree_speculative_sampling_target_only, given)
    for length in range(1, len(words) + 1):
        ahead = math.prod(float(p(tuple(words[:i]))[words[i]]) for i in range(length))
        assert reaching(found, length) == pytest.approx(ahead, abs=EXACT)
    assert off_target(tree_speculative_sampling_target_only, given, p) < EXACT


P, Q = fixed((0.5, 0.25, 0.25), (0.25, 0.75, 0.0)), fixed((0.25, 0.25, 0.5), (0.5, 0.5, 0.0))
CHAIN, TREE = chain(P, Q, 2), tree(P, [-1, 0, 0, 1], (0, 2, 1, 0))


# Chosen so that a block's thresholds are twelfths.
BLOCK_P, BLOCK_Q = fixed((0.25, 0.75, 0.0), (0.5, 0.5, 0.0)), fixed((0.5, 0.5, 0.0), (0.0, 0.25, 0.75))


def test_block_verification_emits_the_targets_law_and_no_fewer_drafts():
    given = chain(BLOCK_P, BLOCK_Q, 2, steps=12)
    by_block = emitted(chain_speculative_sampling, given, block_verification=True)
    one_by_one = emitted(chain_speculative_sampling, given)
    assert distance(by_block, given, BLOCK_P) < EXACT
    accepted = [reaching(found, 1) + reaching(found, 2) for found in (by_block, one_by_one)]
    assert accepted[0] > accepted[1] - EXACT


def test_a_block_whose_residual_is_not_scaled_is_seen(monkeypatch):
    judged = sampling.longest_block
    monkeypatch.setattr(sampling, "longest_block", lambda *a: (judged(*a)[0], torch.ones(len(a[0])).double()))
    given = chain(BLOCK_P, BLOCK_Q, 2, steps=12)
    assert off_target(chain_speculative_sampling, given, BLOCK_P, block_verification=True) > 0.04


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        pytest.param("residual", lambda p, q: p, id="the-full-target-after-a-rejection"),
        pytest.param("residual", lambda p, q: (q - p).clamp(min=0) + 1e-9, id="the-residual-turned-round"),
        pytest.param("acceptance", lambda p, q: p, id="acceptance-without-the-draft"),
        pytest.param("acceptance", lambda p, q: torch.ones_like(p), id="every-draft-accepted"),
    ],
)
def test_a_wrong_rejection_is_seen(monkeypatch, name, wrong):
    assert off_target(chain_speculative_sampling, CHAIN, P) < EXACT
    monkeypatch.setattr(sampling, name, wrong)
    assert off_target(chain_speculative_sampling, CHAIN, P) > 0.05


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        pytest.param("residual", lambda p, q: p, id="the-full-target-after-a-rejection"),
        pytest.param(
            "chosen_child", lambda children, *_: children[0][0] if children else -1, id="always-the-first-child"
        ),
        pytest.param("chosen_child", lambda *_: -1, id="never-a-child"),
    ],
)
def test_a_wrong_choice_in_a_tree_is_seen(monkeypatch, name, wrong):
    assert off_target(tree_speculative_sampling_target_only, TREE, P) < EXACT
    monkeypatch.setattr(sampling, name, wrong)
    assert off_target(tree_speculative_sampling_target_only, TREE, P) > 0.05


def test_being_told_another_draft_than_the_one_drawn_from_is_seen():
    told = chain(P, Q, 2, told=fixed((0.5, 0.25, 0.25), (0.5, 0.5, 0.0)))
    assert off_target(chain_speculative_sampling, told, P) > 0.05


def test_one_coin_for_all_drafts_of_a_chain_is_seen():
    again = replace(CHAIN, coins=CHAIN.coins[:, :1].expand_as(CHAIN.coins))
    assert off_target(chain_speculative_sampling, again, P) > 0.02


def test_a_greedy_request_emits_the_targets_choice_from_either_rule():
    """Its p is one token; the engine then drafts an argmax, which is no draw from the q it hands over."""
    sure = fixed((0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    for path in itertools.product(range(WORDS), repeat=2):
        given = tree(sure, [-1, 0, 1], (0, *path))
        given.draft[:] = Q(())
        right = {(1, 0, 2)[: 1 + sum(itertools.takewhile(bool, (a == b for a, b in zip(path, (1, 0), strict=True))))]}
        assert set(emitted(chain_speculative_sampling, given)) == right
        given.draft[:] = 0
        assert set(emitted(tree_speculative_sampling_target_only, given)) == right


def test_a_zero_step_round_draws_one_token_from_the_target():
    given = tree(P, [-1], (0,))
    for kernel in (chain_speculative_sampling, tree_speculative_sampling_target_only):
        assert off_target(kernel, given, P) < EXACT


def test_what_the_filters_took_out_is_never_emitted_not_even_at_the_ends_of_the_coins_range():
    cut = fixed((0.0, 0.5, 0.5), (0.0, 0.5, 0.5))
    given = tree(cut, [-1, 0, 0, 1], (0, 0, 1, 0))
    for coin in (0.0, 1.0 - 2**-24):
        given.coins[:] = coin
        given.last[:] = coin
        assert 0 not in set(itertools.chain(*emitted(tree_speculative_sampling_target_only, given)))


def test_a_draft_that_is_no_probability_is_rejected_and_the_target_drawn():
    given = chain(P, Q, 1)
    given.draft[:] = torch.tensor([float("nan"), float("inf"), -1.0])
    found = emitted(chain_speculative_sampling, given)
    assert {len(tokens) for tokens in found} == {1}
    assert distance(found, given, P) < EXACT


def test_two_siblings_with_the_same_token_count_once():
    given = tree(P, [-1, 0, 0], (0, 1, 1))
    assert off_target(tree_speculative_sampling_target_only, given, P) < EXACT


@pytest.mark.parametrize(("loosened", "passes"), [({"threshold_single": 0.25}, 1.0), ({"threshold_acc": 0.5}, 0.5)])
def test_thresholds_below_one_accept_more_than_the_target_would(loosened, passes):
    given = tree(P, [-1, 0], (0, 1))
    assert reaching(emitted(tree_speculative_sampling_target_only, given), 1) == pytest.approx(0.25)
    assert reaching(emitted(tree_speculative_sampling_target_only, given, **loosened), 1) == pytest.approx(passes)


def test_a_ring_of_siblings_ends_with_an_error():
    with pytest.raises(MalformedTreeError, match="ring"):
        sampling.siblings(1, [-1, 2, 1])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"target": CHAIN.target[:, :2]}, "target_probs' positions", id="a-position-missing"),
        pytest.param(
            {"draft": CHAIN.draft[:, :1]}, "draft_probs' rows has 1 elements, 2 are needed", id="a-draft-missing"
        ),
        pytest.param({"draft": CHAIN.draft[:, :, :2]}, "draft_probs' vocabulary", id="another-vocabulary"),
        pytest.param({"candidates": CHAIN.candidates + 3}, "candidates holds 5; only 0 to 2", id="token-beyond-it"),
        pytest.param({"coins": CHAIN.coins[:, :2]}, "uniform_samples' shape", id="a-coin-missing"),
        pytest.param({"depth": 3}, "accept_index's columns is 4", id="room-for-another-depth"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, says):
    with pytest.raises(OutOfBoundsError, match=says):
        emitted(chain_speculative_sampling, replace(CHAIN, **change))
