from typing import Any

import pytest
from hypothesis import given

from spec_toolkit.planning.rules.shape import derive_shape
from spec_toolkit.planning.runtime import derive_limits, derive_steps
from spec_toolkit.recipe.schema import Policy
from spec_toolkit.terms import Mode
from tests.recipe.test_round_trip import recipes

_LORA = {"flag": "--enable-lora", "why": "x"}
_PATHS = {"flag": "--lora-paths", "value": "a=org/a", "why": "x"}


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        pytest.param({}, (0, 1, 3), id="half-of-three"),
        pytest.param({"draft__num_steps": 5}, (0, 2, 5), id="half-of-five"),
        pytest.param({"draft__num_steps": 1}, (0, 1), id="one-step-has-nothing-between"),
        pytest.param({"policy__reduced_steps": [2, 1]}, (0, 1, 2, 3), id="written"),
        pytest.param({"policy__allow": ["full", "autoregressive"]}, (0, 3), id="nothing-between-allowed"),
        pytest.param({"draft__topk": 4, "draft__num_draft_tokens": 8}, (), id="a-tree-has-one-depth"),
        pytest.param({"engine__extra_args": [_LORA]}, (), id="beside-adapters-one-depth"),
        pytest.param({"engine__extra_args": [_PATHS]}, (), id="adapters-by-their-paths"),
        pytest.param({"engine__extra_args": [{"flag": "--enable-two-batch-overlap", "why": "x"}]}, (), id="halves"),
        pytest.param(
            {"engine__extra_args": [{"flag": "--log-requests", "why": "x"}]}, (0, 1, 3), id="near-miss-another-flag"
        ),
    ],
)
def test_the_engine_prepares_none_the_reduced_ones_and_all(change: Any, changes: dict[str, Any], steps: object) -> None:
    recipe = change(**changes)
    assert derive_steps(recipe, derive_shape(recipe.draft)) == steps


def test_what_the_recipe_chooses_reaches_the_policy(change: Any) -> None:
    recipe = change(policy__dwell_seconds=20, policy__queue_high=3, policy__crash_cool_down_seconds=77)
    limits = derive_limits(recipe, (0, 1, 3), sha256="sha256:x")
    assert (limits.dwell_seconds, limits.queue_high, limits.crash_cool_down_seconds) == (20, 3, 77)
    assert limits.modes == (Mode.FULL, Mode.REDUCED, Mode.ZERO_DRAFT, Mode.AUTOREGRESSIVE)


def test_an_engine_of_one_depth_has_no_rung_it_cannot_take(change: Any) -> None:
    assert derive_limits(change(), (), sha256="x").modes == (Mode.AUTOREGRESSIVE,)


@given(recipe=recipes)
def test_no_recipe_makes_limits_that_contradict_themselves(recipe: Any) -> None:
    drawn = derive_shape(recipe.draft)
    if drawn is not None:
        limits = derive_limits(recipe, derive_steps(recipe, drawn), sha256="x")
        assert limits.window_seconds <= limits.dwell_seconds


def test_the_defaults_come_back_by_themselves() -> None:
    assert set(Policy().allow) == set(Mode)
