"""The knob in the real engine: every layout of its ranks, under load, and whatever else is sent to it."""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.names import read_rounds
from spec_toolkit.engine.ranks import RankState
from spec_toolkit.errors import EngineError
from spec_toolkit.launch.forked import Forked
from spec_toolkit.prove.lossless import TOLERANCE_NATS, Completion, collect, compare_all
from spec_toolkit.prove.sampling import collect_samples, compare_samples
from spec_toolkit.shipped import rehearsal, shipped
from spec_toolkit.terms import KnobAnswer, KnobMode
from tests.engine.serving import ADMIN_KEY, serving
from tests.patches.switching import (
    ANSWER_SECONDS,
    LAYOUTS,
    STREAMS,
    TOKENS,
    Layout,
    Said,
    client,
    compare_said,
    for_each_layout,
    held_out,
    load,
    mode_for,
    serving_in,
    switch_under_load,
    switches_in_effect,
    target_answers,
)

pytestmark = pytest.mark.engine

PROMPTS = 30
SWITCHES = {"tp1": 100, "tp1-without-overlap": 40, "tp2": 40, "attention-dp": 40}


@pytest.fixture(scope="module")
def reference(nursery, tmp_path_factory) -> list[Completion]:
    """The target's own answers."""
    with serving(nursery, tmp_path_factory.mktemp("ar"), speculate=False) as engine:
        return asyncio.run(target_answers(engine, held_out(PROMPTS)))


@pytest.fixture(scope="module")
def parallel_reference(nursery, tmp_path_factory) -> list[Completion]:
    """The target's answers of two attention-DP ranks under load."""
    layout = LAYOUTS["attention-dp"]
    with serving_in(nursery, tmp_path_factory.mktemp("ar-dp"), layout, speculate=False) as engine:
        return asyncio.run(target_answers(engine, held_out(PROMPTS), concurrency=STREAMS))


@pytest.fixture(scope="module", params=for_each_layout(SWITCHES))
def running(request, nursery, reference, tmp_path_factory) -> Iterator[tuple[str, Layout, Forked]]:
    """One engine of each layout; the references first, so that there is one engine at a time."""
    if request.param == "attention-dp":
        request.getfixturevalue("parallel_reference")
    layout = LAYOUTS[request.param]
    with serving_in(nursery, tmp_path_factory.mktemp(request.param), layout) as engine:
        yield request.param, layout, engine


def test_switching_under_load_changes_no_output_and_every_rank_follows(running, reference):
    name, layout, engine = running
    switches = SWITCHES[name]
    run = asyncio.run(switch_under_load(engine, held_out(PROMPTS), switches=switches))
    report = run.compared(reference)
    sys.stdout.write(
        f"\n{name}: {switches} switches, {switches_in_effect(engine)} between two rounds, {len(run.answers)} answers; "
        f"{report.sentence()}\n"
    )
    assert report.is_lossless, report.sentence()
    assert len(run.answers) >= PROMPTS
    assert [(rank.dp, rank.rank) for rank in run.ranks] == list(layout.ranks)
    assert {(rank.epoch, rank.steps, rank.mode) for rank in run.ranks} == {(switches, run.steps, mode_for(run.steps))}
    assert {(rank.taken, rank.refused) for rank in run.ranks} == {(switches, 0)}
    # Commands that no round stood between would show little.
    assert switches_in_effect(engine) >= switches // 2
    assert sum(said.made.accepted_drafts for said in run.answers) > 100


async def _zero_draft(engine: Forked) -> list[dict[str, object]]:
    """At zero drafts, some answers together; then back to full."""
    request = {"sampling_params": {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}}
    async with client(engine) as asked:
        epoch = (await asked.ranks())[0].epoch
        assert await asked.command(epoch=epoch + 1, mode=KnobMode.ZERO_DRAFT, steps=0)
        answers = await asyncio.gather(*(asked.generate({**request, "input_ids": ids}) for ids in held_out(6)))
        assert await asked.command(epoch=epoch + 2, mode=KnobMode.FULL, steps=3)
        answers.append(await asked.generate({**request, "input_ids": held_out(1)[0]}))
    return [answer["meta_info"] for answer in answers]


def test_at_zero_drafts_every_round_emits_one_token_and_full_comes_back(running):
    _, _, engine = running
    *zero, full = [read_rounds(meta) for meta in asyncio.run(_zero_draft(engine))]
    for made in zero:
        assert made.emitted_length == 1.0
        assert made.rounds == made.emitted_tokens - 1  # the first token is prefill's
        assert made.accepted_histogram in (None, (), (made.rounds,))
    assert full.accepted_drafts > 0
    assert full.emitted_length > 1.0


async def _sampled(engine: Forked, prompt: Sequence[int], steps: int) -> list[Completion]:
    async with client(engine) as asked:
        epoch = (await asked.ranks())[0].epoch + 1
        assert await asked.command(epoch=epoch, mode=mode_for(steps), steps=steps)
        params = {"temperature": 1.6, "top_k": 8, "ignore_eos": True}
        return await collect_samples(asked, prompt, count=256, max_new_tokens=4, params=params, seeds=range(256))


def test_at_zero_drafts_rejection_samples_as_it_does_at_full(nursery, tmp_path):
    """The engine alone refuses such a round for want of the drafts' probabilities, and ends."""
    layout = Layout(arguments=("--speculative-use-rejection-sampling", "--enable-deterministic-inference"))
    with serving_in(nursery, tmp_path, layout) as engine:
        full, zero = (asyncio.run(_sampled(engine, held_out(1)[0], steps)) for steps in (3, 0))
    assert {made.accepted_drafts for answer in zero if (made := answer.made)} == {0}
    assert sum(made.accepted_drafts for answer in full if (made := answer.made)) > 64
    report = compare_samples(full, zero)
    sys.stdout.write(f"\n{report.sentence()}\n")
    assert report.is_within_bounds, report.sentence()


async def _until(asked: EngineClient, holds: Callable[[tuple[RankState, ...]], bool]) -> tuple[RankState, ...]:
    """Read the ranks until they are as wished."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while not holds(ranks := await asked.ranks(seconds=ANSWER_SECONDS)):
        assert time.monotonic() < deadline, ranks
    return ranks


def _verified(ranks: tuple[RankState, ...]) -> int:
    return sum(rank.verify_rounds or 0 for rank in ranks)


async def _burst(engine: Forked) -> list[Said]:
    async with client(engine) as asked:
        before = await asked.ranks()
        base = before[0].epoch
        epochs = list(range(base + 1, base + 65))
        random.Random(4).shuffle(epochs)  # noqa: S311 - seeded, so that a run repeats
        async with load(asked, held_out(PROMPTS)[:4], streams=4) as said:
            await _until(asked, lambda ranks: _verified(ranks) > _verified(before))
            taken = await asyncio.gather(
                *(
                    asked.command(epoch=epoch, mode=mode_for(epoch % 4), steps=epoch % 4, seconds=2 * ANSWER_SECONDS)
                    for epoch in epochs
                )
            )
            after = await asked.ranks(seconds=60)
        highest = max(epochs)
        assert {(rank.epoch, rank.steps) for rank in after} == {(highest, highest % 4)}
        assert taken[epochs.index(highest)]
        for was, now in zip(before, after, strict=True):
            assert (now.taken - was.taken, now.refused - was.refused) == (sum(taken), 64 - sum(taken))
        for stale in (highest, highest - 1, 1):
            assert not await asked.command(epoch=stale, mode=KnobMode.FULL, steps=3)
        assert {(rank.epoch, rank.last) for rank in await asked.ranks()} == {(highest, KnobAnswer.STALE)}
        assert await asked.command(epoch=highest + 1, mode=KnobMode.FULL, steps=3)
        return said


def test_of_a_burst_of_shuffled_epochs_under_load_the_highest_wins_and_stale_ones_are_refused(running, reference):
    _, _, engine = running
    report = compare_said(asyncio.run(_burst(engine)), reference)
    assert report.is_lossless, report.sentence()


async def _gone_before_the_answer(engine: Forked) -> None:
    """A caller that sends a command and hangs up, as one does that ran out of time."""
    async with client(engine) as asked:
        epoch = (await asked.ranks())[0].epoch + 1
        body = json.dumps({"server_args": {"epoch": epoch, "mode": int(KnobMode.REDUCED), "steps": 1}})
        host, _, port = engine.address.removeprefix("http://").partition(":")
        _, caller = await asyncio.open_connection(host, int(port))
        caller.write(
            f"POST /set_internal_state HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ADMIN_KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        await caller.drain()
        caller.close()
        ranks = await _until(asked, lambda ranks: all(rank.epoch == epoch for rank in ranks))
        assert {(rank.mode, rank.steps, rank.last) for rank in ranks} == {(KnobMode.REDUCED, 1, KnobAnswer.TAKEN)}
        assert not await asked.command(epoch=epoch, mode=KnobMode.FULL, steps=3)
        assert await asked.command(epoch=epoch + 1, mode=KnobMode.FULL, steps=3)


def test_a_caller_that_hangs_up_has_its_command_applied_and_reads_the_epoch_back(running):
    _, _, engine = running
    asyncio.run(_gone_before_the_answer(engine))


ATTENTION_DP = pytest.mark.parametrize("running", ["attention-dp"], indirect=True)


@ATTENTION_DP
def test_a_rank_that_idles_follows_every_command(running, reference):
    _, layout, engine = running
    # One answer at a time: whichever rank makes it, the other has nothing to do.
    run = asyncio.run(switch_under_load(engine, held_out(PROMPTS)[:2], switches=10, streams=1))
    report = run.compared(reference)
    assert report.is_lossless, report.sentence()
    assert len(run.ranks) == len(layout.ranks)
    assert {(rank.epoch, rank.steps) for rank in run.ranks} == {(run.before[0].epoch + 10, run.steps)}
    together = {now.rounds - was.rounds for was, now in zip(run.before, run.ranks, strict=True)}
    own = [_verified((now,)) - _verified((was,)) for was, now in zip(run.before, run.ranks, strict=True)]
    assert len(together) == 1, "the ranks did not go through the same rounds"
    assert all(own), "a rank never had a request"
    assert sum(own) <= together.pop(), "both ranks had requests in one round"


@ATTENTION_DP
def test_full_speculation_under_load_changes_no_output_of_the_same_ranks(running, reference, parallel_reference):
    _, _, engine = running
    answers = asyncio.run(_at_full(engine))
    sys.stdout.write("\n")
    for of, target in (("the same ranks", parallel_reference), ("one rank, one at a time", reference)):
        report = compare_all(target, answers, tolerance_nats=TOLERANCE_NATS["float32"])
        sys.stdout.write(f"attention-dp at full, against {of}: {report.sentence()}\n")
        assert report.is_lossless, report.sentence()
    assert sum(answer.made.accepted_drafts for answer in answers if answer.made) > 500


async def _set(asked: aiohttp.ClientSession, engine: Forked, body: str) -> tuple[int, set[object]]:
    """Status, and the different answers of the ranks that answer."""
    headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"}
    async with asked.post(f"{engine.address}/set_internal_state", data=body, headers=headers) as answer:
        return answer.status, set(json.loads(await answer.text()))


REFUSED = [
    ({"epoch": 9999, "mode": 2}, KnobAnswer.WRONG_KEYS),
    ({"steps": 0}, KnobAnswer.WRONG_KEYS),
    ({"epoch": 9999, "mode": 2, "steps": 0, "pp_max_micro_batch_size": 4}, KnobAnswer.WRONG_KEYS),
    ({"epoch": 9999.5, "mode": 2, "steps": 0}, KnobAnswer.NOT_WHOLE),
    ({"epoch": 1e300, "mode": 2, "steps": 0}, KnobAnswer.NOT_WHOLE),
    ({"epoch": 9999, "mode": 7, "steps": 0}, KnobAnswer.UNKNOWN_MODE),
    ({"epoch": 9999, "mode": 0, "steps": 4}, KnobAnswer.UNKNOWN_STEPS),
    ({"epoch": 9999, "mode": 2, "steps": -1}, KnobAnswer.UNKNOWN_STEPS),
    ({"epoch": 9999, "mode": 0, "steps": 2}, KnobAnswer.CONTRADICTION),
    ({"epoch": 9999, "mode": 2, "steps": 3}, KnobAnswer.CONTRADICTION),
    ({"epoch": 0, "mode": 0, "steps": 3}, KnobAnswer.STALE),
]
NOT_FOR_US = [{"speculative_accept_threshold_single": 0.5}, {"speculative_accept_threshold_acc": 0}, {"no_such_key": 1}]
# The engine's own reading of the request refuses these before a rank hears of them.
NO_NUMBERS = [
    '{"server_args": {"epoch": "six"}}',
    '{"server_args": {"steps": null}}',
    '{"server_args": [6, 2, 0]}',
    "{",
]


async def _bad_commands(engine: Forked) -> None:
    async with aiohttp.ClientSession() as session, client(engine) as asked:
        before = await asked.ranks()
        for command, answer in REFUSED:
            assert await _set(session, engine, json.dumps({"server_args": command})) == (200, {False}), command
            assert {rank.last for rank in await asked.ranks()} == {answer}, command
        for command in NOT_FOR_US:
            assert await _set(session, engine, json.dumps({"server_args": command})) == (200, {False}), command
        for body in NO_NUMBERS:
            assert (await _set(session, engine, body))[0] in (400, 422), body
        after = await asked.ranks()
        for was, now in zip(before, after, strict=True):
            assert (now.epoch, now.mode, now.steps, now.taken) == (was.epoch, was.mode, was.steps, was.taken)
            assert now.refused - was.refused == len(REFUSED)
        assert await _set(session, engine, '{"server_args": {"pp_max_micro_batch_size": 4}}') == (200, {True})
        assert await _set(session, engine, '{"server_args": {"speculative_accept_threshold_acc": 1}}') == (200, {True})
        assert (await asked.generate({"text": "The", "sampling_params": {"max_new_tokens": 4}}))["text"]


def test_bad_commands_change_nothing_and_leave_the_engine_alive_with_its_own_keys(running):
    _, _, engine = running
    asyncio.run(_bad_commands(engine))


async def _at_full(engine: Forked) -> list[Completion]:
    async with client(engine) as asked:
        epoch = (await asked.ranks())[0].epoch
        assert await asked.command(epoch=epoch + 1, mode=KnobMode.FULL, steps=3)
        return await collect(asked, held_out(PROMPTS), max_new_tokens=TOKENS, concurrency=STREAMS)


async def _without_the_key(engine: Forked) -> None:
    async with EngineClient(engine.address) as stranger:
        before = await stranger.ranks()
        with pytest.raises(EngineError, match="HTTP 401"):
            await stranger.command(epoch=99999, mode=KnobMode.ZERO_DRAFT, steps=0)
        assert [rank.epoch for rank in await stranger.ranks()] == [rank.epoch for rank in before]


def test_a_command_without_the_admin_key_is_refused(running):
    _, _, engine = running
    asyncio.run(_without_the_key(engine))


async def _fixed_steps(engine: Forked) -> None:
    async with client(engine) as asked:
        assert await asked.ranks() == ()
        assert not await asked.command(epoch=1, mode=KnobMode.ZERO_DRAFT, steps=0)
        assert (await asked.generate({"text": "The", "sampling_params": {"max_new_tokens": 4}}))["text"]


def test_an_engine_at_fixed_steps_refuses_every_command_and_has_no_ranks_to_show(nursery, tmp_path):
    with serving_in(nursery, tmp_path, LAYOUTS["tp1"], adaptive=False) as engine:
        asyncio.run(_fixed_steps(engine))


def test_ranks_that_take_commands_apart_do_not_start(nursery, tmp_path):
    apart = replace(LAYOUTS["attention-dp"], arguments=("--enable-dp-attention-local-control-broadcast",))
    with pytest.raises(EngineError, match=r"knob\.local-broadcast"), serving_in(nursery, tmp_path, apart):
        pytest.fail("it serves")


REASONS = """
import importlib.util, json, os, sys
from types import SimpleNamespace
from sglang.srt.speculative.adaptive_spec_params import adaptive_unsupported_reason

spec = importlib.util.spec_from_file_location("hooks", sys.argv[1])
hooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hooks)
for changes in json.load(sys.stdin):
    os.environ.update(changes.pop("environment", {}))
    arguments = SimpleNamespace(**changes)
    both = adaptive_unsupported_reason(arguments), hooks.unsupported_reason(adaptive_unsupported_reason, arguments)
    print(json.dumps(both))
"""
PLAIN = {
    "speculative_algorithm": "EAGLE",
    "speculative_eagle_topk": 1,
    "attn_dp_size": 1,
    "enable_multi_layer_eagle": False,
    "enable_two_batch_overlap": False,
    "enable_pdmux": False,
    "ep_join_mode": None,
}
SAFE = [{}, {"attn_dp_size": 2}]
UNSAFE = [
    {"speculative_algorithm": "NGRAM"},
    {"speculative_eagle_topk": 4},
    {"enable_multi_layer_eagle": True},
    {"enable_two_batch_overlap": True},
    {"enable_pdmux": True},
]


def _reasons(cases: list[dict[str, object]]) -> list[list[str | None]]:
    """Of each, the engine's reason and ours. What a case sets in its `environment` stays set for those after it."""
    hooks = shipped("patches") / "sglang_0_5_23" / "runtime_knob" / "hooks.py"
    done = subprocess.run(
        [sys.executable, "-c", REASONS, str(hooks)],
        input=json.dumps([{**PLAIN, **case} for case in cases]),
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(rehearsal() / "path"), str(Path(__file__).parents[2])]),
            "SGLANG_USE_CPU_ENGINE": "1",
            "OMP_NUM_THREADS": "1",
            "TORCHDYNAMO_DISABLE": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_only_attention_dp_is_taken_back_and_nothing_that_hides_behind_it():
    alone, under_dp = UNSAFE, [{**case, "attn_dp_size": 2} for case in UNSAFE]
    coordinated = {"attn_dp_size": 2, "environment": {"SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION": "1"}}
    found = _reasons([*SAFE, *alone, *under_dp, coordinated])
    assert found[0] == [None, None]
    assert found[1][0].startswith("attention DP is not supported")
    assert found[1][1] is None
    for case, (engines, ours) in zip(alone, found[2:7], strict=True):
        assert engines, case
        assert ours == engines, case
    for case, (engines, ours) in zip([*under_dp, coordinated], found[7:], strict=True):
        assert engines, case
        assert ours, case
