"""What holds for any engine, however it behaves, and any limits that can be made."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spec_toolkit.planning.limits import Limits
from spec_toolkit.policy.decide import decide
from spec_toolkit.policy.modes import FAULTS, Rung, ladder
from spec_toolkit.policy.state import Decision, State
from spec_toolkit.policy.telemetry import Emitted, Window
from spec_toolkit.terms import Mode, Signal
from tests.policy.traces import EVERY_MODE, Weather, break_even, decisions, limits, state

LOW_TO_HIGH = (Mode.AUTOREGRESSIVE, Mode.ZERO_DRAFT, Mode.REDUCED, Mode.FULL)
BREAK_EVEN = break_even(3, {1: 2.6, 8: 1.7, 64: 2.8})


@st.composite
def any_limits(draw: st.DrawFn) -> Limits:
    steps = draw(st.sampled_from([(0, 1), (0, 3), (0, 1, 3), (0, 1, 2, 3)]))
    modes = draw(st.sets(st.sampled_from(EVERY_MODE))) | {Mode.AUTOREGRESSIVE}
    return limits(
        steps=steps,
        modes=tuple(modes),
        dwell_seconds=draw(st.sampled_from([10.0, 15.0, 60.0])),
        break_even=BREAK_EVEN if 3 in steps and draw(st.booleans()) else (),
        crash_count=draw(st.integers(1, 3)),
        crash_cool_down_seconds=draw(st.sampled_from([1.0, 300.0])),
        cool_down_seconds=draw(st.sampled_from([1.0, 100.0])),
    )


def maybe(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | values


MOMENT = st.floats(-1e6, 1e6)
COUNT = st.integers(0, 1000)
WINDOW = st.builds(
    Window,
    from_s=MOMENT,
    until_s=MOMENT,
    rounds=maybe(COUNT),
    accepted_drafts=maybe(COUNT),
    emitted=maybe(st.builds(Emitted, length=st.floats(1, 4), rounds=COUNT, low=st.floats(1, 4), high=st.floats(1, 4))),
    draft_faults=maybe(COUNT),
    steps=maybe(st.integers(0, 3)),
    queue_least=maybe(COUNT),
    queue_most=maybe(COUNT),
    running=maybe(st.floats(0, 100)),
    engine_lost=maybe(st.booleans()),
)
STATE = st.builds(
    State,
    identity=st.sampled_from(["recipe-a 0.5.23", "another"]),
    mode=st.sampled_from(Mode),
    steps=st.integers(0, 3),
    since_s=MOMENT,
    signal=maybe(st.sampled_from(Signal)),
    held=st.booleans(),
    faults_seen=COUNT,
    faults=st.integers(0, 10**9),
    last_fault_s=maybe(MOMENT),
    crash_times_s=st.lists(MOMENT, max_size=5).map(tuple),
    sticky=st.booleans(),
    cool_down_until_s=MOMENT,
    climbed_s=maybe(MOMENT),
    failed_probes=st.integers(0, 10**9),
    probe_after_s=MOMENT,
    lengths=st.dictionaries(st.integers(1, 3), st.floats(1, 4)).map(lambda known: tuple(known.items())),
)
WEATHER = st.builds(
    Weather,
    queue=maybe(st.sampled_from([0, 1, 5, 50])),
    running=maybe(st.sampled_from([0, 1, 8, 64])),
    accepts=st.sampled_from([0.0, 0.5, 0.9]),
    faults=st.sampled_from([0, 0, 0, 0, 1]),
    answers=st.sampled_from([True, True, True, False]),
    restarts=st.sampled_from([False] * 9 + [True]),
    lost=st.sampled_from([False] * 9 + [True]),
)
SPELL = st.tuples(st.integers(1, 50), WEATHER)  # seconds of it
LIFE = st.lists(SPELL, min_size=1, max_size=6)


def lived(chosen: Limits, spells: list[tuple[int, Weather]]) -> list[tuple[int, Decision]]:
    days = [weather for seconds, weather in spells for _ in range(seconds)]
    return list(decisions(chosen, lambda second: days[second - 1], range(1, len(days) + 1)))


def heights(decision: Decision, chosen: Limits) -> tuple[int, int]:
    rungs = ladder(chosen)
    return rungs.index(decision.before), rungs.index(decision.state.rung)


@given(STATE, WINDOW, MOMENT, any_limits())
def test_any_state_and_any_window_give_an_allowed_rung_and_a_sentence(at, window, now_s, chosen) -> None:
    decision = decide(at, window, now_s, chosen)
    assert decision.state.rung in ladder(chosen)
    assert decision.why
    assert "\n" not in decision.why


@given(STATE, WINDOW, MOMENT, any_limits())
def test_the_same_inputs_give_the_same_answer(at, window, now_s, chosen) -> None:
    assert decide(at, window, now_s, chosen) == decide(at, window, now_s, chosen)


@given(STATE, WINDOW, MOMENT, any_limits())
def test_steps_are_a_candidate_and_fit_the_mode(at, window, now_s, chosen) -> None:
    after = decide(at, window, now_s, chosen).state
    assert after.steps in chosen.steps
    assert (after.mode is Mode.FULL) == (after.steps > 0 and after.steps == chosen.steps[-1])
    assert (after.mode in {Mode.ZERO_DRAFT, Mode.AUTOREGRESSIVE}) == (after.steps == 0)


@given(STATE, WINDOW, MOMENT, any_limits())
def test_what_is_carried_stays_small(at, window, now_s, chosen) -> None:
    after = decide(at, window, now_s, chosen).state
    assert len(after.crash_times_s) <= max(len(at.crash_times_s), chosen.crash_count)
    assert len(after.lengths) <= max(len(at.lengths), len(chosen.steps))


@given(STATE, WINDOW, MOMENT, any_limits())
def test_a_fault_leads_to_zero_draft_or_lower(at, window, now_s, chosen) -> None:
    faulty = replace(window, draft_faults=at.faults_seen + 1, engine_lost=None)
    decision = decide(replace(at, held=False), faulty, now_s, chosen)
    assert decision.state.steps == 0


@given(STATE, WINDOW, MOMENT, any_limits())
def test_a_lost_engine_is_followed_by_one_without_speculation(at, window, now_s, chosen) -> None:
    assert decide(at, replace(window, engine_lost=True), now_s, chosen).state.mode is Mode.AUTOREGRESSIVE


@given(STATE, MOMENT, st.booleans(), any_limits())
def test_nothing_known_moves_nothing(at, now_s, held, chosen) -> None:
    on_ladder = ladder(chosen)[-1]
    at = replace(at, mode=on_ladder.mode, steps=on_ladder.steps, held=held)
    for rung in ladder(chosen):
        here = replace(at, mode=rung.mode, steps=rung.steps)
        assert not decide(here, Window(from_s=now_s - 60, until_s=now_s), now_s, chosen).moved


@given(any_limits(), LIFE)
def test_no_decision_climbs_more_than_one_rung(chosen, spells) -> None:
    for _, decision in lived(chosen, spells):
        before, after = heights(decision, chosen)
        assert after - before <= 1


@given(any_limits(), LIFE)
def test_full_is_entered_from_the_rung_below_and_never_from_autoregressive(chosen, spells) -> None:
    for _, decision in lived(chosen, spells):
        if decision.moved and decision.state.mode is Mode.FULL:
            below = ladder(chosen)[-2]
            assert decision.before == below
            assert below.mode is not Mode.AUTOREGRESSIVE


@given(any_limits(), LIFE)
def test_no_slope_follows_a_move_within_the_dwell(chosen, spells) -> None:
    moved = [(second, d) for second, d in lived(chosen, spells) if d.moved]
    for (earlier, _), (later, decision) in pairwise(moved):
        assert decision.signal in FAULTS or later - earlier >= chosen.dwell_seconds


@given(any_limits(), LIFE)
def test_moves_are_bounded_by_the_dwell_and_the_faults(chosen, spells) -> None:
    trace = lived(chosen, spells)
    moved = sum(d.moved for _, d in trace)
    faults = sum(d.moved and d.signal in FAULTS for _, d in trace)
    assert moved <= len(trace) / chosen.dwell_seconds + faults


@given(any_limits(), LIFE)
def test_load_acceptance_and_blindness_never_restart_the_engine(chosen, spells) -> None:
    for _, decision in lived(chosen, spells):
        if decision.moved and decision.state.mode is Mode.AUTOREGRESSIVE:
            assert decision.signal in FAULTS


@given(any_limits(), LIFE)
def test_only_a_possible_profit_climbs(chosen, spells) -> None:
    for _, decision in lived(chosen, spells):
        before, after = heights(decision, chosen)
        assert after <= before or decision.signal is Signal.PROFIT_POSSIBLE


@given(any_limits())
def test_quiet_weather_brings_any_ladder_back_to_its_top(chosen) -> None:
    """From zero_draft, wherever drafting pays or nothing is known."""
    rungs = ladder(chosen)
    if Mode.ZERO_DRAFT not in chosen.modes:
        return
    start = state(Mode.ZERO_DRAFT, 0)
    trace = list(decisions(chosen, lambda _: Weather(accepts=0.9), range(1, 400), start))
    assert trace[-1][1].state.rung == rungs[-1]


def test_rungs_compare_as_the_ladder_stands() -> None:
    rungs = ladder(limits(steps=(0, 1, 2, 3)))
    assert [rung.mode for rung in rungs] == [*LOW_TO_HIGH[:2], Mode.REDUCED, *LOW_TO_HIGH[2:]]
    assert list(rungs) == sorted(rungs, key=lambda rung: rung.height)
    assert Rung(Mode.FULL, 3).height > Rung(Mode.REDUCED, 2).height
