"""Faults planted in the real engine's draft: the tokens stay the target's, every rank falls together, and a command leads back."""

import asyncio
import sys
import time
from collections.abc import Iterator

import pytest

from spec_toolkit.engine.log import last_words
from spec_toolkit.engine.names import read_rounds
from spec_toolkit.launch.forked import Forked
from spec_toolkit.prove.lossless import Completion
from spec_toolkit.terms import FaultPoint, KnobMode, RanksAfterFault
from tests.engine.serving import serving
from tests.patches.faulting import (
    FULL,
    Outcome,
    Plant,
    arm,
    ask_until_lost,
    family_of,
    run,
    serving_with_faults,
    wait_until_gone,
)
from tests.patches.switching import ANSWER_SECONDS, LAYOUTS, Layout, client, for_each_layout, held_out, target_answers

pytestmark = pytest.mark.engine

PROMPTS = 4
SITES = {
    FaultPoint.DRAFT_BEFORE: "draft",
    FaultPoint.DRAFT_IN: "draft",
    FaultPoint.DRAFT_AFTER: "draft",
    FaultPoint.DRAFT_EXTEND_BEFORE: "draft_extend",
    FaultPoint.DRAFT_EXTEND_AFTER: "draft_extend",
    FaultPoint.PREFILL_BEFORE: "prefill",
    FaultPoint.PREFILL_AFTER: "prefill",
    FaultPoint.DRAFT_NOT_FINITE: "draft_not_finite",
    FaultPoint.DRAFT_EXTEND_NOT_FINITE: "draft_extend_not_finite",
    FaultPoint.PREFILL_NOT_FINITE: "prefill_not_finite",
    FaultPoint.UNLIKE_DRAFTS: "unlike_drafts",
}
# One rank of several can fail where no collective of the draft is left to the others.
SURVIVED = {
    "tp1": [Plant(point=point) for point in SITES if point is not FaultPoint.UNLIKE_DRAFTS],
    "tp1-without-overlap": [
        Plant(point=FaultPoint.DRAFT_IN),
        Plant(point=FaultPoint.DRAFT_EXTEND_AFTER),
        Plant(point=FaultPoint.PREFILL_NOT_FINITE),
    ],
    "tp2": [
        Plant(point=FaultPoint.DRAFT_IN),
        Plant(point=FaultPoint.PREFILL_BEFORE),
        Plant(point=FaultPoint.DRAFT_AFTER, rank=1),
        Plant(point=FaultPoint.DRAFT_EXTEND_AFTER, rank=0),
        Plant(point=FaultPoint.PREFILL_AFTER, rank=1),
        Plant(point=FaultPoint.DRAFT_NOT_FINITE, rank=1),
        Plant(point=FaultPoint.UNLIKE_DRAFTS, rank=1),
    ],
    "attention-dp": [
        Plant(point=FaultPoint.DRAFT_BEFORE),
        Plant(point=FaultPoint.DRAFT_AFTER, rank=1),
        Plant(point=FaultPoint.DRAFT_EXTEND_NOT_FINITE, rank=0),
    ],
}


@pytest.fixture(scope="module")
def reference(nursery, tmp_path_factory) -> list[Completion]:
    """The target's own answers."""
    with serving(nursery, tmp_path_factory.mktemp("ar"), speculate=False) as engine:
        return asyncio.run(target_answers(engine, held_out(PROMPTS)))


@pytest.fixture(scope="module", params=for_each_layout(SURVIVED))
def running(request, nursery, reference, tmp_path_factory) -> Iterator[tuple[str, Layout, Forked]]:
    """One engine of each layout; `reference` first, so that there is one engine at a time."""
    layout = LAYOUTS[request.param]
    with serving_with_faults(nursery, tmp_path_factory.mktemp(request.param), layout) as engine:
        yield request.param, layout, engine


def check(outcome: Outcome, layout: Layout, reference: list[Completion]) -> None:
    plant = outcome.plant
    report = outcome.compared(reference)
    assert report.is_lossless, f"{plant}: {report.sentence()}"
    assert [(rank.dp, rank.rank) for rank in outcome.after] == list(layout.ranks)
    fallen = {(rank.epoch, rank.mode, rank.steps, rank.reason) for rank in outcome.after}
    assert fallen == {(outcome.before[0].epoch, KnobMode.ZERO_DRAFT, 0, "draft_fault")}, plant
    everywhere = plant.rank < 0 or plant.point is FaultPoint.UNLIKE_DRAFTS
    expected = [{SITES[plant.point]: 1} if everywhere or at == plant.rank else {} for at in range(len(layout.ranks))]
    assert outcome.new_faults() == expected, plant
    for rank, faults in zip(outcome.after, expected, strict=True):
        assert not faults or (rank.last_fault or "").startswith(SITES[plant.point]), plant
    assert {(rank.mode, rank.steps, rank.reason) for rank in outcome.armed} == {(KnobMode.FULL, FULL, "")}, plant
    assert outcome.accepted_again() > 0, plant


def test_a_fault_costs_drafts_and_no_token_and_a_newer_epoch_arms_again(running, reference, subtests):
    """Each plant is told apart and all of them have one engine; parameters would start one for each."""
    name, layout, engine = running
    for plant in SURVIVED[name]:
        with subtests.test(f"{plant.point.name.lower()} on {'all ranks' if plant.rank < 0 else f'rank {plant.rank}'}"):
            check(run(engine, plant, held_out(PROMPTS)), layout, reference)


def test_a_fault_while_other_ranks_are_idle_is_everyones(running, reference):
    """One request: under attention DP one rank has it, and the fault is the other's."""
    _, layout, engine = running
    plant = Plant(point=FaultPoint.DRAFT_AFTER, rank=len(layout.ranks) - 1)
    check(run(engine, plant, held_out(PROMPTS)[:1]), layout, reference[:1])


async def _shared_prefix(engine: Forked) -> tuple[int | None, int | None, int | None]:
    """`draft_kv_missing` of the first rank: before, after a prompt whose draft part failed, after two more that go on from it."""
    prompt = held_out(PROMPTS)[3][::-1]  # which nobody asked before: none of it is cached
    request = {"input_ids": prompt[:-2], "sampling_params": {"temperature": 0, "max_new_tokens": 4}}
    longer = {**request, "input_ids": [*prompt, *prompt[:3]]}
    async with client(engine) as asked:
        [before, *_] = await arm(asked)
        assert await asked.inject(FaultPoint.PREFILL_AFTER)
        await asked.generate(request)
        [failed, *_] = await asked.ranks(seconds=ANSWER_SECONDS)
        for _ in range(2):
            await asked.generate(longer)
        [after, *_] = await asked.ranks(seconds=ANSWER_SECONDS)
    return before.draft_kv_missing, failed.draft_kv_missing, after.draft_kv_missing


async def _counted(engine: Forked, layout: Layout) -> None:
    """What a rank counts against what the answers say, at full, reduced and zero."""
    request = {"sampling_params": {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}}
    async with client(engine) as asked:
        [was, *_] = await arm(asked)
        for steps, mode in ((3, KnobMode.FULL), (1, KnobMode.REDUCED), (0, KnobMode.ZERO_DRAFT)):
            assert await asked.command(epoch=was.epoch + 1, mode=mode, steps=steps)
            [was, *_] = await asked.ranks()
            made = [
                read_rounds((await asked.generate({**request, "input_ids": prompt}))["meta_info"])
                for prompt in held_out(PROMPTS)
            ]
            [now, *_] = await asked.ranks()
            assert now.accepted_drafts - was.accepted_drafts >= sum(each.accepted_drafts for each in made)
            extra = now.verify_rounds - was.verify_rounds - sum(each.rounds for each in made)
            # The overlap schedule may run one round more for a request, whose end it learns of one round late.
            most = PROMPTS if layout.overlap else 0
            assert 0 <= extra <= most, f"{steps} steps: {extra} rounds more than the answers say"
            histogram = [now - was for was, now in zip(was.accepted_histogram, now.accepted_histogram, strict=True)]
            assert sum(histogram) == now.verify_rounds - was.verify_rounds
            assert sum(drafts * count for drafts, count in enumerate(histogram)) == (
                now.accepted_drafts - was.accepted_drafts
            )
            was = now


def test_rows_count_the_rounds_that_the_answers_say(running):
    name, layout, engine = running
    if name.startswith("tp"):
        asyncio.run(_counted(engine, layout))


def test_a_prompt_whose_draft_kv_is_missing_is_remembered_through_the_prefix_cache(running):
    name, _, engine = running
    if name.startswith("tp"):  # under attention DP the second request may go to the other rank
        before, failed, after = asyncio.run(_shared_prefix(engine))
        assert (failed, after) == (before, before + 2)


def test_ranks_that_are_not_to_vote_end_their_engine_at_once_and_say_why(nursery, tmp_path):
    end = RanksAfterFault.END_ENGINE
    with serving_with_faults(nursery, tmp_path, LAYOUTS["tp2"], ranks_after=end) as engine:
        processes = family_of(engine.pid)
        began = time.monotonic()
        asyncio.run(ask_until_lost(engine, Plant(point=FaultPoint.DRAFT_AFTER, rank=1)))
        wait_until_gone(processes, nursery, engine.pid, 30)
        assert time.monotonic() - began < 30
        assert "[faults.end-engine]" in last_words(engine.log.read_text().splitlines(), most=600)


WATCHDOG_SECONDS = 10.0


def test_a_fault_that_leaves_the_other_rank_in_a_collective_ends_by_the_watchdog(nursery, tmp_path):
    with serving_with_faults(nursery, tmp_path, LAYOUTS["tp2"], watchdog_seconds=WATCHDOG_SECONDS) as engine:
        processes = family_of(engine.pid)
        began = time.monotonic()
        asyncio.run(ask_until_lost(engine, Plant(point=FaultPoint.DRAFT_IN, rank=1)))
        wait_until_gone(processes, nursery, engine.pid, 60)
        took = time.monotonic() - began
    sys.stdout.write(
        f"\nwatchdog at {WATCHDOG_SECONDS:.0f} s: all {len(processes)} processes gone after {took:.1f} s\n"
    )
    assert took < 1.5 * WATCHDOG_SECONDS + 15, (
        "longer than its two looks, its wait of 5 s and what a busy machine needs"
    )
