"""Field cases whose room is the sidecar, from the data in tests/cases."""

from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.policy.traces import Weather, break_even, limits, moves

CASES = Path(__file__).resolve().parents[1] / "cases"


CASE = yaml.load((CASES / "C092.yaml").read_text("utf-8"), yaml.CSafeLoader)["later"]


def moves_on_the_trace(seconds_each: int) -> tuple[list[tuple[int, str, str]], float]:
    """The case's steps pay up to its threshold and lose above it; every batch of its trace lasts so long. With the dwell time."""
    small, large = (entry["max_bs"] for entry in CASE["policy"]["thresholds"])
    steps = CASE["policy"]["thresholds"][0]["k"]
    chosen = limits(steps=(0, steps), break_even=break_even(steps, {1: 1.5, small: 1.5, small + 1: 3.0, large: 3.0}))
    trace = CASE["trace_batch"]

    def say(second: int) -> Weather:
        return Weather(running=trace[min(second // seconds_each, len(trace) - 1)])

    return moves(chosen, say, until=seconds_each * len(trace)), chosen.dwell_seconds


# C092
@pytest.mark.parametrize("seconds_each", [1, 5, 12], ids=str)
def test_a_batch_that_swings_about_the_threshold_moves_the_mode_at_most_once(seconds_each: int) -> None:
    found, _ = moves_on_the_trace(seconds_each)
    assert len(found) <= 1


# C092
@pytest.mark.parametrize("seconds_each", [20, 45, 90], ids=str)
def test_slower_swings_are_followed_no_more_often_than_the_dwell_time(seconds_each: int) -> None:
    found, dwell_seconds = moves_on_the_trace(seconds_each)
    seconds = [second for second, _, _ in found]
    assert found
    assert all(later - earlier >= dwell_seconds for earlier, later in pairwise(seconds))
