from itertools import product

import pytest

from spec_toolkit.policy.modes import FAULTS, NEXT, SLOPES, Rung, above, destination, highest_at_most, ladder
from spec_toolkit.terms import KnobMode, Mode, Signal
from tests.policy.traces import limits

FULL, REDUCED, ZERO_DRAFT, AUTOREGRESSIVE = Mode.FULL, Mode.REDUCED, Mode.ZERO_DRAFT, Mode.AUTOREGRESSIVE
WITHOUT_ZERO_DRAFT = (FULL, REDUCED, AUTOREGRESSIVE)

# Every pair, said again by hand: what stands here and in the table was meant twice. "" stays.
LOOK_UP = {
    #                        full          reduced       zero_draft    autoregressive
    Signal.ENGINE_LOST: (AUTOREGRESSIVE, AUTOREGRESSIVE, AUTOREGRESSIVE, None),
    Signal.DRAFT_FAULT: (ZERO_DRAFT, ZERO_DRAFT, None, None),
    Signal.TELEMETRY_STALE: (ZERO_DRAFT, ZERO_DRAFT, None, None),
    Signal.LOAD_HIGH: (REDUCED, ZERO_DRAFT, None, None),
    Signal.ACCEPTANCE_LOW: (REDUCED, ZERO_DRAFT, None, None),
    Signal.PROFIT_POSSIBLE: (None, FULL, REDUCED, ZERO_DRAFT),
}
DOWNWARD = (FULL, REDUCED, ZERO_DRAFT, AUTOREGRESSIVE)


@pytest.mark.parametrize(("mode", "signal"), list(product(Mode, Signal)), ids=lambda word: word.value)
def test_the_table_holds_every_pair_as_meant(mode: Mode, signal: Signal) -> None:
    meant = LOOK_UP.get(signal, (None,) * 4)[DOWNWARD.index(mode)]
    assert NEXT.get((mode, signal)) is meant


def test_only_these_signals_have_moves_so_far() -> None:
    assert {signal for _, signal in NEXT} == set(LOOK_UP)
    assert set(LOOK_UP) == FAULTS | SLOPES | {Signal.TELEMETRY_STALE}


def test_every_mode_can_be_left() -> None:
    assert {mode for mode, _ in NEXT} == set(Mode)


def test_full_is_entered_from_reduced_only() -> None:
    assert {mode for (mode, _), towards in NEXT.items() if towards is FULL} == {REDUCED}


def test_only_a_possible_profit_leads_up_and_by_one_mode() -> None:
    for (mode, signal), towards in NEXT.items():
        climbed = DOWNWARD.index(mode) - DOWNWARD.index(towards)
        assert climbed == 1 if signal is Signal.PROFIT_POSSIBLE else climbed < 0


def test_the_knob_numbers_every_mode_of_a_speculating_engine() -> None:
    assert {mode.name: mode.value for mode in KnobMode} == {"FULL": 0, "REDUCED": 1, "ZERO_DRAFT": 2}
    assert {mode.name for mode in Mode} - set(KnobMode.__members__) == {"AUTOREGRESSIVE"}


def words(rungs: tuple[Rung, ...]) -> list[str]:
    return [str(rung) for rung in rungs]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param({}, ["autoregressive", "zero_draft", "reduced(1)", "full"], id="every-mode"),
        pytest.param(
            {"steps": (0, 1, 2, 5)},
            ["autoregressive", "zero_draft", "reduced(1)", "reduced(2)", "full"],
            id="two-reduced-widths",
        ),
        pytest.param({"steps": (0, 1)}, ["autoregressive", "zero_draft", "full"], id="one-step-has-no-fewer"),
        pytest.param({"modes": WITHOUT_ZERO_DRAFT}, ["autoregressive", "reduced(1)", "full"], id="not-allowed"),
        pytest.param({"modes": (AUTOREGRESSIVE,), "steps": (0,)}, ["autoregressive"], id="no-speculation"),
    ],
)
def test_the_ladder_has_the_rungs_that_are_allowed(changed, expected) -> None:
    assert words(ladder(limits(**changed))) == expected


@pytest.mark.parametrize(
    ("at", "signal", "changed", "expected"),
    [
        pytest.param(Rung(FULL, 5), Signal.LOAD_HIGH, {"steps": (0, 1, 2, 5)}, "reduced(2)", id="slope-widest-first"),
        pytest.param(Rung(REDUCED, 2), Signal.LOAD_HIGH, {"steps": (0, 1, 2, 5)}, "reduced(1)", id="slope-inside"),
        pytest.param(Rung(REDUCED, 1), Signal.LOAD_HIGH, {"steps": (0, 1, 2, 5)}, "zero_draft", id="slope-out"),
        pytest.param(Rung(FULL, 5), Signal.DRAFT_FAULT, {"steps": (0, 1, 2, 5)}, "zero_draft", id="fault-at-once"),
        pytest.param(
            Rung(REDUCED, 1), Signal.PROFIT_POSSIBLE, {"steps": (0, 1, 2, 5)}, "reduced(2)", id="climb-inside"
        ),
        pytest.param(Rung(FULL, 1), Signal.ACCEPTANCE_LOW, {"steps": (0, 1)}, "zero_draft", id="no-reduced-rung-down"),
        pytest.param(Rung(ZERO_DRAFT, 0), Signal.PROFIT_POSSIBLE, {"steps": (0, 1)}, "full", id="no-reduced-rung-up"),
        pytest.param(
            Rung(FULL, 3), Signal.DRAFT_FAULT, {"modes": WITHOUT_ZERO_DRAFT}, "autoregressive", id="fault-goes-lower"
        ),
        pytest.param(Rung(REDUCED, 1), Signal.LOAD_HIGH, {"modes": WITHOUT_ZERO_DRAFT}, None, id="no-restart-for-load"),
        pytest.param(
            Rung(FULL, 3), Signal.TELEMETRY_STALE, {"modes": WITHOUT_ZERO_DRAFT}, None, id="no-restart-for-blindness"
        ),
        pytest.param(
            Rung(AUTOREGRESSIVE, 0),
            Signal.PROFIT_POSSIBLE,
            {"modes": WITHOUT_ZERO_DRAFT},
            "reduced(1)",
            id="up-past-a-gap",
        ),
        pytest.param(
            Rung(AUTOREGRESSIVE, 0),
            Signal.PROFIT_POSSIBLE,
            {"modes": (FULL, AUTOREGRESSIVE)},
            None,
            id="never-straight-to-full",
        ),
        pytest.param(Rung(FULL, 3), Signal.PROFIT_POSSIBLE, {}, None, id="nothing-above-full"),
        pytest.param(Rung(FULL, 3), Signal.KV_PRESSURE, {}, None, id="no-move-yet"),
    ],
)
def test_moves_lead_along_the_ladder(at, signal, changed, expected) -> None:
    found = destination(at, signal, limits(**changed))
    assert (None if found is None else str(found)) == expected


def test_nothing_stands_above_the_top() -> None:
    assert above(Rung(FULL, 3), limits()) is None


@pytest.mark.parametrize(
    ("at", "changed", "expected"),
    [
        pytest.param(Rung(FULL, 3), {}, "full", id="allowed"),
        pytest.param(Rung(FULL, 3), {"modes": (REDUCED, ZERO_DRAFT, AUTOREGRESSIVE)}, "reduced(1)", id="mode-gone"),
        pytest.param(Rung(REDUCED, 2), {}, "reduced(1)", id="width-gone"),
        pytest.param(Rung(FULL, 2), {}, "reduced(1)", id="full-of-another-draft"),
        pytest.param(Rung(FULL, 1), {"steps": (0, 2, 3)}, "zero_draft", id="never-more-steps-than-before"),
        pytest.param(Rung(ZERO_DRAFT, 0), {"modes": WITHOUT_ZERO_DRAFT}, "autoregressive", id="never-up"),
    ],
)
def test_a_rung_that_is_gone_gives_way_downward(at, changed, expected) -> None:
    assert str(highest_at_most(at, limits(**changed))) == expected
