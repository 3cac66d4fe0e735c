from collections.abc import Iterable
from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.planning.speed.lengths import (
    conditional_of,
    emitted_length,
    emitted_lengths,
    survival_of_lengths,
)


def survival_of(conditional: Iterable[float]) -> tuple[float, ...]:
    """theory.md: the product of the chances up to a position."""
    return tuple(accumulate(conditional, mul))


CHANCES = st.lists(st.floats(0.01, 1), min_size=1, max_size=16)


@pytest.mark.parametrize(
    ("conditional", "length"),
    [
        pytest.param((0.8,) * 4, 3.3616, id="the-same-chance-throughout"),
        pytest.param((0.9, 0.8, 0.7, 0.6), 3.4264, id="a-chance-that-decays"),
        pytest.param((), 1.0, id="nothing-drafted-emits-the-bonus"),
        pytest.param((1.0,) * 3, 4.0, id="nothing-rejected"),
        pytest.param((0.0, 1.0, 1.0), 1.0, id="nothing-behind-a-rejection-counts"),
    ],
)
def test_a_round_emits_what_survives_and_the_bonus(conditional: tuple[float, ...], length: float) -> None:
    assert emitted_length(survival_of(conditional)) == pytest.approx(length, abs=1e-12)


@given(CHANCES)
def test_lengths_and_survival_are_two_writings_of_one_curve(conditional: list[float]) -> None:
    survival = survival_of(conditional)
    assert survival_of_lengths(emitted_lengths(survival)) == pytest.approx(survival, abs=1e-9)
    assert conditional_of(survival) == pytest.approx(conditional)


@given(st.lists(st.floats(0.5, 10), min_size=1, max_size=12))
def test_noisy_lengths_make_a_survival_that_falls_within_0_and_1(lengths: list[float]) -> None:
    survival = survival_of_lengths(lengths)
    assert len(survival) == len(lengths)
    assert list(survival) == sorted(survival, reverse=True)
    assert all(0 <= share <= 1 for share in survival)


def test_noise_between_two_runs_is_shared_and_not_added() -> None:
    """GLM-5.2, thinking on: the last step gained more than the one before it."""
    lengths = (1.84, 2.5, 2.99, 3.33, 3.61, 3.78, 3.91, 4.06)
    survival = survival_of_lengths(lengths)
    assert survival[-2:] == pytest.approx((0.14, 0.14))
    assert emitted_length(survival) == pytest.approx(4.06)


def test_behind_a_position_nothing_survives_there_is_no_chance_to_name() -> None:
    assert conditional_of((0.5, 0.0, 0.0)) == (0.5, 0.0)
