from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.policy.telemetry import Telemetry, estimate, latest_window, window


def scrape(at_s: float, rounds: int | None = None, accepted: int | None = None, **more) -> Telemetry:
    return Telemetry(at_s=at_s, rounds=rounds, accepted_drafts=accepted, **{"steps": 3, **more})


def test_a_window_holds_what_happened_in_it() -> None:
    found = window(
        scrape(10, 1000, 1500, queue_depth=4, running=8, draft_faults=2),
        scrape(20, 1400, 2100, queue_depth=9, running=16, draft_faults=3),
    )
    assert (found.from_s, found.until_s, found.seconds) == (10, 20, 10)
    assert (found.rounds, found.accepted_drafts, found.steps) == (400, 600, 3)
    assert (found.queue_least, found.queue_most, found.running) == (4, 9, 12)
    assert found.draft_faults == 3
    assert found.emitted is not None
    assert found.emitted.length == 2.5
    assert found.emitted.rounds == 400


def test_a_scrape_in_between_shows_a_spike() -> None:
    found = window(scrape(0, queue_depth=9), scrape(5, queue_depth=0), scrape(10, queue_depth=9))
    assert (found.queue_least, found.queue_most) == (0, 9)


def test_what_was_not_said_stays_unsaid() -> None:
    found = window(Telemetry(at_s=0), Telemetry(at_s=10))
    assert found.rounds is found.accepted_drafts is found.emitted is found.steps is None
    assert found.queue_least is found.queue_most is found.running is found.draft_faults is found.engine_lost is None


@pytest.mark.parametrize("name", ["rounds", "accepted_drafts", "draft_faults"])
def test_a_counter_that_went_down_starts_a_new_window(name: str) -> None:
    before = {"rounds": 900, "accepted_drafts": 1200, "draft_faults": 2}
    after = {"rounds": 950, "accepted_drafts": 1300, "draft_faults": 2}
    scrapes = [
        Telemetry(at_s=0, **before),
        Telemetry(at_s=5, **{**after, name: 1}),
        Telemetry(at_s=10, **{**after, name: 1, "rounds": 1000}),
    ]
    assert window(*scrapes).from_s == 5


def test_near_miss_a_counter_that_stood_still_is_the_same_engine() -> None:
    found = window(scrape(0, 900, 1200), scrape(10, 900, 1200))
    assert (found.from_s, found.rounds, found.emitted) == (0, 0, None)


def test_a_restart_is_seen_across_a_gap_in_the_counter() -> None:
    found = window(scrape(0, 900, 1200), Telemetry(at_s=5), scrape(10, 5, 6))
    assert (found.from_s, found.rounds) == (10, 0)


@pytest.mark.parametrize(
    ("rounds", "accepted", "steps"),
    [
        pytest.param(0, 0, 3, id="no-rounds"),
        pytest.param(None, 10, 3, id="rounds-unknown"),
        pytest.param(10, None, 3, id="accepted-unknown"),
        pytest.param(10, 10, None, id="steps-unknown-or-changed"),
        pytest.param(10, 31, 3, id="more-accepted-than-drafted"),
        pytest.param(10, -1, 3, id="fewer-than-none"),
    ],
)
def test_counts_that_say_nothing_give_no_length(rounds, accepted, steps) -> None:
    assert estimate(rounds, accepted, steps) is None


def test_steps_that_changed_give_no_length() -> None:
    assert window(scrape(0, 0, 0, steps=3), scrape(10, 400, 400, steps=1)).emitted is None


def test_zero_drafts_emit_one_token_a_round_for_certain() -> None:
    found = estimate(400, 0, 0)
    assert found is not None
    assert (found.length, found.low, found.high) == (1.0, 1.0, 1.0)


def test_a_sample_without_variation_is_not_certain() -> None:
    found = estimate(200, 0, 3, histogram=(200,))
    assert found is not None
    assert found.length == 1.0 < found.high < 1.1


def test_a_histogram_narrows_the_interval() -> None:
    with_it, without = estimate(400, 400, 3, (100, 200, 100)), estimate(400, 400, 3)
    assert with_it is not None
    assert without is not None
    assert without.low < with_it.low < with_it.high < without.high


@pytest.mark.parametrize("histogram", [(0, 200, 100), (101, 200, 99)], ids=["other-rounds", "other-drafts"])
def test_near_miss_a_histogram_that_does_not_fit_the_counters_is_left_aside(histogram) -> None:
    assert estimate(400, 400, 3, histogram) == estimate(400, 400, 3)


def test_a_window_uses_the_difference_of_histograms_of_unequal_length() -> None:
    found = window(
        scrape(0, 10, 5, accepted_histogram=(5, 5)), scrape(10, 410, 405, accepted_histogram=(105, 205, 100))
    )
    assert found.emitted == estimate(400, 400, 3, (100, 200, 100))


@given(st.integers(1, 5000), st.integers(0, 7), st.data())
def test_bounds_enclose_the_length_and_stay_in_range(rounds: int, steps: int, data) -> None:
    found = estimate(rounds, data.draw(st.integers(0, rounds * steps)), steps)
    assert found is not None
    assert 1 <= found.low <= found.length <= found.high <= 1 + steps


def test_the_upper_bound_holds_about_as_often_as_it_says() -> None:
    """Chains with acceptance 0.6 at every position, 3 steps: 1 + 0.6 + 0.36 + 0.216."""
    random, held, windows = Random(1), 0, 1000  # noqa: S311 - seeded samples
    for _ in range(windows):
        accepted = [sum(accumulate((random.random() < 0.6 for _ in range(3)), min)) for _ in range(200)]
        histogram = tuple(accepted.count(number) for number in range(4))
        found = estimate(200, sum(accepted), 3, histogram)
        held += found is not None and found.high >= 2.176
    assert 0.93 <= held / windows <= 0.97


def every_second(until: int, a_second: int = 100) -> list[Telemetry]:
    return [scrape(float(s), a_second * s, a_second * s, queue_depth=s) for s in range(until + 1)]


def latest(scrapes, since_s: float = 0.0, **more):
    return latest_window(scrapes, **{"seconds": 10.0, "min_rounds": 200, "since_s": since_s, **more})


def test_the_latest_window_is_the_shortest_that_is_long_enough() -> None:
    found = latest(every_second(60))
    assert (found.from_s, found.until_s, found.rounds) == (50, 60, 1000)


def test_the_latest_window_never_begins_before_the_last_move() -> None:
    found = latest(every_second(60), since_s=55.5)
    assert (found.from_s, found.rounds) == (56, 400)


def test_a_window_that_began_before_the_last_move_is_not_stretched_to_it() -> None:
    found = latest(every_second(60), since_s=60.5)
    assert (found.from_s, found.until_s, found.rounds) == (60, 60, 0)


def test_few_rounds_are_counted_from_further_back_while_load_is_of_now() -> None:
    found = latest(every_second(60, a_second=5))
    assert (found.from_s, found.queue_least, found.rounds) == (50, 50, 200)
    assert found.emitted is not None
    assert found.emitted.rounds == 200


def test_rounds_from_further_back_stop_at_a_restart() -> None:
    scrapes = [*every_second(60, a_second=500), *(scrape(60.0 + s, s, s) for s in range(1, 21))]
    assert latest(scrapes).rounds == 19


def test_rounds_from_further_back_skip_scrapes_without_a_count() -> None:
    scrapes = every_second(60, a_second=5)
    scrapes[20] = Telemetry(at_s=20.0, steps=3)
    assert latest(scrapes).rounds == 205


def test_before_the_first_scrape_the_age_counts_from_the_last_move() -> None:
    found = latest([], since_s=7.0, engine_lost=True)
    assert (found.until_s, found.rounds, found.engine_lost) == (7.0, None, True)
