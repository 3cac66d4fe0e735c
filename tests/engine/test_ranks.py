"""Reading the ranks' rows: whole, or not at all."""

import pytest

from spec_toolkit.engine.ranks import RankState, read_ranks
from spec_toolkit.plugin.knob import Knob
from spec_toolkit.terms import RANKS_KEY, KnobAnswer, KnobMode


def row(dp: int = 0, rank: int = 0) -> dict[str, object]:
    knob = Knob()
    knob.arm([0, 1, 3], 3)
    knob.take({"epoch": 4, "mode": 1, "steps": 1})
    knob.take({"epoch": 4, "mode": 1, "steps": 1})
    knob.end_round([1, 0])
    return knob.row(dp=dp, rank=rank)


def info(*rows_of_states: list[dict[str, object]]) -> dict[str, object]:
    return {"internal_states": [{RANKS_KEY: rows} for rows in rows_of_states]}


def test_what_the_plugin_writes_is_read():
    assert read_ranks(info([row()])) == (
        RankState(
            dp=0,
            rank=0,
            epoch=4,
            mode=KnobMode.REDUCED,
            steps=1,
            candidates=(0, 1, 3),
            taken=1,
            refused=1,
            last=KnobAnswer.STALE,
            rounds=0,
            verify_rounds=2,
            accepted_drafts=1,
            accepted_histogram=(1, 1, 0, 0),
            reason="",
            draft_faults=None,
            draft_kv_missing=None,
            last_fault=None,
        ),
    )


def test_faults_are_read_where_an_engine_counts_them():
    counted = {"draft_faults": {"draft": 2}, "draft_kv_missing": 3, "last_fault": "draft: ValueError: no"}
    [rank] = read_ranks(info([{**row(), **counted}]))
    assert (rank.draft_faults, rank.draft_kv_missing, rank.last_fault) == ({"draft": 2}, 3, "draft: ValueError: no")


def test_what_an_engine_does_not_count_is_none_and_not_zero():
    counters = ("verify_rounds", "accepted_drafts", "accepted_histogram", "reason")
    [rank] = read_ranks(info([{key: value for key, value in row().items() if key not in counters}]))
    assert {getattr(rank, name) for name in counters} == {None}


def test_ranks_of_all_replicas_stand_in_order():
    ranks = read_ranks(info([row(1, 1), row(1, 0)], [row(0, 0), row(0, 1)]))
    assert [(rank.dp, rank.rank) for rank in ranks] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_ranks_that_several_answers_name_are_read_once():
    everyone = [row(0, 0), row(1, 1)]
    assert [(rank.dp, rank.rank) for rank in read_ranks(info(everyone, everyone))] == [(0, 0), (1, 1)]


def test_an_engine_without_a_knob_has_no_ranks():
    assert read_ranks({"internal_states": [{"world_size": 1}]}) == ()


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({}, id="no-states"),
        pytest.param({"internal_states": None}, id="states-are-nothing"),
        pytest.param({"internal_states": ["text"]}, id="a-state-is-text"),
        pytest.param(info([{}]), id="a-rank-that-is-not-armed"),
        pytest.param(info([{**row(), "mode": 9}]), id="unknown-mode"),
        pytest.param(info([{**row(), "last": -1}]), id="unknown-answer"),
        pytest.param(info([{**row(), "candidates": 3}]), id="candidates-are-a-number"),
        pytest.param(info([{**row(), "draft_faults": 3}]), id="faults-are-a-number"),
        pytest.param(info([{**row(), "accepted_histogram": 3}]), id="a-histogram-is-a-number"),
        pytest.param(info([{key: value for key, value in row().items() if key != "rounds"}]), id="no-rounds"),
    ],
)
def test_anything_else_is_an_error(said):
    with pytest.raises(ValueError, match=r"rows|not a valid"):
        read_ranks(said)
