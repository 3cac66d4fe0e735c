"""How many may come, and when again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.gateway.admission import Admission
from spec_toolkit.gateway.refusal import Refused


def full(*, completed_at: list[float], running: int = 4, waiting: int = 6) -> Admission:
    admission = Admission(running_cap=running, waiting_cap=waiting, now=0.0)
    for at in completed_at:
        admission.enter(at)
        admission.leave(at, completed=True)
    for _ in range(running + waiting):
        admission.enter(100.0)
    return admission


@pytest.mark.parametrize(
    ("completed_at", "seconds"),
    [
        pytest.param([99.0] * 60, 6, id="six-wait-one-a-second"),
        pytest.param([99.0] * 120, 3, id="six-wait-two-a-second"),
        pytest.param([99.0] * 6000, 1, id="never-below-one"),
        pytest.param([99.0], 60, id="never-above-sixty"),
        pytest.param([], 60, id="none-was-seen-in-a-minute"),
        pytest.param([10.0] * 600, 60, id="what-was-long-ago-does-not-count"),
        pytest.param([50.0 + n / 200 for n in range(10_000)], 1, id="however-many-there-were"),
    ],
)
def test_retry_after_is_the_time_in_which_those_that_wait_have_begun(completed_at, seconds):
    with pytest.raises(Refused) as refused:
        full(completed_at=completed_at).enter(100.0)
    assert refused.value.retry_after == seconds
    assert refused.value.status == 429


def test_without_a_completion_one_comes_again_after_as_long_as_none_was_seen():
    admission = Admission(running_cap=1, waiting_cap=0, now=50.0)
    admission.enter(50.0)
    assert admission.retry_after(57.0) == 7
    assert admission.rate(57.0) is None


def test_the_rate_is_measured_whatever_it_is():
    admission = Admission(running_cap=1, waiting_cap=0, now=0.0)
    for n in range(60_000):
        admission.enter(n / 1000)
        admission.leave(n / 1000, completed=True)
    assert admission.rate(60.0) == pytest.approx(1000, rel=0.05)


def test_another_engine_is_not_held_to_the_rate_of_the_one_before():
    admission = full(completed_at=[99.0] * 6000)
    admission.start_anew(100.0)
    assert admission.rate(100.5) is None
    assert admission.retry_after(110.0) == 10
    admission.leave(110.0, completed=True)
    admission.enter(110.0)
    assert admission.rate(110.0) == pytest.approx(0.1)
    assert admission.retry_after(110.0) == 60


@given(
    running=st.integers(1, 5),
    waiting=st.integers(0, 5),
    moves=st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0, 5)), max_size=60),
)
def test_there_are_never_more_in_flight_than_the_caps_and_never_fewer_than_none(running, waiting, moves):
    admission, now, inside = Admission(running_cap=running, waiting_cap=waiting, now=0.0), 0.0, 0
    for comes, completed, later in moves:
        now += later
        if comes and inside == running + waiting:
            with pytest.raises(Refused) as refused:
                admission.enter(now)
            assert 1 <= (refused.value.retry_after or 0) <= 60
        elif comes:
            admission.enter(now)
            inside += 1
        elif inside:
            admission.leave(now, completed=completed)
            inside -= 1
        assert admission.in_flight == inside <= running + waiting
