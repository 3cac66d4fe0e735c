import msgspec
import pytest

from spec_toolkit.policy.modes import Rung
from spec_toolkit.policy.state import State, first_state, hold, release
from spec_toolkit.terms import Mode, Signal
from tests.policy.traces import limits, state


def test_an_engine_starts_at_the_recipes_steps() -> None:
    first = first_state(limits(), 5.0, Mode.FULL)
    assert (first.mode, first.steps, first.since_s, first.cool_down_until_s) == (Mode.FULL, 3, 5.0, 0.0)


def test_a_start_that_fell_back_waits_as_after_a_crash() -> None:
    first = first_state(limits(), 5.0, Mode.AUTOREGRESSIVE)
    assert (first.mode, first.steps, first.cool_down_until_s) == (Mode.AUTOREGRESSIVE, 0, 305.0)


def test_near_miss_a_recipe_without_speculation_did_not_fall_back() -> None:
    plain = limits(modes=(Mode.AUTOREGRESSIVE,), steps=(0,))
    assert first_state(plain, 5.0, Mode.AUTOREGRESSIVE).cool_down_until_s == 0.0


def test_a_start_is_never_above_what_is_allowed() -> None:
    allowed = limits(modes=(Mode.ZERO_DRAFT, Mode.AUTOREGRESSIVE))
    assert first_state(allowed, 5.0, Mode.FULL).mode is Mode.ZERO_DRAFT


def test_a_person_may_hold_any_rung_at_once() -> None:
    held = hold(state(Mode.ZERO_DRAFT), Rung(Mode.FULL, 3), 30.0, limits())
    assert held.moved
    assert (held.state.held, held.state.mode, held.state.since_s) == (True, Mode.FULL, 30.0)
    assert held.signal is Signal.HELD
    assert held.why == "zero_draft -> full: held by a person"


def test_holding_where_it_stands_is_no_move() -> None:
    held = hold(state(), Rung(Mode.FULL, 3), 30.0, limits())
    assert not held.moved
    assert (held.state.held, held.state.since_s, held.why) == (True, 0.0, "full stays: held by a person")


@pytest.mark.parametrize("rung", [Rung(Mode.REDUCED, 2), Rung(Mode.FULL, 1)], ids=str)
def test_a_rung_the_engine_was_not_started_with_cannot_be_held(rung: Rung) -> None:
    with pytest.raises(ValueError, match=r"it has autoregressive, zero_draft, reduced\(1\), full"):
        hold(state(), rung, 30.0, limits())


def test_release_leaves_the_mode_to_the_signals() -> None:
    assert release(state(Mode.ZERO_DRAFT, held=True)) == state(Mode.ZERO_DRAFT)


def test_a_state_travels_as_json() -> None:
    known = state(crash_times_s=(1.5, 2.5), lengths=((3, 2.2),), signal=Signal.LOAD_HIGH)
    assert msgspec.json.decode(msgspec.json.encode(known), type=State) == known
