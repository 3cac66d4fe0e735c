"""The margin-aware comparison."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.prove.lossless import Completion, Kind, compare, compare_all


def reference(ids: list[int], gaps: list[float]) -> Completion:
    """Greedy output `ids`; at each position token id + 1 stands `gap` nats below, and 99 stands 20 below."""
    rows = tuple({token: -0.1, token + 1: -0.1 - gap, 99: -20.1} for token, gap in zip(ids, gaps, strict=True))
    return Completion(output_ids=tuple(ids), top_logprobs=rows)


def answer(*ids: int) -> Completion:
    return Completion(output_ids=ids)


@pytest.mark.parametrize(
    ("got", "kind", "compared"),
    [
        pytest.param(answer(1, 2, 3), Kind.EQUAL, 3, id="equal"),
        pytest.param(answer(1, 3, 9), Kind.NEAR_TIE, 1, id="a-near-tie-and-what-follows-is-not-compared"),
        pytest.param(answer(2, 2, 3), Kind.DIFFERENT, 0, id="the-target-was-sure"),
        pytest.param(answer(1, 99, 3), Kind.DIFFERENT, 1, id="a-token-far-below"),
        pytest.param(answer(1, 50, 3), Kind.DIFFERENT, 1, id="a-token-the-target-did-not-name"),
        pytest.param(answer(1, 2), Kind.DIFFERENT, 2, id="too-short"),
        pytest.param(answer(1, 2, 3, 4), Kind.DIFFERENT, 3, id="too-long"),
    ],
)
def test_the_first_difference_decides(got: Completion, kind: Kind, compared: int) -> None:
    outcome = compare(reference([1, 2, 3], [5.0, 0.004, 5.0]), got, tolerance_nats=0.01)
    assert (outcome.kind, outcome.compared_tokens) == (kind, compared)


@pytest.mark.parametrize(
    ("gap", "kind"), [(0.0099, Kind.NEAR_TIE), (0.0101, Kind.DIFFERENT)], ids=["inside", "outside"]
)
def test_the_tolerance_is_the_border(gap: float, kind: Kind) -> None:
    assert compare(reference([1], [gap]), answer(2), tolerance_nats=0.01).kind is kind


def test_an_unnamed_token_is_never_a_near_tie_however_wide_the_tolerance() -> None:
    outcome = compare(reference([1], [0.0]), answer(50), tolerance_nats=1e9)
    assert outcome.kind is Kind.DIFFERENT
    assert outcome.gap_is_bound


def test_a_difference_without_logprobs_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="no log-probabilities"):
        compare(answer(1), answer(2), tolerance_nats=0.01)


def test_nothing_compared_proves_nothing() -> None:
    report = compare_all([], [], tolerance_nats=0.01)
    assert not report.is_lossless
    assert "proves nothing" in report.sentence()


def test_unequal_numbers_of_answers_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare_all([reference([1], [1.0])], [], tolerance_nats=0.01)


def test_the_sentence_names_prompt_token_and_gap_of_the_first_difference() -> None:
    target = reference([1, 2, 3], [5.0, 1.5, 5.0])
    report = compare_all([target, target], [answer(1, 2, 3), answer(1, 3, 3)], tolerance_nats=0.5)
    assert report.sentence() == (
        "not lossless: 1 of 2 prompts part from the target where it is sure (wider than 0.5 nats); first: prompt 1, token 1 (both from 0), "
        "gap 1.5 nats. This is not rounding. See runbooks/outputs-differ.md"
    )


@given(
    ids=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    other=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    gap=st.floats(0, 10),
)
def test_only_an_equal_prefix_up_to_a_tie_counts_as_lossless(ids: list[int], other: list[int], gap: float) -> None:
    outcome = compare(reference(ids, [gap] * len(ids)), answer(*other), tolerance_nats=0.5)
    assert ids[: outcome.compared_tokens] == other[: outcome.compared_tokens]
    if outcome.kind is Kind.EQUAL:
        assert ids == other
    if outcome.kind is Kind.NEAR_TIE:
        assert other[outcome.compared_tokens] == ids[outcome.compared_tokens] + 1
        assert gap <= 0.5
