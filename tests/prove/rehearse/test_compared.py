"""The record of a rehearsal: right answers do not make it pass where a rank says that its draft faulted."""

from dataclasses import replace

import pytest

from spec_toolkit.engine.names import Rounds
from spec_toolkit.launch.planned import plan_recipe
from spec_toolkit.prove.lossless import Completion
from spec_toolkit.prove.rehearse.asking import Answers, Heard, InForce, Questions
from spec_toolkit.prove.rehearse.compared import Engines, make_record
from spec_toolkit.prove.rehearse.ready import Ready, make_ready
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.report.rehearse import page
from tests.prove.rehearse.test_watched import FAULT, SOUND

QUESTIONS = Questions(buckets=(("chat", ((1,), (2,))),), most=4)
MADE = Rounds(emitted_tokens=4, rounds=2, accepted_drafts=1, proposed_drafts=6, accepted_histogram=(1, 1))


@pytest.fixture(scope="module")
def ready() -> Ready:
    return make_ready(*plan_recipe(find_recipe("deepseek_v3_h200")))


def answers(told: InForce, *, indices: tuple[int, ...] = (0, 1), **of_rank: object) -> Answers:
    said = [Completion(output_ids=(index, 5), top_logprobs=({index: 0.0}, {5: 0.0}), made=MADE) for index in indices]
    rank = replace(SOUND, epoch=told.epoch, steps=told.steps or 0, **of_rank)
    return Answers(said=said, seconds=1.0, indices=indices, told=told, ranks=(rank,))


FULL, ONE = InForce(0, 3), InForce(1, 1)


def heard(**of_rank: object) -> Engines:
    drafting = Heard(answers(FULL), answers(FULL), ((1, answers(ONE, indices=(1,))),), InForce(3, 3))
    return Engines(
        target=Heard(answers(InForce())), drafting=drafting, several=Heard(answers(FULL), answers(FULL, **of_rank))
    )


def test_right_answers_of_sound_ranks_pass(ready: Ready) -> None:
    found = make_record(ready, QUESTIONS, heard())
    assert (found.passed, found.troubles, found.together) == (True, (), 2)
    assert [one.what for one in found.greedy] == [
        "one at a time", "2 at a time", "2 ranks (TP), one at a time", "2 ranks (TP), 2 at a time", "2 at a time, 1 step",
    ]  # fmt: skip


def test_right_answers_beside_a_fault_of_the_draft_do_not(ready: Ready) -> None:
    found = make_record(ready, QUESTIONS, heard(**FAULT))
    assert all(one.passed for one in found.greedy)
    assert not found.passed
    assert [(one.engine, one.after, one.faults) for one in found.troubles] == [
        ("2 ranks", "2 at a time", (("draft", 2),))
    ]


def test_answers_are_held_against_those_to_their_own_prompts(ready: Ready) -> None:
    """As many as the few, and not the few: their number says nothing."""
    engines = heard()
    engines.several = Heard(answers(FULL, indices=(1,)), answers(FULL))
    assert make_record(ready, QUESTIONS, engines).passed


def test_of_answers_that_were_compared_with_nothing_none_passes(ready: Ready) -> None:
    """Nothing is drafted and one request runs at a time: the target's own answers are all there are."""
    alone = answers(InForce())
    found = make_record(ready, QUESTIONS, Engines(target=Heard(alone, alone)))
    assert (found.greedy, found.passed) == ((), False)
    assert "PROVES NOTHING (nothing was compared)" in page(found)


def test_patches_that_only_the_rehearsal_has_are_listed(ready: Ready) -> None:
    assert "whole-sampling" in ready.added_patches
    assert {"runtime-knob", "isolate-draft-faults"} & set(ready.added_patches) == set()
    as_it_is = make_ready(*plan_recipe(find_recipe("rehearsal/deepseek_v3_cpu")))
    assert as_it_is.added_patches == ()
