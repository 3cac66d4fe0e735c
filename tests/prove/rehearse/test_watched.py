"""What the ranks say beside right answers: each trouble is named, and a near miss is none."""

from dataclasses import replace

import pytest

from spec_toolkit.engine.names import Rounds
from spec_toolkit.engine.ranks import RankState
from spec_toolkit.prove.lossless import Completion
from spec_toolkit.prove.rehearse.asking import Answers, InForce
from spec_toolkit.prove.rehearse.watched import troubles
from spec_toolkit.terms import KnobAnswer, KnobMode

SOUND = RankState(
    dp=0,
    rank=0,
    epoch=2,
    mode=KnobMode.REDUCED,
    steps=1,
    candidates=(0, 1, 3),
    taken=2,
    refused=0,
    last=KnobAnswer.TAKEN,
    rounds=40,
    reason="",
    draft_faults={},
    last_fault="",
)
FAULT = {"draft_faults": {"draft": 2}, "last_fault": "draft: RuntimeError: planted", "reason": "draft fault"}


def said(*histogram: int) -> Completion:
    made = Rounds(
        emitted_tokens=9, rounds=sum(histogram), accepted_drafts=0, proposed_drafts=0, accepted_histogram=histogram
    )
    return Completion(output_ids=(1,), made=made)


SILENT = Completion(
    output_ids=(1,),
    made=Rounds(emitted_tokens=1, rounds=None, accepted_drafts=None, proposed_drafts=None, accepted_histogram=None),
)
GOOD = Answers(said=[said(3, 4), SILENT], seconds=1.0, indices=(0, 1), told=InForce(2, 1), ranks=(SOUND,))


def sentences(*heard: Answers, counts_faults: bool = True) -> list[str]:
    named = [(f"set {number}", answers) for number, answers in enumerate(heard)]
    return [each.sentence for each in troubles("speculating", named, counts_faults=counts_faults)]


def with_rank(**changes: object) -> Answers:
    return replace(GOOD, ranks=(SOUND, replace(SOUND, rank=1, **changes)))


def test_ranks_that_did_what_they_were_told_are_no_trouble() -> None:
    assert sentences(GOOD, with_rank()) == []


def test_a_fault_of_the_draft_is_named_with_its_rank_where_it_was_caught_and_its_words() -> None:
    (found,) = troubles("2 ranks", [("one at a time", with_rank(**FAULT, steps=0))], counts_faults=True)
    assert (found.engine, found.after, found.rank, found.faults) == (
        "2 ranks", "one at a time", "0.1", (("draft", 2),),
    )  # fmt: skip
    assert found.sentence == (
        "2 ranks, rank 0.1, one at a time: its draft faulted (draft 2); last: draft: RuntimeError: planted. "
        "See runbooks/draft-faults.md"
    )


@pytest.mark.parametrize("one", [{"draft_faults": {"extend": 1}}, {"last_fault": "extend: OSError: x"}])
def test_either_sign_of_a_fault_is_enough(one) -> None:
    assert len(sentences(with_rank(**one))) == 1


def test_a_fault_is_told_of_the_first_answers_that_it_followed() -> None:
    assert [each.split(":")[0] for each in sentences(GOOD, with_rank(**FAULT), with_rank(**FAULT))] == [
        "speculating, rank 0.1, set 1"
    ]


@pytest.mark.parametrize("ranks", [(), (replace(SOUND, draft_faults=None),)], ids=["no-rank", "not-counted"])
def test_silence_about_faults_is_not_none(ranks) -> None:
    unheard = replace(GOOD, ranks=ranks)
    assert "do not say whether the draft faulted; that proves nothing" in "".join(sentences(unheard))
    assert sentences(unheard, counts_faults=False) == []  # near miss: the engine has no patch that would count


@pytest.mark.parametrize("one", [{"epoch": 1}, {"steps": 3}], ids=["another-epoch", "other-steps"])
def test_a_rank_that_has_not_what_it_was_told_is_named(one) -> None:
    (found,) = sentences(with_rank(**one))
    assert "rank 0.1, set 0: was told 1 draft steps (epoch 2), reports" in found


def test_a_round_that_accepted_more_than_was_to_be_drafted_is_named_whatever_the_ranks_say() -> None:
    (found,) = sentences(replace(GOOD, said=[said(3, 4, 1)]))
    assert found.startswith("speculating, set 0: was told 1 draft steps, and a round accepted 2 drafts")
    idle = replace(GOOD, told=InForce(2, 0), ranks=(replace(SOUND, steps=0),))
    assert "was told 0 draft steps, and a round accepted 1 drafts" in "".join(sentences(idle))
    assert sentences(replace(idle, said=[said(7)])) == []


def test_an_engine_that_cannot_be_told_is_held_to_nothing() -> None:
    untold = replace(GOOD, told=InForce(), ranks=(), said=[said(0, 0, 0, 5)])
    assert sentences(untold, counts_faults=False) == []
