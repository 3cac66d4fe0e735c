"""Seconds and telemetry in, moves out; every second passes through the same windows the sidecar makes."""

from itertools import pairwise

import pytest

from spec_toolkit.policy.decide import decide
from spec_toolkit.policy.modes import Rung
from spec_toolkit.policy.state import first_state, hold, release
from spec_toolkit.terms import Mode
from tests.policy.traces import Weather, break_even, decisions, during, limits, moves, seen

DENSE = (*break_even(1, {1: 1.2, 64: 1.3}), *break_even(3, {1: 1.5, 64: 1.8}))
# A mixture of experts: a wide verify loads more experts at batch 1, shares them at 8, and meets a busy target at 64.
EXPERTS = (*break_even(1, {1: 1.8, 8: 1.3, 64: 1.9}), *break_even(3, {1: 2.6, 8: 1.7, 64: 2.8}))


def test_overload_lowers_by_one_rung_and_recovery_climbs_by_one() -> None:
    overload = during((100, 400, Weather(queue=50)))
    assert moves(limits(), overload, until=1200) == [
        (110, "load_high", "reduced(1)"),
        (170, "load_high", "zero_draft"),
        (410, "profit_possible", "reduced(1)"),
        (470, "profit_possible", "full"),
    ]


def test_every_reduced_width_is_a_rung() -> None:
    overload = during((100, 500, Weather(queue=50)))
    rungs = [rung for _, _, rung in moves(limits(steps=(0, 1, 2, 5)), overload, until=1000)]
    assert rungs == ["reduced(2)", "reduced(1)", "zero_draft", "reduced(1)", "reduced(2)", "full"]


def test_a_spike_shorter_than_the_window_moves_nothing() -> None:
    assert moves(limits(), during((100, 110, Weather(queue=50))), until=400) == []


def test_a_queue_inside_the_band_neither_lowers_nor_lets_climb() -> None:
    band = during((100, 300, Weather(queue=50)), (300, 9999, Weather(queue=5)))
    assert moves(limits(), band, until=2000)[-1] == (170, "load_high", "zero_draft")


def test_load_that_comes_back_after_every_climb_is_met_less_and_less_often() -> None:
    """A queue that forms whenever drafts are made, and only then."""
    chosen, current, found = limits(), first_state(limits(), 0.0, Mode.FULL), []
    for second in range(1, 8000):
        queue = 50 if current.steps else 0
        window = seen(float(second), queue_least=queue, queue_most=queue, steps=current.steps)
        decision = decide(current, window, float(second), chosen)
        current = decision.state
        if decision.moved and current.mode is Mode.REDUCED and decision.before.mode is Mode.ZERO_DRAFT:
            found.append(second)
    gaps = [later - earlier for earlier, later in pairwise(found)]
    assert gaps[0] >= 1000
    assert gaps == sorted(gaps)
    assert gaps[1] >= 2 * 1000


def test_acceptance_that_collapses_at_batch_8_ends_at_zero_draft_and_is_probed_rarely() -> None:
    collapse = during((100, 99_999, Weather(accepts=0.05)))
    found = moves(limits(break_even=DENSE), collapse, until=8700)
    assert [(signal, rung) for _, signal, rung in found[:2]] == [
        ("acceptance_low", "reduced(1)"),
        ("acceptance_low", "zero_draft"),
    ]
    probes = [second for second, signal, _ in found if signal == "profit_possible"]
    assert [round(later - earlier, -2) for earlier, later in pairwise(probes)] == [
        1100,
        2100,
        4100,
    ]
    drafting = sum(
        d.state.steps > 0 for s, d in decisions(limits(break_even=DENSE), collapse, range(1, 9000)) if s > 200
    )
    assert drafting / 8800 < limits().probe_share


def test_acceptance_that_comes_back_is_found_by_a_probe() -> None:
    collapse = during((100, 1000, Weather(accepts=0.05)))
    found = moves(limits(break_even=DENSE), collapse, until=3000)
    assert found[-2:] == [(1167, "profit_possible", "reduced(1)"), (1227, "profit_possible", "full")]


def test_experts_are_unprofitable_at_batch_1_profitable_at_8_and_unprofitable_at_64() -> None:
    load = during(
        (0, 600, Weather(running=1, accepts=0.6)),
        (600, 1200, Weather(running=8, accepts=0.6)),
        (1200, 1800, Weather(running=64, accepts=0.6)),
    )
    found = moves(limits(break_even=EXPERTS), load, until=1800)
    assert [(signal, rung) for _, signal, rung in found] == [
        ("acceptance_low", "reduced(1)"),
        ("acceptance_low", "zero_draft"),
        ("profit_possible", "reduced(1)"),
        ("profit_possible", "full"),
        ("acceptance_low", "reduced(1)"),
        ("acceptance_low", "zero_draft"),
    ]
    assert [600 < second < 1200 for second, signal, _ in found] == [False, False, True, True, False, False]


def test_load_that_makes_experts_profitable_leads_up_while_requests_queue() -> None:
    load = during((0, 300, Weather(running=1, accepts=0.6)), otherwise=Weather(running=8, accepts=0.6, queue=50))
    found = moves(limits(break_even=EXPERTS), load, until=600)
    assert [(second < 300, rung) for second, _, rung in found] == [
        (True, "reduced(1)"),
        (True, "zero_draft"),
        (False, "reduced(1)"),
        (False, "full"),
    ]


def test_a_queue_where_speculation_pays_keeps_it() -> None:
    overload = during((100, 900, Weather(queue=50, running=8, accepts=0.6)))
    assert moves(limits(break_even=EXPERTS), overload, until=900) == []


def test_a_drafter_that_fails_again_is_tried_after_ever_longer_cool_downs() -> None:
    found = moves(limits(), lambda _: Weather(faults=1), until=4000)
    assert found[0] == (1, "draft_fault", "zero_draft")
    tried = [second for second, signal, _ in found if signal == "profit_possible"]
    failed = [second for second, signal, _ in found if signal == "draft_fault"]
    assert [again - fault for fault, again in zip(failed, tried, strict=False)] == [100, 200, 400, 800, 1600]
    assert {rung for _, signal, rung in found if signal == "profit_possible"} == {"reduced(1)"}


def test_a_single_fault_is_recovered_from_one_rung_at_a_time() -> None:
    assert moves(limits(), during((100, 101, Weather(faults=1))), until=900) == [
        (100, "draft_fault", "zero_draft"),
        (200, "profit_possible", "reduced(1)"),
        (260, "profit_possible", "full"),
    ]


@pytest.mark.parametrize(
    ("silent_s", "expected"),
    [
        pytest.param(30, [], id="held"),
        pytest.param(
            100,
            [
                (130, "telemetry_stale", "zero_draft"),
                (210, "profit_possible", "reduced(1)"),
                (270, "profit_possible", "full"),
            ],
            id="given-up-and-back",
        ),
    ],
)
def test_silence_is_first_held_then_answered_with_zero_draft(silent_s, expected) -> None:
    assert moves(limits(), during((100, 100 + silent_s, Weather(answers=False))), until=900) == expected


def test_a_lost_engine_comes_back_autoregressive_and_climbs_by_one() -> None:
    assert moves(limits(), during((100, 101, Weather(lost=True))), until=900) == [
        (100, "engine_lost", "autoregressive"),
        (400, "profit_possible", "zero_draft"),
        (460, "profit_possible", "reduced(1)"),
        (520, "profit_possible", "full"),
    ]


def test_the_third_crash_in_a_day_is_the_last() -> None:
    found = moves(limits(), lambda second: Weather(lost=second % 1000 == 100), until=8000)
    lost = [second for second, signal, _ in found if signal == "engine_lost"]
    assert lost == [100, 1100, 2100]
    assert found[-1] == (2100, "engine_lost", "autoregressive")


def test_near_miss_three_crashes_in_more_than_a_day_are_not() -> None:
    chosen = limits(crash_period_seconds=1900.0)
    found = moves(chosen, lambda second: Weather(lost=second % 1000 == 100), until=4000)
    assert [second for second, signal, _ in found if signal == "engine_lost"] == [100, 1100, 2100, 3100]


def test_a_restart_behind_our_back_starts_a_new_window_and_moves_nothing() -> None:
    chosen = limits(break_even=DENSE)
    trace = dict(decisions(chosen, during((100, 101, Weather(restarts=True))), range(1, 200)))
    assert not [decision for decision in trace.values() if decision.moved]
    assert trace[105].why == "full stays: window 5.0 of 10 s"
    assert trace[99].why == trace[110].why == "full stays: emitted length 2.53 over 1600 rounds is not below break-even"


def test_a_person_holds_through_overload_and_faults_and_lets_go() -> None:
    chosen = limits()
    storm = during((0, 500, Weather(queue=50, faults=1)), otherwise=Weather(queue=50))
    held = hold(first_state(chosen, 0.0, Mode.FULL), Rung(Mode.FULL, 3), 0.0, chosen).state
    trace = list(decisions(chosen, storm, range(1, 500), held))
    assert not [decision for _, decision in trace if decision.moved]
    assert {decision.signal.value for _, decision in trace if decision.signal} == {"draft_fault"}
    let_go = moves(chosen, during(otherwise=Weather(queue=50)), until=700, start=release(trace[-1][1].state))
    assert let_go[0][1:] == ("load_high", "reduced(1)")
