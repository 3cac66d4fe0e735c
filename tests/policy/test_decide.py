import pytest
from msgspec.structs import replace

from spec_toolkit.policy.decide import decide
from spec_toolkit.terms import Mode, Signal
from tests.policy.traces import break_even, limits, seen, state

NOW = 1000.0
KNOWN = limits(break_even=break_even(3, {8: 1.7}))
BUSY = seen(queue_least=9, queue_most=9)
FAULTY = seen(draft_faults=1)


def test_a_decision_says_in_one_sentence_what_moved_and_why() -> None:
    decided = decide(state(), seen(length=1.31, rounds=214), NOW, KNOWN)
    assert decided.why == (
        "full -> reduced(1): acceptance_low: emitted length 1.31 over 214 rounds (95 % below 1.36), "
        "break-even 1.70 at batch 8"
    )
    assert decided.moved
    assert (decided.state.mode, decided.state.steps, decided.state.since_s) == (Mode.REDUCED, 1, NOW)


@pytest.mark.parametrize(
    ("window", "since_s", "moved"),
    [
        pytest.param(BUSY, NOW - 60, True, id="slope-after-the-dwell"),
        pytest.param(BUSY, NOW - 59, False, id="near-miss-slope-inside-the-dwell"),
        pytest.param(FAULTY, NOW - 1, True, id="fault-skips-the-dwell"),
        pytest.param(seen(engine_lost=True), NOW - 1, True, id="loss-skips-the-dwell"),
        pytest.param(seen(NOW - 31), NOW - 59, False, id="near-miss-blind-inside-the-dwell"),
        pytest.param(seen(NOW - 31), NOW - 60, True, id="blind-after-the-dwell"),
        pytest.param(seen(NOW - 30), NOW - 500, False, id="near-miss-stale-is-held"),
    ],
)
def test_only_facts_skip_the_dwell(window, since_s, moved) -> None:
    assert decide(state(since_s=since_s), window, NOW, KNOWN).moved is moved


def test_a_move_that_comes_too_soon_says_how_long_it_waits() -> None:
    decided = decide(state(since_s=NOW - 12), BUSY, NOW, KNOWN)
    assert decided.why == "full stays: load_high: queue depth at least 9 over 10 s, limit 8; too soon, 12 of 60 s"
    assert decided.signal is Signal.LOAD_HIGH


@pytest.mark.parametrize(
    "window", [BUSY, FAULTY, seen(NOW - 31), seen(length=1.1)], ids=["load", "fault", "stale", "acceptance"]
)
def test_what_a_person_holds_is_logged_and_not_followed(window) -> None:
    decided = decide(state(held=True), window, NOW, KNOWN)
    assert not decided.moved
    assert decided.signal is not None
    assert decided.why.endswith("held by a person, not followed")


def test_a_lost_engine_is_a_fact_even_where_the_mode_is_held() -> None:
    decided = decide(state(held=True), seen(engine_lost=True), NOW, KNOWN)
    assert decided.moved
    assert (decided.state.mode, decided.state.held) == (Mode.AUTOREGRESSIVE, True)


def test_a_hold_is_not_left_upward() -> None:
    assert not decide(state(Mode.ZERO_DRAFT, held=True), seen(), NOW, KNOWN).moved


def test_a_fault_is_answered_once() -> None:
    first = decide(state(), FAULTY, NOW, KNOWN)
    assert (first.state.mode, first.state.faults, first.state.cool_down_until_s) == (Mode.ZERO_DRAFT, 1, NOW + 100)
    again = decide(first.state, replace(FAULTY, until_s=NOW + 1), NOW + 1, KNOWN)
    assert (again.signal, again.state.faults, again.state.cool_down_until_s) == (None, 1, NOW + 100)


def test_the_tail_of_a_burst_of_faults_prolongs_the_cool_down_and_does_not_double_it() -> None:
    first = decide(state(), FAULTY, NOW, KNOWN)
    tail = decide(first.state, seen(NOW + 3, draft_faults=4), NOW + 3, KNOWN)
    assert not tail.moved
    assert (tail.state.faults, tail.state.cool_down_until_s) == (1, NOW + 103)


@pytest.mark.parametrize(
    ("ago_s", "faults", "cool_down"),
    [
        pytest.param(100_000.0, 1, 100, id="long-ago-is-forgotten"),
        pytest.param(86_400.0, 4, 800, id="near-miss-as-long-as-it-is-remembered"),
    ],
)
def test_a_fault_counts_while_it_is_remembered(ago_s, faults, cool_down) -> None:
    now_s = 200_000.0
    before = state(faults=3, last_fault_s=now_s - ago_s)
    after = decide(before, seen(now_s, draft_faults=1), now_s, KNOWN).state
    assert (after.faults, after.cool_down_until_s) == (faults, now_s + cool_down)


def test_a_shorter_cool_down_never_ends_a_longer_one() -> None:
    after = decide(state(cool_down_until_s=NOW + 5000), FAULTY, NOW, KNOWN).state
    assert after.cool_down_until_s == NOW + 5000


def test_faults_of_a_new_engine_are_counted_from_zero() -> None:
    lost = decide(state(faults_seen=3), seen(engine_lost=True, draft_faults=3), NOW, KNOWN).state
    old_scrape = decide(lost, seen(NOW + 1, draft_faults=3), NOW + 1, KNOWN).state
    back = replace(old_scrape, mode=Mode.ZERO_DRAFT)
    assert decide(back, seen(NOW + 900, draft_faults=3), NOW + 900, KNOWN).signal is Signal.DRAFT_FAULT


@pytest.mark.parametrize(
    ("crashes", "sticky", "kept"),
    [
        pytest.param((), False, 1, id="first"),
        pytest.param((NOW - 900,), False, 2, id="second"),
        pytest.param((NOW - 900, NOW - 800), True, 3, id="third-within-a-day"),
        pytest.param((NOW - 86_401, NOW - 800), False, 2, id="near-miss-one-is-older-than-a-day"),
        pytest.param((1.0, 2.0, 3.0, 4.0, 5.0), True, 3, id="never-more-than-are-counted"),
    ],
)
def test_crashes_within_a_day_make_autoregressive_sticky(crashes, sticky, kept) -> None:
    after = decide(state(crash_times_s=crashes), seen(engine_lost=True), NOW, KNOWN).state
    assert (after.sticky, len(after.crash_times_s), after.crash_times_s[-1]) == (sticky, kept, NOW)


def test_near_miss_a_plain_engine_that_dies_is_no_crash_of_speculation() -> None:
    decided = decide(state(Mode.AUTOREGRESSIVE), seen(engine_lost=True), NOW, KNOWN)
    assert (decided.moved, decided.state.crash_times_s) == (False, ())


def test_sticky_outlasts_the_day_and_ends_with_another_recipe_or_version() -> None:
    stuck = state(Mode.AUTOREGRESSIVE, sticky=True, crash_times_s=(1.0, 2.0, 3.0))
    later_s = 10 * 86_400.0
    assert not decide(stuck, seen(later_s), later_s, KNOWN).moved
    decided = decide(stuck, seen(later_s), later_s, limits(identity="recipe-a 0.5.24"))
    assert decided.state.mode is Mode.ZERO_DRAFT
    assert (decided.state.sticky, decided.state.crash_times_s) == (False, ())


@pytest.mark.parametrize(
    ("climbed_s", "failed", "expected", "waits_s"),
    [
        pytest.param(NOW - 99, 0, 1, 1000, id="a-climb-undone-is-a-failed-probe"),
        pytest.param(NOW - 99, 1, 2, 2000, id="and-the-next-one-waits-longer"),
        pytest.param(NOW - 100, 3, 0, 1000, id="near-miss-it-had-lasted"),
        pytest.param(None, 2, 2, 2000, id="near-miss-it-was-no-climb"),
    ],
)
def test_a_failed_probe_lengthens_the_next(climbed_s, failed, expected, waits_s) -> None:
    before = state(climbed_s=climbed_s, failed_probes=failed, since_s=climbed_s or 0.0)
    after = decide(before, seen(length=1.31), NOW, KNOWN).state
    assert (after.failed_probes, after.probe_after_s) == (expected, NOW + waits_s)


@pytest.mark.parametrize(("climbed_s", "waits_s"), [(None, 0), (NOW - 99, 1000)], ids=["no-probe", "failed-probe"])
def test_load_alone_is_waited_out_only_where_it_undid_a_climb(climbed_s, waits_s) -> None:
    after = decide(state(climbed_s=climbed_s), BUSY, NOW, KNOWN).state
    assert max(0.0, after.probe_after_s - NOW) == waits_s


def test_a_climb_that_lasted_clears_the_count() -> None:
    before = state(Mode.REDUCED, climbed_s=NOW - 100, failed_probes=3)
    assert decide(before, seen(), NOW, KNOWN).state.failed_probes == 0
    too_young = replace(before, climbed_s=NOW - 99)
    assert decide(too_young, seen(), NOW, KNOWN).state.failed_probes == 3


def test_near_miss_without_drafts_nothing_is_on_trial_and_nothing_passes() -> None:
    back = decide(state(Mode.AUTOREGRESSIVE, failed_probes=3), seen(steps=None), NOW, KNOWN).state
    assert (back.mode, back.climbed_s) == (Mode.ZERO_DRAFT, None)
    assert decide(back, seen(NOW + 500), NOW + 500, KNOWN).state.failed_probes == 3


def test_a_length_is_remembered_for_its_steps() -> None:
    after = decide(state(lengths=((1, 1.5), (3, 9.0))), seen(length=2.2), NOW, KNOWN).state
    assert sorted(after.lengths) == [(1, 1.5), (3, 2.2)]


@pytest.mark.parametrize(
    "window",
    [
        pytest.param(seen(length=2.2, rounds=199), id="too-few-rounds"),
        pytest.param(seen(length=2.2, steps=1), id="other-steps"),
        pytest.param(seen(length=2.2, from_s=-1.0), id="from-before-the-last-move"),
    ],
)
def test_near_miss_what_was_not_measured_is_not_remembered(window) -> None:
    assert decide(state(), window, NOW, KNOWN).state.lengths == ()


@pytest.mark.parametrize(
    ("at", "modes", "expected"),
    [
        pytest.param(state(), (Mode.ZERO_DRAFT, Mode.AUTOREGRESSIVE), "zero_draft", id="mode"),
        pytest.param(state(Mode.REDUCED, 2), (*Mode,), "reduced(1)", id="width"),
        pytest.param(state(held=True), (Mode.AUTOREGRESSIVE,), "autoregressive", id="even-if-held"),
    ],
)
def test_a_rung_that_new_limits_do_not_allow_is_left_at_once(at, modes, expected) -> None:
    decided = decide(replace(at, since_s=NOW - 1), seen(), NOW, limits(modes=modes))
    assert str(decided.state.rung) == expected
    assert decided.signal is None
    assert "limits: that rung is not, or no longer, allowed" in decided.why


def test_near_miss_a_slope_does_not_keep_a_rung_that_is_gone_for_its_dwell() -> None:
    assert decide(state(Mode.REDUCED, 2, since_s=NOW - 20), BUSY, NOW, limits()).state.steps == 1


def test_a_fault_on_a_rung_that_is_gone_is_still_a_fault() -> None:
    after = decide(state(Mode.REDUCED, 2), FAULTY, NOW, limits()).state
    assert (after.mode, after.faults) == (Mode.ZERO_DRAFT, 1)
