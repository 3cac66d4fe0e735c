from dataclasses import replace

import pytest

from spec_toolkit.engine.names import Rounds
from spec_toolkit.prove.lossless import Completion
from spec_toolkit.prove.rehearse.asking import Answers, Questions, least_sure


def answer(*, rounds: int | None, tokens: int = 4, sure: float = 1.0) -> Completion:
    """`sure`: the probability of the likeliest token at every place."""
    from math import log

    made = Rounds(
        emitted_tokens=tokens, rounds=rounds, accepted_drafts=rounds, proposed_drafts=rounds, accepted_histogram=None
    )
    return Completion(output_ids=(1,) * tokens, top_logprobs=({1: log(sure)},) * tokens, made=made)


def questions(*sizes: int) -> Questions:
    return Questions(buckets=tuple((f"bucket{i}", ((i,),) * size) for i, size in enumerate(sizes)))


def test_answers_are_dealt_back_to_their_buckets_in_order() -> None:
    answers = Answers(said=[answer(rounds=n) for n in (1, 2, 3, 4, 5)], seconds=0.0, indices=range(5))
    counted = [[made.rounds for made in bucket] for bucket in answers.by_bucket(questions(2, 3))]
    assert counted == [[1, 2], [3, 4, 5]]


def test_an_answer_without_a_round_of_verification_counts_for_no_bucket() -> None:
    """It ended with the token that the prefill gives."""
    answers = Answers(said=[answer(rounds=n) for n in (None, 0, 2)], seconds=0.0, indices=range(3))
    assert [[made.rounds for made in bucket] for bucket in answers.by_bucket(questions(2, 1))] == [[], [2]]


def test_answers_to_some_of_the_prompts_are_dealt_by_their_indices() -> None:
    answers = Answers(said=[answer(rounds=n) for n in (7, 8)], seconds=0.0, indices=(1, 4))
    assert [[made.rounds for made in bucket] for bucket in answers.by_bucket(questions(2, 3))] == [[7], [8]]


@pytest.mark.parametrize(("cap", "together"), [(1, 1), (4, 4), (8, 8), (64, 8)])
def test_no_more_are_asked_at_a_time_than_the_recipe_lets_run(cap: int, together: int) -> None:
    assert replace(questions(4, 5), most=cap).together == together


def test_no_more_are_asked_at_a_time_than_there_are() -> None:
    assert questions(2, 3).together == 5


@pytest.mark.parametrize(("per_bucket", "count"), [(1, 5), (2, 8), (4, 8), (24, 8)])
def test_the_few_are_one_batch_over_all_buckets(per_bucket: int, count: int) -> None:
    asked = questions(*[per_bucket] * 5)
    few = asked.few
    assert len(few) == len(set(few)) == count
    assert {asked.prompts[index] for index in few} == {(bucket,) for bucket in range(5)}


def test_samples_are_drawn_where_the_target_is_least_sure() -> None:
    assert least_sure([answer(rounds=1, sure=0.9), answer(rounds=1, sure=0.4), answer(rounds=1, sure=1.0)]) == 1


def test_a_place_where_anything_may_come_says_less_than_a_coin() -> None:
    """Of many kinds each is rare, and two samples of one law are far apart by chance."""
    assert least_sure([answer(rounds=1, sure=0.05), answer(rounds=1, sure=0.5), answer(rounds=1, sure=0.95)]) == 1


def test_a_short_answer_leaves_nothing_to_be_unsure_of() -> None:
    assert least_sure([answer(rounds=1, tokens=1, sure=0.1), answer(rounds=1, sure=0.9)]) == 1
