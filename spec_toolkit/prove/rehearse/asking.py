"""What a rehearsal asks each of its engines, and the answers side by side. Asks engines."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.names import Rounds
from spec_toolkit.errors import EngineError
from spec_toolkit.prove.lossless import Completion, collect
from spec_toolkit.prove.sampling import collect_samples

TOKENS = 48  # of a greedy answer
TOGETHER = 8  # requests at a time, beside one
SAMPLES = 384
TEMPERATURE = 1.0
_SAMPLED_TOKENS = 4  # the last place that is compared is the fourth
_SAMPLED_TOGETHER = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The prompts of one rehearsal, as token ids."""

    buckets: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]  # name, prompts
    sampled: bool  # whether distributions are compared too

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        return [prompt for _, prompts in self.buckets for prompt in prompts]


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
    """All of one engine's answers."""

    alone: Answers
    together: Answers | None = None
    samples: Answers | None = None


async def ask_target(address: str, questions: Questions, *, together: bool) -> Heard:
    """The autoregressive engine's answers, with the log-probabilities that a difference is judged by."""
    async with EngineClient(address) as engine:
        alone = await _greedy(engine, questions.prompts, 1, with_logprobs=True)
        beside = await _greedy(engine, questions.prompts, TOGETHER) if together else None
        samples = await _samples(engine, questions.prompts[0]) if questions.sampled else None
    return Heard(alone, beside, samples)


async def ask_drafting(address: str, questions: Questions) -> Heard:
    """EngineError where it answers without having speculated."""
    async with EngineClient(address) as engine:
        alone = await _greedy(engine, questions.prompts, 1)
        beside = await _greedy(engine, questions.prompts, TOGETHER)
        samples = await _samples(engine, questions.prompts[0]) if questions.sampled else None
    rounds = sum(one.made.rounds or 0 for one in (*alone.said, *beside.said) if one.made)
    if not rounds:
        raise EngineError.of(
            "rehearse.no-speculation",
            "the speculating engine",
            f"gave {len(alone.said)} answers and verified no draft",
            why="what it was compared for did not run",
            remedy="See runbooks/speculation-is-off.md.",
        )
    return Heard(alone, beside, samples)


async def ask_both(target: str, drafting: str, questions: Questions) -> tuple[Heard, Heard]:
    """Both engines at a time: each has a core."""
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(ask_target(target, questions, together=False))
        second = tasks.create_task(ask_drafting(drafting, questions))
    return first.result(), second.result()


async def _greedy(
    engine: EngineClient, prompts: Sequence[Sequence[int]], concurrency: int, *, with_logprobs: bool = False
) -> Answers:
    began = time.monotonic()
    said = await collect(
        engine, prompts, max_new_tokens=TOKENS, concurrency=concurrency, with_logprobs=with_logprobs
    )
    return Answers(said, time.monotonic() - began)


async def _samples(engine: EngineClient, prompt: Sequence[int]) -> Answers:
    began = time.monotonic()
    said = await collect_samples(
        engine,
        prompt,
        count=SAMPLES,
        max_new_tokens=_SAMPLED_TOKENS,
        params={"temperature": TEMPERATURE},
        concurrency=_SAMPLED_TOGETHER,
    )
    return Answers(said, time.monotonic() - began)
