"""Planting faults: what a command may say, and which calls fail then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.plugin.injection import Injection, PlantedFaultError
from spec_toolkit.terms import FAULT_KEYS, FaultPoint


def command(point: object, rank: object = -1, after: object = 0, times: object = 1) -> dict[str, object]:
    return dict(zip(FAULT_KEYS, (point, rank, after, times), strict=True))


def fails(injection: Injection, calls: int, rank: int = 0, point: FaultPoint = FaultPoint.DRAFT_IN) -> list[bool]:
    return [injection.due(point, rank) for _ in range(calls)]


def test_it_fails_after_as_many_calls_as_often_as_said():
    injection = Injection()
    assert injection.take(command(FaultPoint.DRAFT_IN, after=2, times=2)) == ""
    assert fails(injection, 6) == [False, False, True, True, False, False]


def test_only_the_rank_it_is_for_fails_and_the_others_count_along():
    one, other = Injection(), Injection()
    for injection in (one, other):
        assert injection.take(command(FaultPoint.DRAFT_IN, rank=1)) == ""
    assert fails(one, 2, rank=0) == [False, False]
    assert fails(other, 2, rank=1) == [True, False]


def test_another_point_does_not_fail():
    injection = Injection()
    injection.take(command(FaultPoint.DRAFT_IN))
    injection.fail(FaultPoint.DRAFT_AFTER, 0)
    with pytest.raises(PlantedFaultError, match="planted at draft_in"):
        injection.fail(FaultPoint.DRAFT_IN, 0)


def test_no_times_removes_what_is_planted():
    injection = Injection()
    injection.take(command(FaultPoint.DRAFT_IN, times=9))
    assert injection.take(command(FaultPoint.DRAFT_AFTER, times=0)) == ""
    assert fails(injection, 3) == [False] * 3


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        pytest.param({"fault_point": 1}, "exactly the keys", id="half-a-command"),
        pytest.param({**command(1), "epoch": 3}, "exactly the keys", id="mixed-with-the-knobs"),
        pytest.param(command(1.5), "whole number", id="half-a-point"),
        pytest.param(command(True), "whole number", id="a-boolean"),
        pytest.param(command(99), "no fault point 99", id="unknown-point"),
        pytest.param(command(1, rank=-2), "below its least", id="no-such-rank"),
        pytest.param(command(1, after=-1), "below its least", id="before-now"),
        pytest.param(command(1, times=-1), "below its least", id="times-below-zero"),
    ],
)
def test_a_bad_command_plants_nothing(sent, why):
    injection = Injection()
    assert why in injection.take(sent)
    assert not any(injection.due(point, rank) for point in FaultPoint for rank in (0, 1))


def test_there_is_a_most_that_can_be_planted():
    injection = Injection()
    answers = [injection.take(command(FaultPoint.DRAFT_IN)) for _ in range(80)]
    assert answers.count("") == 64
    assert injection.take(command(FaultPoint.DRAFT_IN, times=0)) == ""


anything = st.integers() | st.floats() | st.booleans() | st.none() | st.text(max_size=2)


@given(
    st.dictionaries(st.sampled_from(FAULT_KEYS), anything) | st.fixed_dictionaries(dict.fromkeys(FAULT_KEYS, anything))
)
def test_nothing_that_is_sent_raises(sent):
    assert isinstance(Injection().take(sent), str)
