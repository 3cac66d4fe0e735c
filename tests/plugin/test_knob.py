"""What a command may say, and that nothing anyone sends raises or takes half effect."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.plugin.knob import Knob, Setting, judge, mode_of
from spec_toolkit.terms import KNOB_KEYS, KnobAnswer, KnobMode

CANDIDATES = (0, 1, 2, 3)
FULL, REDUCED, ZERO_DRAFT = KnobMode


def armed(epoch: int = 0) -> Knob:
    knob = Knob()
    knob.arm(CANDIDATES, 3)
    if epoch:
        assert knob.take(command(epoch, FULL, 3)) is KnobAnswer.TAKEN
    return knob


def command(epoch: object, mode: object, steps: object, **more: object) -> dict[str, object]:
    return {"epoch": epoch, "mode": mode, "steps": steps, **more}


@pytest.mark.parametrize(
    ("sent", "setting"),
    [
        pytest.param(command(6, 0, 3), Setting(6, FULL, 3), id="full"),
        pytest.param(command(6, 1, 2), Setting(6, REDUCED, 2), id="reduced-to-2"),
        pytest.param(command(6, 1, 1), Setting(6, REDUCED, 1), id="reduced-to-1"),
        pytest.param(command(6, 2, 0), Setting(6, ZERO_DRAFT, 0), id="zero-draft"),
        pytest.param(command(6.0, 2.0, 0.0), Setting(6, ZERO_DRAFT, 0), id="as-floats-from-json"),
        pytest.param(command(2**53, 0, 3), Setting(2**53, FULL, 3), id="largest-epoch"),
    ],
)
def test_a_good_command_is_in_force_whole(sent, setting):
    knob = armed(epoch=5)
    assert knob.take(sent) is KnobAnswer.TAKEN
    assert knob.setting == setting
    assert knob.begin_round() == setting.steps


BAD = [
    pytest.param(command(5, 2, 0), KnobAnswer.STALE, id="same-epoch"),
    pytest.param(command(4, 2, 0), KnobAnswer.STALE, id="older-epoch"),
    pytest.param({"epoch": 6, "mode": 2}, KnobAnswer.WRONG_KEYS, id="no-steps"),
    pytest.param({"steps": 0}, KnobAnswer.WRONG_KEYS, id="steps-alone"),
    pytest.param(command(6, 2, 0, pp_max_micro_batch_size=8), KnobAnswer.WRONG_KEYS, id="mixed-with-the-engines-own"),
    pytest.param(command(6, 2, 0.5), KnobAnswer.NOT_WHOLE, id="half-a-step"),
    pytest.param(command(math.inf, 2, 0), KnobAnswer.NOT_WHOLE, id="infinite-epoch"),
    pytest.param(command(6, 2, math.nan), KnobAnswer.NOT_WHOLE, id="no-number"),
    pytest.param(command(True, 2, 0), KnobAnswer.NOT_WHOLE, id="boolean"),
    pytest.param(command(2**53 + 1, 2, 0), KnobAnswer.NOT_WHOLE, id="epoch-a-float-cannot-hold"),
    pytest.param(command(6, 3, 0), KnobAnswer.UNKNOWN_MODE, id="unknown-mode"),
    pytest.param(command(6, -1, 0), KnobAnswer.UNKNOWN_MODE, id="mode-below-zero"),
    pytest.param(command(6, 0, 4), KnobAnswer.UNKNOWN_STEPS, id="steps-above-the-top"),
    pytest.param(command(6, 2, -1), KnobAnswer.UNKNOWN_STEPS, id="steps-below-zero"),
    pytest.param(command(6, 0, 2), KnobAnswer.CONTRADICTION, id="full-but-fewer-steps"),
    pytest.param(command(6, 1, 3), KnobAnswer.CONTRADICTION, id="reduced-to-the-top"),
    pytest.param(command(6, 1, 0), KnobAnswer.CONTRADICTION, id="reduced-to-nothing"),
    pytest.param(command(6, 2, 1), KnobAnswer.CONTRADICTION, id="zero-draft-with-a-step"),
    pytest.param(command("6", 2, 0), KnobAnswer.NOT_WHOLE, id="text"),
]


@pytest.mark.parametrize(("sent", "answer"), BAD)
def test_a_bad_command_changes_nothing_but_its_count(sent, answer):
    knob = armed(epoch=5)
    before = knob.row(dp=0, rank=0)
    assert knob.take(sent) is answer
    assert knob.row(dp=0, rank=0) == {**before, "refused": 1, "last": int(answer)}


def test_a_gap_between_candidates_is_no_step_count():
    knob = Knob()
    knob.arm([0, 2, 5], 5)
    assert knob.take(command(1, REDUCED, 3)) is KnobAnswer.UNKNOWN_STEPS
    assert knob.take(command(1, REDUCED, 2)) is KnobAnswer.TAKEN


def test_an_engine_that_cannot_change_its_steps_refuses_and_reports_nothing():
    knob = Knob()
    assert knob.take(command(1, ZERO_DRAFT, 0)) is KnobAnswer.NO_CONTROLLER
    assert knob.setting is None
    assert knob.row(dp=0, rank=0) == {}
    with pytest.raises(RuntimeError, match="not armed"):
        knob.begin_round()


@pytest.mark.parametrize(
    ("steps", "mode"), [pytest.param(3, FULL), pytest.param(1, REDUCED), pytest.param(0, ZERO_DRAFT)]
)
def test_it_starts_as_the_engine_was_started_at_epoch_zero(steps, mode):
    knob = Knob()
    knob.arm(CANDIDATES, steps)
    assert knob.setting == Setting(0, mode, steps)


def test_a_start_outside_the_candidates_is_an_error():
    with pytest.raises(ValueError, match="starts with 4 steps"):
        Knob().arm(CANDIDATES, 4)


def test_an_engine_that_can_only_idle_is_not_full():
    assert mode_of(0, (0,)) is ZERO_DRAFT


def test_a_row_counts_rounds_and_what_they_accepted():
    knob = armed(epoch=5)
    knob.begin_round()
    knob.end_round([3, 0])
    knob.begin_round()
    knob.end_round([1, 0, 3])
    assert knob.row(dp=1, rank=3) == {
        "dp": 1,
        "rank": 3,
        "epoch": 5,
        "mode": 0,
        "steps": 3,
        "candidates": [0, 1, 2, 3],
        "taken": 1,
        "refused": 0,
        "last": 0,
        "reason": "",
        "rounds": 2,
        "verify_rounds": 5,
        "accepted_drafts": 7,
        "accepted_histogram": [2, 1, 0, 2],
    }


def test_after_a_fall_only_a_newer_command_leads_back_up():
    knob = armed(epoch=5)
    knob.fall("draft_fault")
    assert knob.setting == Setting(5, ZERO_DRAFT, 0, "draft_fault")
    assert knob.begin_round() == 0
    assert knob.take(command(5, FULL, 3)) is KnobAnswer.STALE
    assert knob.begin_round() == 0
    assert knob.take(command(6, REDUCED, 1)) is KnobAnswer.TAKEN
    assert knob.setting == Setting(6, REDUCED, 1)


def test_a_fall_of_an_engine_that_did_not_prepare_zero_ends_at_its_fewest_steps():
    knob = Knob()
    knob.arm([1, 3], 3)
    knob.fall("draft_fault")
    assert knob.setting == Setting(0, ZERO_DRAFT, 1, "draft_fault")


def test_what_is_not_armed_does_not_fall():
    knob = Knob()
    knob.fall("draft_fault")
    assert knob.setting is None


def test_our_own_defect_is_an_answer_too(monkeypatch):
    knob = armed(epoch=5)
    before = knob.setting
    monkeypatch.setattr("spec_toolkit.plugin.knob.judge", lambda *_: 1 / 0)
    assert knob.take(command(6, ZERO_DRAFT, 0)) is KnobAnswer.FAILED
    assert knob.setting is before


keys = st.sampled_from([*KNOB_KEYS, "pp_max_micro_batch_size"]) | st.text(max_size=5)
# As large as any integer and float there is, and near what is good.
numbers = st.integers(-2, 6) | st.integers() | st.floats() | st.booleans() | st.integers(10**300, 10**400)
anything = numbers | st.none() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
commands = st.dictionaries(keys, anything, max_size=5) | st.fixed_dictionaries(dict.fromkeys(KNOB_KEYS, numbers))


@given(st.lists(commands, max_size=12))
def test_whatever_is_sent_only_a_taken_command_changes_anything_and_epochs_rise(sent):
    knob = armed()
    for each in sent:
        before = knob.setting
        assert before is not None
        answer = knob.take(each)
        after = knob.setting
        assert after is not None
        assert answer is not KnobAnswer.FAILED
        if answer is KnobAnswer.TAKEN:
            assert after.epoch > before.epoch
            assert (after.epoch, after.mode, after.steps) == (each["epoch"], each["mode"], each["steps"])
        else:
            assert after is before
        assert after.steps in CANDIDATES
        assert after.mode is mode_of(after.steps, CANDIDATES)
    row = knob.row(dp=0, rank=0)
    assert row["taken"] + row["refused"] == len(sent)


good = st.tuples(st.integers(1, 99), st.sampled_from(CANDIDATES)).map(
    lambda pair: command(pair[0], mode_of(pair[1], CANDIDATES), pair[1])
)


@given(st.lists(good, min_size=1, max_size=64))
def test_of_a_burst_the_highest_epoch_wins_whole(burst):
    knob = armed()
    for each in burst:
        knob.take(each)
    highest = max(each["epoch"] for each in burst)
    first = next(each for each in burst if each["epoch"] == highest)
    assert knob.setting == Setting(first["epoch"], first["mode"], first["steps"])


@given(st.lists(commands | good, max_size=20), st.randoms(use_true_random=False))
def test_ranks_that_hear_the_same_are_in_the_same_state(sent, chance: random.Random):
    """Whatever each of them did in between: rounds are not the same on ranks that idle."""
    first, second = armed(), armed()
    for each in sent:
        for _ in range(chance.randrange(3)):
            second.begin_round()
        assert first.take(each) is second.take(each)
    assert first.setting == second.setting


@given(commands, st.integers(0, 9))
def test_a_judgement_depends_on_its_arguments_alone(sent, epoch):
    now = Setting(epoch, FULL, 3)
    assert judge(sent, now, CANDIDATES) == judge(dict(reversed(sent.items())), now, CANDIDATES)
