"""What follows from a fault in the draft: on one rank, on several that vote, on several that are to end."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.handover import RANKS_AFTER_FAULT_VARIABLE
from spec_toolkit.plugin.draft_kv import DraftKv
from spec_toolkit.plugin.faults import AfterFault, DraftFaultError, Faults, after_fault, survive
from spec_toolkit.plugin.health import DELAY, Health
from spec_toolkit.plugin.knob import Knob
from spec_toolkit.terms import DraftPart, KnobAnswer, KnobMode

torch = pytest.importorskip("torch")

DRAFTS = [[3, 4, 5]]


class Rank:
    """One rank and what happens on it."""

    def __init__(self, after: AfterFault = AfterFault.FALL, candidates=(0, 1, 3)) -> None:
        self.knob = Knob()
        if candidates:
            self.knob.arm(candidates, max(candidates))
        self.health = Health("cpu", None)
        self.kv = DraftKv("cpu")
        self.faults = Faults(self.knob)
        self.faults.install(self.health, self.kv, after)

    def round(self) -> int:
        """A sound one; the steps it had."""
        self.faults.settle()
        steps = self.knob.begin_round()
        self.health.vote(torch.tensor(DRAFTS), self.faults.epoch)
        return steps

    def fail(self, part: DraftPart = DraftPart.DRAFT, text: str = "no") -> object:
        def run() -> object:
            raise ValueError(text)

        return survive(self.faults, part, run, lambda: "instead")

    def spoil(self, part: DraftPart = DraftPart.DRAFT_EXTEND, value: float = float("nan")) -> None:
        survive(self.faults, part, lambda: self.faults.check(torch.tensor([1.0, value])), lambda: None)

    def command(self, epoch: int, steps: int = 3) -> None:
        mode = {0: KnobMode.ZERO_DRAFT, 1: KnobMode.REDUCED, 3: KnobMode.FULL}[steps]
        assert self.knob.take({"epoch": epoch, "mode": mode, "steps": steps}) is KnobAnswer.TAKEN


def test_one_rank_falls_at_once_and_goes_on():
    rank = Rank()
    assert rank.round() == 3
    assert rank.fail() == "instead"
    assert rank.round() == 0
    assert rank.knob.row(dp=0, rank=0)["reason"] == "draft_fault"
    assert rank.faults.row() == {
        "draft_faults": {"draft": 1},
        "draft_kv_missing": 0,
        "draft_checks": 0,
        "last_fault": "draft: ValueError: no",
    }


def test_what_went_well_is_handed_on_and_looked_at():
    rank, seen = Rank(), []
    assert survive(rank.faults, DraftPart.PREFILL, lambda: "made", lambda: "instead", and_then=seen.append) == "made"
    assert seen == ["made"]
    assert rank.faults.row()["draft_faults"] == {}


def test_a_look_that_fails_is_a_fault_too():
    rank = Rank()
    assert survive(rank.faults, DraftPart.DRAFT, lambda: 1, lambda: "instead", and_then=lambda _: 1 / 0) == "instead"
    assert rank.faults.row()["draft_faults"] == {"draft": 1}


def test_ranks_that_vote_fall_by_the_vote_alone_and_not_before():
    rank = Rank(AfterFault.VOTE)
    rank.fail()
    assert [rank.round() for _ in range(DELAY + 2)] == [3] * DELAY + [0, 0]


def test_values_that_are_not_finite_are_named_and_make_it_fall():
    rank = Rank()
    rank.round()
    rank.spoil()
    assert [rank.round() for _ in range(DELAY + 1)] == [3] * DELAY + [0]
    row = rank.faults.row()
    assert row["draft_faults"] == {"draft_extend_not_finite": 1}
    assert row["last_fault"] == "draft_extend_not_finite"


@pytest.mark.parametrize("value", [float("-inf"), 3e38, -3e38, 0.0])
def test_a_mask_and_large_values_are_no_fault(value):
    rank = Rank()
    rank.spoil(value=value)
    assert [rank.round() for _ in range(DELAY + 2)] == [3] * (DELAY + 2)
    assert rank.faults.row()["draft_faults"] == {}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_put_right_in_place(value):
    rank, values = Rank(), torch.tensor([[1.0, value]])
    with rank.faults.running(DraftPart.DRAFT):
        assert rank.faults.check(values)
    assert values.isfinite().all()
    assert values[0, 0] == 1.0


@pytest.mark.parametrize("values", [None, torch.empty((0, 4)), torch.tensor([1])], ids=["none", "empty", "integers"])
def test_what_has_no_values_to_judge_is_sound(values):
    rank = Rank()
    with rank.faults.running(DraftPart.DRAFT):
        rank.faults.check(values)
    assert rank.faults.row()["draft_faults"] == {}


def test_outside_the_draft_nothing_is_looked_at():
    rank, values = Rank(), torch.tensor([float("nan")])
    assert not rank.faults.check(values)
    assert values.isnan().all()


def test_what_is_captured_outside_a_round_is_checked_and_counts_as_of_the_part_that_replays_it():
    rank, values = Rank(), torch.tensor([1.0])
    with rank.faults.captured(DraftPart.DRAFT):
        assert rank.faults.check(values)  # a graph that is captured keeps this look
    assert not rank.faults.check(values), "nothing runs any more"
    with rank.faults.running(DraftPart.DRAFT):
        rank.health.check(torch.tensor([float("nan")]))  # a replay: on the device, and nobody asks the host
    assert rank.faults.row()["draft_faults"] == {"draft_not_finite": 1}


def test_a_capture_inside_a_part_leaves_that_part_running():
    rank = Rank()
    with rank.faults.running(DraftPart.PREFILL):
        with rank.faults.captured(DraftPart.DRAFT):
            pass
        assert rank.faults.check(torch.tensor([float("nan")]))
    assert rank.faults.row()["draft_faults"] == {"prefill_not_finite": 1}


def test_a_newer_command_arms_again_and_an_old_fault_is_not_held_against_it():
    rank = Rank(AfterFault.VOTE)
    rank.fail(DraftPart.PREFILL)  # and no round came after it
    rank.command(1)
    assert [rank.round() for _ in range(DELAY + 3)] == [3] * (DELAY + 3)
    assert rank.faults.row()["draft_faults"] == {"prefill": 1}


def test_a_fault_after_the_command_is_held_against_it():
    rank = Rank(AfterFault.VOTE)
    rank.command(1)
    rank.fail(DraftPart.PREFILL)
    assert [rank.round() for _ in range(DELAY + 1)] == [3] * DELAY + [0]
    assert rank.knob.setting is not None
    assert rank.knob.setting.epoch == 1


def test_ranks_that_are_to_end_say_so():
    rank = Rank(AfterFault.END)
    with pytest.raises(DraftFaultError, match=r"draft: ValueError: no.*\[faults\.end-engine\]"):
        rank.fail()


def test_ranks_that_are_to_end_do_so_for_values_that_are_not_finite_too():
    rank = Rank(AfterFault.END)
    rank.round()
    rank.spoil()
    for _ in range(DELAY):
        rank.round()
    with pytest.raises(DraftFaultError, match="draft_extend_not_finite"):
        rank.round()


def test_a_fault_in_every_round_does_not_fill_the_log(caplog):
    rank = Rank()
    with caplog.at_level(logging.WARNING, "spec_toolkit"):
        for _ in range(1000):
            rank.fail()
    assert len(caplog.records) == 10
    assert "test_faults.py" in caplog.records[0].message


def test_the_last_fault_is_one_short_line():
    rank = Rank()
    rank.fail(text="a\nb" * 500)
    said = rank.faults.row()["last_fault"]
    assert isinstance(said, str)
    assert "\n" not in said
    assert len(said) == 200


def test_without_zero_steps_drafts_are_held_back_instead():
    rank = Rank(candidates=(1, 3))
    assert not rank.faults.holds
    rank.fail()
    assert rank.faults.holds
    assert rank.round() == 1


def test_an_engine_at_fixed_steps_survives_and_has_no_mode_to_change():
    rank = Rank(candidates=())
    assert rank.fail() == "instead"
    rank.faults.settle()
    assert not rank.faults.holds


def test_nothing_is_reported_where_nothing_is_isolated():
    assert Faults(Knob()).row() == {}


@pytest.mark.parametrize(
    ("ranks", "said", "follows"),
    [
        (1, None, AfterFault.FALL),
        (1, "end_engine", AfterFault.FALL),
        (2, None, AfterFault.VOTE),
        (2, "", AfterFault.VOTE),
        (2, "vote", AfterFault.VOTE),
        (8, "end_engine", AfterFault.END),
    ],
)
def test_the_recipe_says_what_several_ranks_do(ranks, said, follows):
    environment = {} if said is None else {RANKS_AFTER_FAULT_VARIABLE: said}
    assert after_fault(ranks, environment, prefills_apart=False) is follows


@pytest.mark.parametrize("said", ["vote", "end_engine"])
def test_ranks_that_would_not_all_vote_do_not_start(said):
    with pytest.raises(DraftFaultError, match=r"\[faults\.prefill-coordination\]"):
        after_fault(2, {RANKS_AFTER_FAULT_VARIABLE: said}, prefills_apart=True)
    assert after_fault(1, {}, prefills_apart=True) is AfterFault.FALL


def test_a_choice_that_is_none_does_not_start():
    with pytest.raises(ValueError, match="perhaps"):
        after_fault(2, {RANKS_AFTER_FAULT_VARIABLE: "perhaps"}, prefills_apart=False)


happenings = st.lists(st.sampled_from(["round", "fail", "spoil", "command"]), max_size=40)


@given(happenings)
def test_whatever_happens_it_drafts_or_stands_at_zero_and_only_a_command_leads_up(happened):
    rank, epoch, down = Rank(AfterFault.VOTE), 0, False
    for each in happened:
        if each == "command":
            epoch, down = epoch + 1, False
            rank.command(epoch)
        elif each == "round":
            steps = rank.round()
            assert steps in (0, 3)
            assert not (down and steps), "it came up by itself"
            down = steps == 0
        else:
            rank.fail() if each == "fail" else rank.spoil()
    counted = rank.faults.row()["draft_faults"]
    assert isinstance(counted, dict)
    assert sum(counted.values()) == happened.count("fail") + happened.count("spoil")
