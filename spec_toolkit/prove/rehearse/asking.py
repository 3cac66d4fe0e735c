"""What a rehearsal asks each of its engines. Asks engines."""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.names import Rounds
from spec_toolkit.errors import ActError, EngineError
from spec_toolkit.prove.lossless import Completion, collect
from spec_toolkit.prove.sampling import PLACES, collect_samples
from spec_toolkit.terms import KnobMode, mode_at

TOKENS = 48  # of a greedy answer
TOGETHER = 8  # requests at a time, beside one
SAMPLES = 384
TEMPERATURE = 1.0
_LAST_PLACE = max(offset for place in PLACES for offset in place)
_SAMPLED_TOGETHER = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The prompts of one rehearsal, as token ids."""

    buckets: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]  # name, prompts

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        return [prompt for _, prompts in self.buckets for prompt in prompts]

    def of(self, indices: Sequence[int]) -> list[tuple[int, ...]]:
        prompts = self.prompts
        return [prompts[index] for index in indices]

    @property
    def few(self) -> list[int]:
        """Indices of prompts of every bucket: one batch."""
        everyone = len(self.prompts)
        return list(range(0, everyone, math.ceil(everyone / TOGETHER)))


@dataclass(frozen=True, slots=True)
class Answers:
    """Some of one engine's, and the seconds they took."""

    said: list[Completion]
    seconds: float

    def by_bucket(self, questions: Questions) -> list[list[Rounds]]:
        """How those were made, a list for each bucket; answers without a round of verification are left out."""
        left = iter(self.said)
        counted = [[next(left).made for _ in prompts] for _, prompts in questions.buckets]
        return [[made for made in bucket if made is not None and made.rounds] for bucket in counted]


@dataclass(frozen=True, slots=True)
class Heard:
    """One engine's greedy answers."""

    alone: Answers
    together: Answers | None = None
    lower: tuple[tuple[int, Answers], ...] = ()  # by step count, with fewer steps than all: of the few


async def ask_target(address: str, questions: Questions, *, together: bool) -> Heard:
    """The autoregressive engine's answers, with the log-probabilities that a difference is judged by."""
    async with EngineClient(address) as engine:
        alone = await _greedy(engine, questions.prompts, 1, with_logprobs=True)
        return Heard(alone, await _greedy(engine, questions.prompts, TOGETHER) if together else None)


async def ask_drafting(address: str, questions: Questions, *, key: str, steps: Sequence[int] = ()) -> Heard:
    """`steps`: those the engine can be set to, ascending; all but the last are tried too. EngineError where it does not speculate."""
    async with EngineClient(address, admin_key=key) as engine:
        alone = await _greedy(engine, questions.prompts, 1)
        beside = await _greedy(engine, questions.prompts, TOGETHER)
        lower = []
        for epoch, count in enumerate(reversed(steps[:-1]), start=1):
            await _set(engine, epoch, count, steps[-1])
            lower.append((count, await _greedy(engine, questions.of(questions.few), TOGETHER)))
        if lower:
            await _set(engine, len(steps), steps[-1], steps[-1])
    _speculated(alone, beside)
    return Heard(alone, beside, tuple(lower))


async def ask_ranks(address: str, questions: Questions, *, drafts: bool) -> Heard:
    """An engine of several ranks, which is slow on few cores: one at a time only the few."""
    async with EngineClient(address) as engine:
        alone = await _greedy(engine, questions.of(questions.few), 1)
        beside = await _greedy(engine, questions.prompts, TOGETHER)
    if drafts:
        _speculated(alone, beside)
    return Heard(alone, beside)


def _speculated(*heard: Answers) -> None:
    said = [one for answers in heard for one in answers.said]
    if not sum(one.made.rounds or 0 for one in said if one.made):
        raise EngineError.of(
            "rehearse.no-speculation",
            "the speculating engine",
            f"gave {len(said)} answers and verified no draft",
            why="what it was compared for did not run",
            remedy="See runbooks/speculation-is-off.md.",
        )


async def ask_both(
    target: str, drafting: str, questions: Questions, *, key: str, steps: Sequence[int]
) -> tuple[Heard, Heard]:
    """Both engines at a time: each has a core."""
    return await asyncio.gather(
        ask_target(target, questions, together=False), ask_drafting(drafting, questions, key=key, steps=steps)
    )


async def sample(addresses: Sequence[str], prompt: Sequence[int]) -> list[Answers]:
    """Sampled answers of each engine, at a time."""

    async def one(address: str) -> Answers:
        began = time.monotonic()
        async with EngineClient(address) as engine:
            said = await collect_samples(
                engine,
                prompt,
                count=SAMPLES,
                max_new_tokens=_LAST_PLACE + 1,
                params={"temperature": TEMPERATURE},
                concurrency=_SAMPLED_TOGETHER,
            )
        return Answers(said, time.monotonic() - began)

    return list(await asyncio.gather(*(one(address) for address in addresses)))


def least_sure(references: Sequence[Completion]) -> int:
    """Index of the answer in whose compared tokens the target most nearly tosses a coin: there another law shows with fewest samples."""

    def doubt(reference: Completion) -> float:
        places = (reference.top_logprobs or ())[1 : _LAST_PLACE + 1]
        likeliest = [math.exp(max(place.values())) for place in places]
        return sum(p * (1 - p) for p in likeliest)

    return max(range(len(references)), key=lambda index: doubt(references[index]))


async def _set(engine: EngineClient, epoch: int, steps: int, most: int) -> None:
    mode = KnobMode[mode_at(steps, most).name]
    if not await engine.command(epoch=epoch, mode=mode, steps=steps):
        raise ActError.of(
            "act.not-taken",
            "the speculating engine",
            f"did not take {steps} draft steps",
            remedy="See runbooks/act-not-taken.md.",
        )


async def _greedy(
    engine: EngineClient, prompts: Sequence[Sequence[int]], concurrency: int, *, with_logprobs: bool = False
) -> Answers:
    began = time.monotonic()
    said = await collect(engine, prompts, max_new_tokens=TOKENS, concurrency=concurrency, with_logprobs=with_logprobs)
    return Answers(said, time.monotonic() - began)
