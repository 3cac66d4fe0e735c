import json
import math
from typing import Any

import msgspec
import pytest

from spec_toolkit.planning.limits import BreakEven, Limits
from spec_toolkit.terms import Mode
from tests.policy.traces import break_even, limits


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        pytest.param({"steps": (1, 3)}, "limits.steps", id="no-zero"),
        pytest.param({"steps": ()}, "limits.steps", id="no-candidates"),
        pytest.param({"steps": (0, 3, 1)}, "limits.steps", id="not-ascending"),
        pytest.param({"steps": (0, 3, 3)}, "limits.steps", id="twice"),
        pytest.param({"steps": (0,)}, "limits.steps", id="nothing-to-draft"),
        pytest.param({"modes": (Mode.FULL, Mode.ZERO_DRAFT)}, "limits.modes", id="no-floor"),
        pytest.param({"modes": (Mode.AUTOREGRESSIVE,) * 2}, "limits.modes", id="mode-twice"),
        pytest.param({"dwell_seconds": 0.0}, "limits.dwell_seconds", id="no-dwell"),
        pytest.param({"dwell_seconds": math.nan}, "limits.dwell_seconds", id="nan"),
        pytest.param({"back_off_maximum_seconds": math.inf}, "limits.back_off_maximum_seconds", id="endless"),
        pytest.param({"min_rounds": 0}, "limits.min_rounds", id="no-rounds"),
        pytest.param({"crash_count": 0}, "limits.crash_count", id="sticky-from-the-start"),
        pytest.param({"queue_low": -1}, "limits.queue_low", id="negative-queue"),
        pytest.param({"queue_low": 8, "queue_high": 8}, "limits.queue_low", id="no-band"),
        pytest.param({"stale_seconds": 30.0}, "limits.stale_seconds", id="no-hold"),
        pytest.param({"window_seconds": 61.0}, "limits.window_seconds", id="window-above-dwell"),
        pytest.param({"probe_seconds": 59.0}, "limits.dwell_seconds", id="probe-below-dwell"),
        pytest.param({"probe_share": 0.0}, "limits.probe_share", id="no-share"),
        pytest.param({"probe_share": 0.001}, "limits.back_off_maximum_seconds", id="share-beyond-the-maximum"),
        pytest.param({"back_off_factor": 0.5}, "limits.back_off_factor", id="shrinking-back-off"),
        pytest.param({"cool_down_seconds": 7201.0}, "limits.cool_down_seconds", id="first-wait-above-the-longest"),
        pytest.param(
            {"fault_memory_seconds": 7200.0}, "limits.back_off_maximum_seconds", id="fault-forgotten-too-soon"
        ),
        pytest.param({"profit_margin": -0.1}, "limits.profit_margin", id="negative-margin"),
        pytest.param({"break_even": break_even(2, {8: 1.7})}, "limits.break_even", id="steps-that-are-no-candidate"),
        pytest.param({"break_even": break_even(0, {8: 1.7})}, "limits.break_even", id="break-even-of-nothing"),
        pytest.param({"break_even": break_even(3, {8: 1.7, 1: 2.6})}, "limits.break_even", id="not-ascending-batches"),
        pytest.param({"break_even": break_even(3, {0: 1.7})}, "limits.break_even", id="batch-of-none"),
        pytest.param({"break_even": break_even(3, {8: math.nan})}, "limits.break_even", id="nan-length"),
    ],
)
def test_limits_that_cannot_hold_are_refused_by_name(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        limits(**changed)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"modes": (Mode.AUTOREGRESSIVE,), "steps": (0,)}, id="no-speculation"),
        pytest.param({"modes": (Mode.FULL, Mode.AUTOREGRESSIVE)}, id="no-fallback-inside-the-engine"),
        pytest.param({"steps": (0, 1)}, id="no-reduced-width"),
        pytest.param({"queue_low": 7}, id="narrow-band"),
        pytest.param({"window_seconds": 60.0}, id="window-of-a-dwell"),
        pytest.param({"probe_seconds": 60.0}, id="probe-of-a-dwell"),
        pytest.param({"probe_share": 1.0}, id="always-probing"),
        pytest.param({"back_off_factor": 1.0}, id="steady-back-off"),
        pytest.param({"break_even": break_even(3, {1: 2.6, 8: 1.7, 64: 2.8})}, id="not-monotonic"),
    ],
)
def test_near_misses_are_accepted(changed: dict[str, Any]) -> None:
    limits(**changed)


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="min_rounds") as refused:
        limits(min_rounds=0, crash_count=0, steps=(0, 0))
    assert str(refused.value).count("limits.") == 3


@pytest.mark.parametrize(
    ("steps", "batch", "expected"),
    [
        pytest.param(3, 8, 1.7, id="measured"),
        pytest.param(3, 4.5, 2.15, id="between-two-measured"),
        pytest.param(3, 64, 2.8, id="largest-measured"),
        pytest.param(3, 64.1, None, id="above-what-was-measured"),
        pytest.param(1, 1, None, id="below-what-was-measured"),
        pytest.param(1, 8, 1.3, id="other-steps"),
        pytest.param(2, 8, None, id="steps-without-points"),
    ],
)
def test_break_even_is_a_function_of_steps_and_batch(steps: int, batch: float, expected: float | None) -> None:
    chosen = limits(break_even=(*break_even(1, {8: 1.3}), *break_even(3, {1: 2.6, 8: 1.7, 64: 2.8})))
    assert chosen.break_even_at(steps, batch) == (None if expected is None else pytest.approx(expected))


def test_back_offs_double_up_to_their_maximum() -> None:
    chosen = limits(back_off_maximum_seconds=1000.0)
    assert [chosen.cool_down_after(faults) for faults in (1, 2, 3, 4, 5, 10_000)] == [100, 200, 400, 800, 1000, 1000]
    assert [chosen.cool_down_after_crashes(crashes) for crashes in (1, 2, 3)] == [300, 600, 1000]


def test_failing_probes_keep_within_their_share_of_the_time() -> None:
    chosen = limits(probe_seconds=100.0, probe_share=0.1)
    assert chosen.probe_seconds / chosen.wait_after_probes(1) <= chosen.probe_share
    assert chosen.wait_after_probes(2) == 2 * chosen.wait_after_probes(1)


def test_limits_travel_as_json() -> None:
    chosen = limits(break_even=break_even(3, {8: 1.7}))
    assert msgspec.json.decode(msgspec.json.encode(chosen), type=Limits) == chosen


def test_a_bad_file_is_refused_with_the_same_words() -> None:
    bad = {**msgspec.to_builtins(limits()), "min_rounds": 0}
    with pytest.raises(msgspec.ValidationError, match=r"limits\.min_rounds: is 0"):
        msgspec.json.decode(json.dumps(bad).encode(), type=Limits)


def test_a_key_that_is_not_known_is_refused() -> None:
    bad = {**msgspec.to_builtins(limits()), "dwell_second": 10}
    with pytest.raises(msgspec.ValidationError, match="dwell_second"):
        msgspec.json.decode(json.dumps(bad).encode(), type=Limits)


def test_a_point_is_one_measured_place() -> None:
    assert break_even(3, {8: 1.7}) == (BreakEven(steps=3, batch=8, emitted_length=1.7),)
