from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.facts.model import Model, Origin
from spec_toolkit.planning.speed.depth import (
    affordable_costs,
    best_depth,
    marginal_costs,
    supported_steps,
    token_prices,
)
from spec_toolkit.terms import Method
from tests.planning.speed.measured import drafting, evidence, plain

SURVIVAL = (0.9, 0.72, 0.504, 0.3024)  # theory.md's 0.9, 0.8, 0.7, 0.6


@pytest.mark.parametrize(
    ("costs", "depth"),
    [
        pytest.param((0.1,) * 4, 4, id="cheap-positions-all-pay"),
        pytest.param((0.2,) * 4, 3, id="the-last-is-reached-too-seldom"),
        pytest.param((0.4,) * 4, 2, id="half-way"),
        pytest.param((0.9,) * 4, 0, id="a-round-as-dear-as-what-it-brings"),
        pytest.param((0.89,) * 4, 1, id="near-miss-just-below"),
        pytest.param((1.0, 0.1, 0.1, 0.1), 4, id="a-dear-first-pass-that-the-rest-makes-up-for"),
        pytest.param((0.1, 0.1), 2, id="no-deeper-than-costs-are-known"),
    ],
)
def test_the_best_depth_is_the_last_position_that_pays(costs: tuple[float, ...], depth: int) -> None:
    assert best_depth(SURVIVAL, costs) == depth


def test_a_position_pays_as_long_as_tokens_get_cheaper() -> None:
    prices = token_prices(SURVIVAL, (0.2,) * 4)
    assert prices[0] == 1
    assert prices[3] == pytest.approx(1.6 / 3.124)
    assert min(prices) == prices[best_depth(SURVIVAL, (0.2,) * 4)]


@given(st.lists(st.floats(0.05, 1), min_size=1, max_size=10), st.floats(0.01, 2))
def test_where_survival_falls_and_costs_are_steady_each_position_up_to_the_depth_pays_and_none_behind(
    chances: list[float], cost: float
) -> None:
    survival = sorted(chances, reverse=True)
    costs = (cost,) * len(survival)
    depth = best_depth(survival, costs)
    prices = token_prices(survival, costs)
    values = [share * price for share, price in zip(survival, prices, strict=False)]  # of a token without the position
    assert all(value >= cost * (1 - 1e-9) for value in values[:depth])
    assert all(value <= cost * (1 + 1e-9) for value in values[depth:])


@given(st.lists(st.floats(0.05, 1), min_size=1, max_size=10), st.integers(0, 10))
def test_a_checkpoint_caps_the_depth(chances: list[float], most: int) -> None:
    survival = tuple(accumulate(chances, min))
    assert best_depth(survival, (0.01,) * len(survival), most=most) <= most


@given(st.lists(st.floats(0.05, 1), min_size=1, max_size=8))
def test_a_position_pays_up_to_the_cost_it_can_afford(chances: list[float]) -> None:
    survival = sorted(chances, reverse=True)
    for position, cost in enumerate(affordable_costs(survival)):
        for below, pays in ((0.999, True), (1.001, False)):
            prices = token_prices(survival, (cost * below,) * len(survival))
            assert (prices[position + 1] < prices[position]) is pays


def test_costs_are_what_each_further_position_adds_in_plain_steps() -> None:
    """Steps of 10 ms; rounds of 13 ms with one draft and 17 ms with three."""
    rows = (plain(2, 200.0), drafting(2, 1, 2 * 1.8 / 0.013, 1.8), drafting(2, 3, 2 * 2.6 / 0.017, 2.6))
    assert marginal_costs(evidence(*rows), 2) == pytest.approx((0.3, 0.2, 0.2))
    assert marginal_costs(evidence(*rows), 4) == ()
    assert marginal_costs(evidence(*rows[1:]), 2) == ()


@pytest.mark.parametrize(
    ("method", "every_layer", "most"),
    [
        pytest.param(Method.MTP, False, None, id="one-layer-run-again-and-again"),
        pytest.param(Method.MTP, True, 2, id="a-layer-for-each-step"),
        pytest.param(Method.DSPARK, False, 5, id="the-block-the-head-was-made-for"),
    ],
)
def test_a_checkpoint_drafts_so_many(method: Method, every_layer: bool, most: int | None) -> None:
    model = Model(name="m", origin=Origin.FOLDER, says="a test", num_nextn_predict_layers=2, dspark_block_size=5)
    assert supported_steps(model, method, every_layer_a_step=every_layer) == most
