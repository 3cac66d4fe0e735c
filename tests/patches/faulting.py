"""The engine with faults planted in its draft, and what became of it: for the tests and for `measure_faults.py`."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from psutil import STATUS_ZOMBIE, NoSuchProcess, Process

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.flags import Flag
from spec_toolkit.engine.patch_file import Family
from spec_toolkit.engine.patches import choose_patches, hand_over, patches_folder, read_patches
from spec_toolkit.engine.ranks import RankState
from spec_toolkit.errors import EngineError
from spec_toolkit.launch.forked import Forked, forked, wait_until_ready
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.prove.lossless import TOLERANCE_NATS, Completion, Report, collect, compare_all
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.shipped import shipped
from spec_toolkit.terms import FaultPoint, KnobMode, RanksAfterFault
from tests.engine.serving import launch_spec, rehearsal_recipe
from tests.patches.switching import ANSWER_SECONDS, CANDIDATES, TOKENS, Layout, client, held_out

FULL = max(CANDIDATES)
TOGETHER = 4  # requests at once


@contextmanager
def serving_with_faults(
    nursery: Nursery,
    folder: Path,
    layout: Layout,
    *,
    ranks_after: RanksAfterFault = RanksAfterFault.VOTE,
    watchdog_seconds: float | None = None,
) -> Iterator[Forked]:
    """The rehearsal as `deploy` starts it, with its ranks laid out and the patch that plants faults requested."""
    loaded = rehearsal_recipe(num_steps=FULL, overlap=layout.overlap)
    recipe: Recipe = loaded.recipe
    policy = msgspec.structs.replace(recipe.policy, reduced_steps=CANDIDATES[1:-1], ranks_after_draft_fault=ranks_after)
    if watchdog_seconds is not None:
        policy = msgspec.structs.replace(policy, watchdog_seconds=watchdog_seconds)
    hardware = msgspec.structs.replace(recipe.hardware, layout=layout.hardware)
    changed = msgspec.structs.replace(recipe, hardware=hardware, policy=policy)
    spec = launch_spec(folder, replace(loaded, recipe=changed), speculate=True)
    every = read_patches(patches_folder(shipped("patches"), "0.5.23"))
    hand_over(choose_patches(every, family=Family.DEEPSEEK, rehearsal=True, requested=["inject-draft-faults"]), folder)
    # Without sleeping: of two attention-DP ranks the one without a message would sleep a second, and the other wait for it.
    words = tuple(word for word in spec.command if word != Flag.SLEEP_ON_IDLE)
    with forked(nursery, folder, msgspec.structs.replace(spec, command=words), *layout.arguments) as engine:
        wait_until_ready(nursery, engine)
        yield engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """One fault."""

    point: FaultPoint
    rank: int = -1  # of the tensor-parallel group; -1: all
    times: int = 1

    @property
    def after(self) -> int:
        """Calls of the point that pass first; prompts may be prefilled together, in one."""
        return 0 if self.point.name.startswith("PREFILL") else 2

    def __str__(self) -> str:
        return f"{self.point.name.lower()} on {'all ranks' if self.rank < 0 else f'rank {self.rank}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one fault, with the engine full before it and again after it."""

    plant: Plant
    answers: list[Completion]  # while the fault happened
    again: list[Completion]  # after the draft was armed again
    before: tuple[RankState, ...]
    after: tuple[RankState, ...]  # the fault
    armed: tuple[RankState, ...]  # after `again`
    seconds: float

    def compared(self, reference: Sequence[Completion]) -> Report:
        """Both rounds of answers against the target's own."""
        return compare_all(
            [*reference, *reference[: len(self.again)]],
            [*self.answers, *self.again],
            tolerance_nats=TOLERANCE_NATS["float32"],
        )

    def new_faults(self) -> list[dict[str, int]]:
        """Of each rank, by site."""
        return [
            {
                site: count - (was.draft_faults or {}).get(site, 0)
                for site, count in (now.draft_faults or {}).items()
                if count > (was.draft_faults or {}).get(site, 0)
            }
            for was, now in zip(self.before, self.after, strict=True)
        ]

    def accepted_again(self) -> int:
        """By one rank of each batch, or by several of the same: more than none is what counts."""
        return sum(
            (now.accepted_drafts or 0) - (was.accepted_drafts or 0)
            for was, now in zip(self.after, self.armed, strict=True)
        )


async def arm(asked: EngineClient) -> tuple[RankState, ...]:
    """Full by a newer epoch; the ranks' rows then."""
    epoch = (await asked.ranks(seconds=ANSWER_SECONDS))[0].epoch
    assert await asked.command(epoch=epoch + 1, mode=KnobMode.FULL, steps=FULL, seconds=ANSWER_SECONDS)
    return await asked.ranks(seconds=ANSWER_SECONDS)


async def endure(engine: Forked, plant: Plant, prompts: Sequence[Sequence[int]], *, again: int = 2) -> Outcome:
    """Plant the fault in an engine that drafts fully, answer the prompts, arm it again, answer some once more."""
    async with client(engine) as asked:
        before = await arm(asked)
        assert await asked.inject(
            plant.point, rank=plant.rank, after=plant.after, times=plant.times, seconds=ANSWER_SECONDS
        )
        began = time.perf_counter()
        answers = await collect(asked, prompts, max_new_tokens=TOKENS, concurrency=TOGETHER)
        seconds = time.perf_counter() - began
        after = await asked.ranks(seconds=ANSWER_SECONDS)
        assert await asked.inject(plant.point, times=0, seconds=ANSWER_SECONDS)
        await arm(asked)
        more = await collect(asked, prompts[:again], max_new_tokens=TOKENS, concurrency=TOGETHER)
        armed = await asked.ranks(seconds=ANSWER_SECONDS)
    return Outcome(plant=plant, answers=answers, again=more, before=before, after=after, armed=armed, seconds=seconds)


def run(engine: Forked, plant: Plant, prompts: Sequence[Sequence[int]]) -> Outcome:
    return asyncio.run(endure(engine, plant, prompts))


def family_of(pid: int) -> list[Process]:
    """The engine's first process and all below it."""
    first = Process(pid)
    return [first, *first.children(recursive=True)]


async def ask_until_lost(engine: Forked, plant: Plant) -> None:
    """Plant a fault that ends the engine, and ask until it has."""
    async with client(engine) as asked:
        assert await asked.inject(plant.point, rank=plant.rank, after=plant.after)
        request = {"input_ids": held_out(1)[0], "sampling_params": {"temperature": 0, "max_new_tokens": TOKENS}}
        try:
            await asked.generate(request)
        except EngineError:
            return
    raise AssertionError(f"{plant}: answered")


def wait_until_gone(processes: Sequence[Process], nursery: Nursery, pid: int, seconds: float) -> None:
    """Until none of them runs; AssertionError if that takes longer."""
    deadline = time.monotonic() + seconds
    while any(_runs(process) for process in processes):
        nursery.exit_code(pid)  # reaps
        assert time.monotonic() < deadline, (
            f"after {seconds} s there is still {[each for each in processes if _runs(each)]}"
        )
        time.sleep(0.05)


def _runs(process: Process) -> bool:
    try:
        return process.is_running() and process.status() != STATUS_ZOMBIE
    except NoSuchProcess:
        return False
