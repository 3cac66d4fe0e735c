"""The engine with the runtime knob, load on it, and commands while it works: for the tests and for `measure_switching.py`."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.flags import Flag
from spec_toolkit.engine.names import Rounds, read_rounds
from spec_toolkit.engine.patch_file import Family
from spec_toolkit.engine.patches import choose_patches, hand_over, patches_folder, read_patches
from spec_toolkit.engine.ranks import RankState
from spec_toolkit.prove.lossless import TOLERANCE_NATS, Completion, Report, collect, compare_all
from spec_toolkit.shipped import rehearsal, shipped
from spec_toolkit.terms import KnobMode
from tests.engine.serving import ADMIN_KEY, Serving, launch_spec, rehearsal_recipe, wait_until_ready
from tests.rehearsal.nursery_client import Nursery

CANDIDATES = (0, 1, 2, 3)
STREAMS = 8
TOKENS = 48
ANSWER_SECONDS = 120.0  # of one answer or command, on a busy machine

_TP2 = ("--tp-size", "2")


@dataclass(frozen=True, slots=True)
class Layout:
    """How the engine's ranks are laid out."""

    arguments: tuple[str, ...] = ()
    ranks: tuple[tuple[int, int], ...] = ((0, 0),)  # (data-parallel rank, rank of its tensor-parallel group)
    overlap: bool = True


LAYOUTS = {
    "tp1": Layout(),
    "tp1-without-overlap": Layout(overlap=False),
    "tp2": Layout(_TP2, ((0, 0), (0, 1))),
    "attention-dp": Layout((*_TP2, "--dp-size", "2", "--enable-dp-attention"), ((0, 0), (1, 1))),
}


@contextmanager
def serving_with_knob(nursery: Nursery, folder: Path, layout: Layout, *, adaptive: bool = True) -> Iterator[Serving]:
    """The rehearsal with the patch requested; `adaptive=False` leaves the engine at its fixed steps."""
    spec = launch_spec(folder, rehearsal_recipe(num_steps=max(CANDIDATES), overlap=layout.overlap), speculate=True)
    every = read_patches(patches_folder(shipped("patches"), "0.5.23"))
    hand_over(choose_patches(every, family=Family.DEEPSEEK, rehearsal=True, requested=["runtime-knob"]), folder)
    config = folder / "adaptive.json"
    config.write_text(json.dumps({"1": {"candidate_steps": CANDIDATES}}))
    switches = ["--speculative-adaptive", "--speculative-adaptive-config", str(config)] if adaptive else []
    bind = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"} if len(layout.ranks) > 1 else {}
    log = folder / "engine.log"
    # Without sleeping: of two attention-DP ranks the one without a message would sleep a second, and the other wait for it.
    own = [word for word in spec.command[2:] if word != Flag.SLEEP_ON_IDLE]
    pid = nursery.spawn([*own, *layout.arguments, *switches], {**spec.set_environment, **bind}, log)
    try:
        wait_until_ready(nursery, pid, spec.address, log)
        yield Serving(spec.address, pid, log, folder)
    finally:
        if nursery.exit_code(pid) is None:
            nursery.kill(pid, 9)
            nursery.wait(pid, 30)


def client(engine: Serving) -> EngineClient:
    return EngineClient(engine.address, admin_key=ADMIN_KEY)


def held_out(count: int) -> list[list[int]]:
    """Token ids of held-out prompts, evenly over the buckets."""
    model = rehearsal() / "models" / "deepseek_v3_tiny"
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    rows = (model / "held_out.jsonl").read_text(encoding="utf-8").splitlines()
    chosen = rows[:: max(1, len(rows) // count)][:count]
    return [tokenizer.encode(json.loads(row)["prompt"]).ids for row in chosen]


async def target_answers(engine: Serving, prompts: Sequence[Sequence[int]]) -> list[Completion]:
    """Of an engine without speculation, with the log-probabilities a difference is judged by."""
    async with client(engine) as asked:
        return await collect(asked, prompts, max_new_tokens=TOKENS, concurrency=1, with_logprobs=True)


@dataclass(frozen=True, slots=True)
class Said:
    """One streamed answer under load."""

    prompt: int  # index
    output_ids: tuple[int, ...]
    made: Rounds


@dataclass(frozen=True, slots=True)
class Run:
    """Commands under load."""

    answers: list[Said]
    seconds: list[float]  # of each command, sorted
    ranks: tuple[RankState, ...]  # after the last one
    steps: int  # the last one's

    def compared(self, reference: Sequence[Completion]) -> Report:
        """Every answer against the target's own."""
        return compare_all(
            [reference[said.prompt] for said in self.answers],
            [Completion(output_ids=said.output_ids) for said in self.answers],
            tolerance_nats=TOLERANCE_NATS["float32"],
        )


async def switch_under_load(engine: Serving, prompts: Sequence[Sequence[int]], *, switches: int, seed: int = 2) -> Run:
    """`switches` commands, each to other steps than the last, while every prompt is answered at least once."""
    async with client(engine) as asked:
        epoch = (await asked.ranks())[0].epoch
        done = asyncio.Event()
        turns = itertools.count()
        streams = [asyncio.create_task(_keep_asking(asked, prompts, turns, done)) for _ in range(STREAMS)]
        seconds = []
        steps = max(CANDIDATES)
        chance = random.Random(seed)  # noqa: S311 - seeded, so that a run repeats
        try:
            for each in range(epoch + 1, epoch + 1 + switches):
                steps = chance.choice([other for other in CANDIDATES if other != steps])
                began = time.perf_counter()
                assert await asked.command(epoch=each, mode=mode_for(steps), steps=steps, seconds=ANSWER_SECONDS)
                seconds.append(time.perf_counter() - began)
        finally:
            done.set()
        answers = [said for stream in await asyncio.gather(*streams) for said in stream]
        ranks = await asked.ranks(seconds=ANSWER_SECONDS)
    return Run(answers, sorted(seconds), ranks, steps)


async def _keep_asking(
    asked: EngineClient, prompts: Sequence[Sequence[int]], turns: Iterator[int], done: asyncio.Event
) -> list[Said]:
    answers = []
    for turn in turns:  # shared with the other streams
        if done.is_set() and turn >= len(prompts):
            break
        answers.append(await _streamed(asked, turn % len(prompts), prompts[turn % len(prompts)]))
    return answers


async def _streamed(asked: EngineClient, index: int, prompt: Sequence[int]) -> Said:
    request = {"input_ids": list(prompt), "sampling_params": {"temperature": 0, "max_new_tokens": TOKENS}}
    ids: list[int] = []
    event: dict[str, object] = {}
    async for event in asked.stream(request, seconds=ANSWER_SECONDS):
        longer = event["output_ids"]
        assert longer[: len(ids)] == ids, "a token that was sent was taken back"
        ids = longer
    meta = event["meta_info"]
    assert meta["finish_reason"], "the stream ended before the answer did"
    assert meta["completion_tokens"] == len(ids), "a token was lost or doubled on its way"
    return Said(index, tuple(ids), read_rounds(meta))


def mode_for(steps: int) -> KnobMode:
    if steps == 0:
        return KnobMode.ZERO_DRAFT
    return KnobMode.FULL if steps == max(CANDIDATES) else KnobMode.REDUCED


def switches_in_effect(engine: Serving) -> int:
    """How often the engine says it changed its width; its first rank only."""
    return engine.log.read_text(errors="replace").count("Switch adaptive runtime state")
