"""One look: what may be believed of many ranks, and what a look does when nobody answers."""

import asyncio

import pytest

from spec_toolkit.engine.loads import Loads, read_loads
from spec_toolkit.engine.ranks import RankState
from spec_toolkit.errors import EngineError
from spec_toolkit.sidecar.scrape import Scraper, faults_by_site, last_fault, missing_draft_kv, summarise
from spec_toolkit.terms import KnobAnswer, KnobMode

LOADS = Loads(queue_depth=2, running=8)


def rank(dp: int = 0, number: int = 0, **changed) -> RankState:
    given = {
        "epoch": 4,
        "mode": KnobMode.REDUCED,
        "steps": 1,
        "candidates": (0, 1, 3),
        "taken": 1,
        "refused": 0,
        "last": KnobAnswer.TAKEN,
        "rounds": 50,
        "verify_rounds": 100,
        "accepted_drafts": 60,
        "accepted_histogram": (40, 60, 0, 0),
        "reason": "",
        "draft_faults": {},
        "draft_kv_missing": 0,
        "last_fault": "",
    }
    return RankState(dp=dp, rank=number, **{**given, **changed})


def test_of_a_tensor_parallel_group_one_rank_speaks():
    told, apart = summarise([rank(), rank(0, 1)], LOADS, 7.0)
    assert (told.rounds, told.accepted_drafts, told.accepted_histogram) == (100, 60, (40, 60, 0, 0))
    assert (told.at_s, told.steps, told.queue_depth, told.running) == (7.0, 1, 2, 8)
    assert not apart


def test_data_parallel_ranks_are_added_up():
    other = rank(1, 1, verify_rounds=10, accepted_drafts=1, accepted_histogram=(9, 1), draft_kv_missing=2)
    told, apart = summarise([rank(), other], LOADS, 7.0)
    assert (told.rounds, told.accepted_drafts, told.accepted_histogram) == (110, 61, (49, 61, 0, 0))
    assert missing_draft_kv([rank(), other]) == 2
    assert not apart


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        pytest.param({"steps": 3, "mode": KnobMode.FULL}, "steps", "mode or steps", id="steps"),
        pytest.param({"verify_rounds": 99}, "rounds", "verify_rounds", id="rounds"),
        pytest.param({"accepted_drafts": 61}, "accepted_drafts", "accepted_drafts", id="accepted"),
        pytest.param({"epoch": 5}, None, "epoch", id="epoch"),
    ],
)
def test_what_the_ranks_of_a_group_disagree_on_is_no_number_and_a_finding(changed, field, said):
    told, apart = summarise([rank(), rank(0, 1, **changed)], LOADS, 7.0)
    assert apart == f"ranks disagree on {said}"
    if field:
        assert getattr(told, field) is None


@pytest.mark.parametrize("name", ["verify_rounds", "accepted_drafts", "accepted_histogram", "draft_faults"])
def test_a_counter_that_one_data_parallel_rank_lacks_is_not_taken_for_zero(name):
    field = "rounds" if name == "verify_rounds" else name
    told, _ = summarise([rank(), rank(1, 1, **{name: None})], LOADS, 7.0)
    assert getattr(told, field) is None


def test_a_fault_that_one_rank_of_a_group_caught_is_the_groups():
    ranks = [rank(draft_faults={"draft": 2}), rank(0, 1, draft_faults={}), rank(1, 2, draft_faults={"prefill": 1})]
    told, apart = summarise(ranks, LOADS, 7.0)
    assert told.draft_faults == 3
    assert not apart
    assert faults_by_site(ranks) == {"draft": 2, "prefill": 1}


def test_what_no_rank_says_is_unknown():
    silent = [rank(draft_faults=None, draft_kv_missing=None, last_fault=None)]
    assert (faults_by_site(silent), missing_draft_kv(silent), last_fault(silent)) == (None, None, None)
    assert (faults_by_site([rank()]), missing_draft_kv([rank()]), last_fault([rank()])) == ({}, 0, "")


def test_an_engine_without_a_knob_has_a_load_and_nothing_else():
    told, apart = summarise([], LOADS, 7.0)
    assert (told.rounds, told.steps, told.draft_faults, told.queue_depth) == (None, None, None, 2)
    assert not apart


@pytest.mark.parametrize(
    ("ranks", "read"),
    [
        pytest.param([{"num_waiting_reqs": 3, "num_running_reqs": 5}], (3, 5), id="one"),
        pytest.param(
            [{"num_waiting_reqs": 3, "num_running_reqs": 5}, {"num_waiting_reqs": 1, "num_running_reqs": 7}],
            (4, 7),
            id="waiting-together-running-at-the-busiest",
        ),
        pytest.param([{"num_waiting_reqs": 3}], (3, None), id="a-name-that-is-gone"),
        pytest.param([{"num_waiting_reqs": 3, "num_running_reqs": 5}, {}], (None, None), id="one-of-two-is-silent"),
        pytest.param([], (None, None), id="nobody-has-spoken"),
    ],
)
def test_loads(ranks, read):
    loads = read_loads({"loads": ranks})
    assert (loads.queue_depth, loads.running) == read


@pytest.mark.parametrize("answer", [{}, {"loads": 3}, {"loads": ["a"]}])
def test_what_is_no_answer_about_loads_is_refused(answer):
    with pytest.raises(ValueError, match="the loads cannot be read"):
        read_loads(answer)


class Silent:
    """An engine whose ranks answer when they are let to, and whose front may not."""

    def __init__(self) -> None:
        self.reads = 0
        self.released = asyncio.Event()
        self.front = True

    async def loads(self, *, seconds):
        if not self.front:
            raise EngineError.of("engine.lost", "there", "no connection")
        return LOADS

    async def ranks(self, *, seconds):
        self.reads += 1
        try:
            await asyncio.wait_for(self.released.wait(), seconds)
        except TimeoutError:
            raise EngineError.of("engine.lost", "there", "no answer in time") from None
        return (rank(),)


async def _hangs_and_answers():
    engine = Silent()
    scraper = Scraper(engine, lambda: 7.0, hang_seconds=60.0)
    silent = [await scraper.look(0.01) for _ in range(5)]
    engine.released.set()
    spoke = await scraper.look(1.0)
    await scraper.close()
    return engine, silent, spoke


def test_while_a_rank_hangs_one_read_waits_and_looks_go_on():
    engine, silent, spoke = asyncio.run(_hangs_and_answers())
    assert engine.reads == 1
    assert {(look.answered, look.telemetry, look.loads) for look in silent} == {(False, None, LOADS)}
    assert "no rank has answered for" in silent[0].finding
    assert spoke.answered
    assert spoke.telemetry.queue_depth == 2


async def _front_is_gone():
    engine = Silent()
    engine.front = False
    engine.released.set()
    scraper = Scraper(engine, lambda: 7.0, hang_seconds=60.0)
    look = await scraper.look(1.0)
    await scraper.close()
    return look


def test_a_load_that_is_not_told_is_unknown_and_said_so():
    look = asyncio.run(_front_is_gone())
    assert look.telemetry.queue_depth is None
    assert "engine.lost" in look.finding


async def _closed_in_the_middle():
    engine = Silent()
    scraper = Scraper(engine, lambda: 7.0, hang_seconds=60.0)
    await scraper.look(0.01)
    await asyncio.wait_for(scraper.close(), 1.0)
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def test_closing_leaves_nothing_behind():
    assert asyncio.run(_closed_in_the_middle()) == []
