"""The comparison of sampled answers: its rate of false alarms, what it sees, and what it must let pass."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from spec_toolkit.prove.lossless import Completion
from spec_toolkit.prove.sampling import PLACES, Report, Row, compare_samples

LAW = (0.4, 0.25, 0.15, 0.1, 0.06, 0.04)


def draw(count: int, seed: int, law: Sequence[float] = LAW, *, tokens: int = 4) -> list[Completion]:
    rng = random.Random(seed)  # noqa: S311 - seeded samples of a law
    return [Completion(output_ids=tuple(rng.choices(range(len(law)), law, k=tokens))) for _ in range(count)]


def moved(shift: float) -> tuple[float, ...]:
    """LAW with `shift` of the last four tokens' mass on the likeliest: a total variation of `shift`."""
    tail = sum(LAW[2:])
    return (LAW[0] + shift, LAW[1], *(p * (1 - shift / tail) for p in LAW[2:]))


def beyond(report: Report) -> list[tuple[int, ...]]:
    return [row.place for row in report.rows if not row.is_within_bound]


@pytest.mark.parametrize("counts", [(64, 64), (40, 90)], ids=["equal-counts", "unequal-counts"])
def test_samples_of_one_law_are_out_of_bounds_as_often_as_stated(counts: tuple[int, int]) -> None:
    rounds, rate = 400, 0.05
    alarms = sum(
        not compare_samples(
            draw(counts[0], seed), draw(counts[1], seed + rounds), false_alarms=rate, seed=seed
        ).is_within_bounds
        for seed in range(rounds)
    )
    # 20 of 400 are due; a binomial count is beyond 4 standard deviations (17) once in sixteen thousand times.
    assert 3 <= alarms <= 37


POWER = [  # answers of each engine, total variation planted at every token
    pytest.param(128, 0.25, True, id="128-answers-see-0.25"),
    pytest.param(512, 0.13, True, id="512-answers-see-0.13"),
    pytest.param(2048, 0.07, True, id="2048-answers-see-0.07"),
    pytest.param(128, 0.03, False, id="128-answers-do-not-see-0.03"),
    pytest.param(512, 0.015, False, id="512-answers-do-not-see-0.015"),
]


@pytest.mark.parametrize(("count", "shift", "seen"), POWER)
def test_a_planted_bias_is_seen_from_its_size_on(count: int, shift: float, seen: bool) -> None:
    for seed in range(6):
        report = compare_samples(draw(count, seed), draw(count, 50 + seed, moved(shift)), false_alarms=0.01)
        assert report.is_within_bounds is not seen


def test_a_bias_at_one_place_is_called_by_its_name() -> None:
    wrong = [Completion(output_ids=(a, b, 0, d)) for a, b, _, d in (one.output_ids for one in draw(256, 2))]
    report = compare_samples(draw(256, 1), wrong, false_alarms=0.01)
    assert beyond(report) == [(2,), (1, 2), (2, 3)]
    row = report.rows[1]
    assert report.sentence() == (
        f"sampled: out of bounds at 3 of 5 places (256 and 256 answers; chance passes one of them once in 100 comparisons); "
        f"first: token 3, total variation {row.distance:.3f}, bound {row.bound:.3f}. See runbooks/outputs-differ.md"
    )
    assert row.distance == pytest.approx(1 - LAW[0], abs=0.06)


def test_tokens_that_are_right_one_by_one_and_wrong_together_are_seen() -> None:
    same = [Completion(output_ids=(a, b, b, d)) for a, b, _, d in (one.output_ids for one in draw(512, 2))]
    assert beyond(compare_samples(draw(512, 1), same, false_alarms=0.01)) == [(1, 2)]


def test_an_engine_that_commits_the_likeliest_token_is_seen_at_every_place() -> None:
    argmax = [Completion(output_ids=(0, 0, 0, 0))] * 64
    assert beyond(compare_samples(draw(64, 1), argmax, false_alarms=0.01)) == list(PLACES)


def test_answers_that_end_early_differ_from_those_that_do_not() -> None:
    short = [Completion(output_ids=one.output_ids[: 2 + (i % 2)]) for i, one in enumerate(draw(128, 2))]
    assert beyond(compare_samples(draw(128, 1), short, false_alarms=0.01)) == [(2,), (3,), (1, 2), (2, 3)]
    assert compare_samples(short, short[::-1], false_alarms=0.01).is_within_bounds


def test_two_engines_that_are_sure_are_within_bounds_and_one_other_answer_in_a_hundred_is_chance() -> None:
    sure = [Completion(output_ids=(1, 2, 3, 4))] * 100
    report = compare_samples(sure, sure, false_alarms=0.01)
    assert report.is_within_bounds
    assert {row.bound for row in report.rows} == {0.0}
    assert compare_samples(sure, [*sure[1:], Completion(output_ids=(1, 9, 3, 4))], false_alarms=0.01).is_within_bounds


@pytest.mark.parametrize(("references", "candidates"), [(0, 0), (0, 8), (8, 0)])
def test_nothing_compared_proves_nothing(references: int, candidates: int) -> None:
    report = compare_samples(draw(references, 1), draw(candidates, 2))
    assert not report.is_within_bounds
    assert report.sentence() == "sampled: no answers were compared; that proves nothing"


def test_too_few_answers_prove_nothing() -> None:
    # Two answers each: even laws without a common token are no further apart than chance allows.
    report = compare_samples(draw(2, 1, (1.0, 0.0)), draw(2, 1, (0.0, 1.0)))
    assert not report.is_within_bounds
    assert "too few to tell any two laws apart" in report.sentence()


def test_a_place_out_of_bounds_is_told_although_others_could_not_tell_two_laws_apart() -> None:
    blind = Row(place=(1,), distance=0.6, bound=1.0, samples=(8, 8))
    seen = Row(place=(2,), distance=0.9, bound=0.5, samples=(8, 8))
    sentence = Report(rows=(blind, seen), false_alarms=0.01).sentence()
    assert sentence.startswith("sampled: out of bounds at 1 of 2 places (8 and 8 answers;")
    assert "first: token 3, total variation 0.900, bound 0.500" in sentence
    near_miss = Report(rows=(blind, replace(seen, distance=0.4)), false_alarms=0.01)
    assert "too few to tell any two laws apart" in near_miss.sentence()
    assert not near_miss.is_within_bounds


def test_the_same_answers_give_the_same_report() -> None:
    reports = [compare_samples(draw(64, 1), draw(64, 2), false_alarms=0.01) for _ in range(2)]
    assert reports[0] == reports[1]
    assert reports[0].sentence().startswith("sampled: within bounds at 5 places (64 and 64 answers; chance passes one")
