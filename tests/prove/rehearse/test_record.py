import pytest

from spec_toolkit.engine.names import Rounds
from spec_toolkit.prove import lossless, sampling
from spec_toolkit.prove.rehearse.record import accepted_by_position, bucket_of, greedy_of, sampled_of


def made(*histogram: int) -> Rounds:
    rounds, accepted = sum(histogram), sum(n * count for n, count in enumerate(histogram))
    return Rounds(
        emitted_tokens=rounds + accepted,
        rounds=rounds,
        accepted_drafts=accepted,
        proposed_drafts=3 * rounds,
        accepted_histogram=histogram,
    )


@pytest.mark.parametrize(
    ("histograms", "expected"),
    [
        pytest.param([(1, 1, 1, 1)], (3 / 4, 2 / 3, 1 / 2), id="each-once"),
        pytest.param([(0, 0, 0, 5)], (1.0, 1.0, 1.0), id="everything"),
        pytest.param([(4,)], (), id="nothing-beyond-none"),
        pytest.param([(2, 2)], (0.5,), id="trailing-zeros-are-cut"),
        pytest.param([(1, 1), (0, 0, 2)], (3 / 4, 2 / 3), id="two-answers-of-other-lengths"),
        pytest.param([(3, 0, 1)], (1 / 4, 1.0), id="a-hole"),
        pytest.param([], (), id="no-answer"),
    ],
)
def test_acceptance_by_position_is_of_the_rounds_that_came_so_far(histograms, expected) -> None:
    assert accepted_by_position([made(*histogram) for histogram in histograms]) == pytest.approx(expected)


def test_emitted_length_follows_from_acceptance_by_position() -> None:
    """theory.md, section 3: 1 + the sum over positions of the product of what was accepted up to it."""
    answers = [made(3, 2, 1, 6), made(1, 0, 4, 2)]
    length, reached = 1.0, 1.0
    for share in accepted_by_position(answers):
        reached *= share
        length += reached
    assert bucket_of("chat", answers, answers).alone.emitted_length == pytest.approx(length)


def outcome(kind: lossless.Kind) -> lossless.Outcome:
    return lossless.Outcome(kind=kind, compared_tokens=5, position=5, gap_nats=3.0)


@pytest.mark.parametrize(
    ("kinds", "passed"),
    [
        pytest.param([lossless.Kind.EQUAL, lossless.Kind.NEAR_TIE], True, id="a-near-tie-is-none"),
        pytest.param([lossless.Kind.EQUAL, lossless.Kind.DIFFERENT], False, id="one-differs"),
        pytest.param([], False, id="nothing-compared"),
    ],
)
def test_greedy_answers_pass_where_none_differs(kinds, passed) -> None:
    report = lossless.Report(outcomes=tuple(map(outcome, kinds)), tolerance_nats=0.01)
    found = greedy_of(report, what="one at a time", concurrency=1, ranks=1, steps=3, seconds=1.0)
    assert found.passed is passed
    assert found.sentence == report.sentence()


def test_sampled_answers_keep_their_bounds() -> None:
    row = sampling.Row(place=(1, 2), distance=0.4, bound=0.2, samples=(8, 8))
    found = sampled_of(sampling.Report(rows=(row,), false_alarms=0.001), temperature=1.0, seconds=2.0)
    assert (found.passed, found.places[0].place, found.places[0].bound) == (False, "tokens 2 and 3", 0.2)
