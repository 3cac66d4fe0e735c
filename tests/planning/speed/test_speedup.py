import pytest

from spec_toolkit.facts.model import Experts
from spec_toolkit.planning.limits import BreakEven
from spec_toolkit.planning.speed.experts import touched_experts
from spec_toolkit.planning.speed.speedup import break_even_length, break_evens, points, speedup, turns
from tests.planning.speed.measured import drafting, evidence, plain

LENGTH = 3.4264  # theory.md's curve 0.9, 0.8, 0.7, 0.6
MOE = Experts(routed=128, per_token=8, shared=0, intermediate_size=704, dense_layers=0)


@pytest.mark.parametrize(
    ("verify", "gain"),
    [pytest.param(1.3, 1.852, id="pays"), pytest.param(2.9, 0.993, id="the-same-length-no-longer-pays")],
)
def test_a_gain_is_length_over_what_a_round_costs(verify: float, gain: float) -> None:
    cost = 0.4e-3 + verify * 1e-3 + 0.15e-3  # draft passes, verify pass, what lies between
    assert speedup(LENGTH, 1e-3, cost) == pytest.approx(gain, abs=5e-4)
    assert (break_even_length(1e-3, cost) < LENGTH) is (gain > 1)
    assert speedup(break_even_length(1e-3, cost), 1e-3, cost) == pytest.approx(1)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        pytest.param(0, 0.0, id="none"),
        pytest.param(1, 8.0, id="one-token-has-its-own"),
        pytest.param(2, 15.5, id="the-second-shares-a-little"),
        pytest.param(10_000, 128.0, id="at-last-all"),
    ],
)
def test_tokens_touch_experts_of_their_own_until_all_are_touched(tokens: int, expected: float) -> None:
    assert touched_experts(tokens, MOE) == pytest.approx(expected)


def test_break_even_is_what_a_round_costs_in_plain_steps() -> None:
    """100 tokens/s plain at batch 4 are steps of 40 ms; 150 tokens/s at 2.4 a round are rounds of 64 ms."""
    (point,) = points(evidence(plain(4, 100.0), drafting(4, 3, 150.0, 2.4)))
    assert point.break_even == pytest.approx(1.6)
    assert point.speedup == pytest.approx(1.5)


def test_without_an_autoregressive_row_of_the_same_batch_there_is_no_break_even() -> None:
    assert not points(evidence(drafting(4, 3, 150.0, 2.4)))
    assert not points(evidence(plain(8, 100.0), drafting(4, 3, 150.0, 2.4)))


def test_a_row_that_drafts_nothing_has_none_either() -> None:
    assert not points(evidence(plain(4, 100.0), drafting(4, 0, 95.0, 1.0)))


def test_the_policy_gets_the_step_counts_its_engine_has_in_order() -> None:
    rows = (drafting(8, 3, 150, 2.4), drafting(1, 3, 30, 2.4), drafting(8, 1, 120, 1.8), drafting(8, 5, 150, 2.9))
    found = break_evens(evidence(plain(1, 20), plain(8, 100), *rows), (0, 1, 3))
    assert found == (
        BreakEven(steps=1, batch=8, emitted_length=pytest.approx(1.5)),
        BreakEven(steps=3, batch=1, emitted_length=pytest.approx(1.6)),
        BreakEven(steps=3, batch=8, emitted_length=pytest.approx(1.6)),
    )


def test_a_mixture_of_experts_loses_alone_wins_in_company_and_loses_in_a_crowd() -> None:
    """Three drafts, 2.5 tokens a round; milliseconds that nobody measured."""

    def seconds(tokens: float) -> float:
        """Of a pass: launches, then the slower of reading what its tokens need and of computing them."""
        return 0.1e-3 + max(0.4e-3 + 0.1e-3 * touched_experts(tokens, MOE), 0.13e-3 * tokens)

    draft_seconds, length, width = 0.4e-3, 2.5, 4
    rows = []
    for batch in (1, 8, 64):
        rows.append(plain(batch, batch / seconds(batch)))
        round_seconds = draft_seconds + seconds(batch * width)
        rows.append(drafting(batch, 3, batch * length / round_seconds, length))
    measured = evidence(*rows)
    assert [(point.batch, point.pays) for point in points(measured)] == [(1, False), (8, True), (64, False)]
    begins, ends = turns(measured, 3)
    assert (begins.pays_above, ends.pays_above) == (True, False)
    assert 1 < begins.batch < 8 < ends.batch < 64


def test_concurrency_turns_where_the_two_lengths_meet() -> None:
    """Break-even 2 at batch 8 and 3 at batch 16, with 2.5 emitted at both."""
    measured = evidence(plain(8, 100), plain(16, 100), drafting(8, 3, 125, 2.5), drafting(16, 3, 250 / 3, 2.5))
    (turn,) = turns(measured, 3)
    assert (turn.batch, turn.pays_above) == (pytest.approx(12.0), False)


def test_where_nothing_turns_there_is_no_turn() -> None:
    measured = evidence(plain(8, 100), plain(16, 100), drafting(8, 3, 150, 2.5), drafting(16, 3, 150, 2.5))
    assert turns(measured, 3) == ()
    assert turns(measured, 1) == ()
