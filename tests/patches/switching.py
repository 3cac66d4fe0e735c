"""The engine with the runtime knob, load on it, and commands while it works: for the tests and for `measure_switching.py`."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.flags import Flag
from spec_toolkit.engine.names import Rounds, read_rounds
from spec_toolkit.engine.ranks import RankState
from spec_toolkit.launch.forked import Forked, forked, wait_until_ready
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.prove.lossless import TOLERANCE_NATS, Completion, Report, collect, compare_all
from spec_toolkit.recipe.load import LoadedRecipe
from spec_toolkit.recipe.schema import Layout as RecipeLayout
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.shipped import rehearsal
from spec_toolkit.terms import KnobMode
from tests.engine.serving import ADMIN_KEY, launch_spec, rehearsal_recipe

CANDIDATES = (0, 1, 2, 3)
STREAMS = 8
TOKENS = 48
ANSWER_SECONDS = 120.0  # of one answer or command, on a busy machine


@dataclass(frozen=True, slots=True)
class Layout:
    """How the engine's ranks are laid out, as a recipe says it."""

    hardware: RecipeLayout = field(default_factory=RecipeLayout)
    ranks: tuple[tuple[int, int], ...] = ((0, 0),)  # (data-parallel rank, rank of its tensor-parallel group)
    overlap: bool = True
    arguments: tuple[str, ...] = ()  # of the engine, behind those of the recipe


LAYOUTS = {
    "tp1": Layout(),
    "tp1-without-overlap": Layout(overlap=False),
    "tp2": Layout(RecipeLayout(tp=2), ((0, 0), (0, 1))),
    "attention-dp": Layout(RecipeLayout(tp=2, dp=2, dp_attention=True), ((0, 0), (1, 1))),
}


@contextmanager
def serving_in(
    nursery: Nursery, folder: Path, layout: Layout, *, speculate: bool = True, adaptive: bool = True
) -> Iterator[Forked]:
    """The rehearsal at CANDIDATES, with its ranks laid out; `adaptive=False` leaves it at its fixed steps."""
    spec = launch_spec(folder, _recipe(layout), speculate=speculate)
    words = list(spec.command)
    if not adaptive:
        words.remove(Flag.ADAPTIVE)
        at = words.index(Flag.ADAPTIVE_CONFIG)
        del words[at : at + 2]
    with forked(nursery, folder, msgspec.structs.replace(spec, command=tuple(words)), *layout.arguments) as engine:
        wait_until_ready(nursery, engine)
        yield engine


def _recipe(layout: Layout) -> LoadedRecipe:
    loaded = rehearsal_recipe(num_steps=max(CANDIDATES), overlap=layout.overlap)
    recipe: Recipe = loaded.recipe
    changed = msgspec.structs.replace(
        recipe,
        hardware=msgspec.structs.replace(recipe.hardware, layout=layout.hardware),
        policy=msgspec.structs.replace(recipe.policy, reduced_steps=CANDIDATES[1:-1]),
    )
    return replace(loaded, recipe=changed)


def for_each_layout(names: Iterable[str]) -> list[Any]:
    """As parameters; the schedule that production does not run is of the long matrix."""
    return [pytest.param(name, marks=[] if LAYOUTS[name].overlap else [pytest.mark.matrix]) for name in names]


def client(engine: Forked) -> EngineClient:
    return EngineClient(engine.address, admin_key=ADMIN_KEY)


def held_out(count: int) -> list[list[int]]:
    """Token ids of held-out prompts, evenly over the buckets."""
    model = rehearsal() / "models" / "deepseek_v3_tiny"
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    rows = (model / "held_out.jsonl").read_text(encoding="utf-8").splitlines()
    chosen = rows[:: max(1, len(rows) // count)][:count]
    return [tokenizer.encode(json.loads(row)["prompt"]).ids for row in chosen]


async def target_answers(engine: Forked, prompts: Sequence[Sequence[int]], *, concurrency: int = 1) -> list[Completion]:
    """Of an engine without speculation, with the log-probabilities a difference is judged by."""
    async with client(engine) as asked:
        return await collect(asked, prompts, max_new_tokens=TOKENS, concurrency=concurrency, with_logprobs=True)


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
    before: tuple[RankState, ...]
    ranks: tuple[RankState, ...]  # after the last one
    steps: int  # the last one's

    def compared(self, reference: Sequence[Completion]) -> Report:
        """Every answer against the target's own."""
        return compare_said(self.answers, reference)


def compare_said(answers: Sequence[Said], reference: Sequence[Completion]) -> Report:
    return compare_all(
        [reference[said.prompt] for said in answers],
        [Completion(output_ids=said.output_ids) for said in answers],
        tolerance_nats=TOLERANCE_NATS["float32"],
    )


@asynccontextmanager
async def load(
    asked: EngineClient, prompts: Sequence[Sequence[int]], *, streams: int = STREAMS
) -> AsyncIterator[list[Said]]:
    """Streams that keep asking while the block runs, each prompt once at least. The list is full once the block has ended."""
    done = asyncio.Event()
    turns = itertools.count()
    said: list[Said] = []
    asking = [asyncio.create_task(_keep_asking(asked, prompts, turns, done)) for _ in range(streams)]
    try:
        yield said
    finally:
        done.set()
        for answers in await asyncio.gather(*asking):
            said += answers


async def switch_under_load(
    engine: Forked, prompts: Sequence[Sequence[int]], *, switches: int, streams: int = STREAMS, seed: int = 2
) -> Run:
    """`switches` commands, each to other steps than the last, while every prompt is answered at least once."""
    async with client(engine) as asked:
        before = await asked.ranks()
        seconds = []
        steps = before[0].steps
        chance = random.Random(seed)  # noqa: S311 - seeded, so that a run repeats
        async with load(asked, prompts, streams=streams) as answers:
            for epoch in range(before[0].epoch + 1, before[0].epoch + 1 + switches):
                steps = chance.choice([other for other in CANDIDATES if other != steps])
                began = time.perf_counter()
                assert await asked.command(epoch=epoch, mode=mode_for(steps), steps=steps, seconds=ANSWER_SECONDS)
                seconds.append(time.perf_counter() - began)
        ranks = await asked.ranks(seconds=ANSWER_SECONDS)
    return Run(answers, sorted(seconds), before, ranks, steps)


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


def switches_in_effect(engine: Forked) -> int:
    """How often the engine says it changed its width; its first rank only."""
    return engine.log.read_text(errors="replace").count("Switch adaptive runtime state")
