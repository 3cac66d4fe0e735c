"""What a rehearsal asks each of its engines, and what their ranks say then. Asks engines."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.names import Rounds
from spec_toolkit.engine.ranks import RankState
from spec_toolkit.errors import ActError, EngineError
from spec_toolkit.prove.lossless import Completion, collect
from spec_toolkit.prove.sampling import PLACES, collect_samples
from spec_toolkit.terms import KnobMode, mode_at

TOKENS = 48  # of a greedy answer
TOGETHER = 8  # requests at a time, beside one; fewer where the recipe's cap is lower
SAMPLES = 384
TEMPERATURE = 1.0
_LAST_PLACE = max(offset for place in PLACES for offset in place)
SAMPLED_TOGETHER = 64  # as above


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The prompts of one rehearsal, as token ids."""

    buckets: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]  # name, prompts
    most: int = SAMPLED_TOGETHER  # requests that run at once, by the recipe's cap

    @property
    def together(self) -> int:
        return min(TOGETHER, self.most, len(self.prompts))

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        return [prompt for _, prompts in self.buckets for prompt in prompts]

    @property
    def few(self) -> list[int]:
        """Indices of prompts of every bucket, TOGETHER at most: one batch, or several where the cap is lower."""
        everyone = len(self.prompts)
        count = min(TOGETHER, everyone)
        return [number * everyone // count for number in range(count)]


@dataclass(frozen=True, slots=True)
class InForce:
    """What an engine was last told."""

    epoch: int = 0  # 0: as it started
    steps: int | None = None  # None: it cannot be told


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Some of one engine's, and the seconds they took."""

    said: list[Completion]
    seconds: float
    indices: Sequence[int] = ()  # of the prompts they answer, one each; empty: samples of one
    told: InForce = field(default_factory=InForce)
    ranks: tuple[RankState, ...] = ()  # read when the last had come; empty for an engine without a knob

    @property
    def is_faulty(self) -> bool:
        return any(rank.draft_faults or rank.last_fault for rank in self.ranks)

    def by_bucket(self, questions: Questions) -> list[list[Rounds]]:
        """How those were made, a list for each bucket; answers without a round of verification are left out."""
        made = {index: one.made for index, one in zip(self.indices, self.said, strict=True)}
        counted, first = [], 0
        for _, prompts in questions.buckets:
            counted.append([made.get(index) for index in range(first, first + len(prompts))])
            first += len(prompts)
        return [[made for made in bucket if made is not None and made.rounds] for bucket in counted]


@dataclass(frozen=True, slots=True)
class Heard:
    """One engine's greedy answers."""

    alone: Answers
    together: Answers | None = None  # the same ones where the cap is one request
    lower: tuple[tuple[int, Answers], ...] = ()  # by step count, with fewer steps than all: of the few
    told: InForce = field(default_factory=InForce)  # after all of them


async def ask_target(engine: EngineClient, questions: Questions, *, together: bool) -> Heard:
    """The autoregressive engine's answers, with the log-probabilities that a difference is judged by."""
    asked = _Asked(engine, questions)
    alone = await asked.greedy(asked.every, 1, with_logprobs=True)
    return Heard(alone, await asked.beside(alone) if together else None)


async def ask_drafting(engine: EngineClient, questions: Questions, *, steps: Sequence[int] = ()) -> Heard:
    """`steps`: those the engine can be set to, ascending; all but the last are tried too. EngineError where it does not speculate.

    After a fault of the draft no fewer steps are tried: the engine has left the drafts out by itself, and takes no other count.
    """
    lower = []
    asked = _Asked(engine, questions, InForce(steps=steps[-1] if steps else None))
    alone = await asked.greedy(asked.every, 1)
    last = beside = await asked.beside(alone)
    for count in reversed(steps[:-1]):
        if last.is_faulty:
            break
        await asked.set(count, steps[-1])
        last = await asked.greedy(questions.few, questions.together)
        lower.append((count, last))
    if lower and not last.is_faulty:
        await asked.set(steps[-1], steps[-1])
    _speculated(alone, beside)
    return Heard(alone, beside, tuple(lower), asked.told)


async def ask_ranks(engine: EngineClient, questions: Questions, *, drafts: bool, steps: Sequence[int] = ()) -> Heard:
    """An engine of several ranks, which is slow on few cores: one at a time only the few."""
    asked = _Asked(engine, questions, InForce(steps=steps[-1] if steps else None))
    alone = await asked.greedy(questions.few, 1)
    beside = await asked.greedy(asked.every, questions.together) if questions.together > 1 else alone
    if drafts:
        _speculated(alone, beside)
    return Heard(alone, beside)


def _speculated(*heard: Answers) -> None:
    if any(answers.is_faulty for answers in heard):
        return  # which the page tells, with the fault
    said = [one for answers in heard for one in answers.said]
    if not sum(one.made.rounds or 0 for one in said if one.made):
        raise EngineError.of(
            "rehearse.no-speculation",
            "the speculating engine",
            f"gave {len(said)} answers and verified no draft",
            why="what it was compared for did not run",
            remedy="See runbooks/speculation-is-off.md.",
        )


async def sample(engine: EngineClient, told: InForce, questions: Questions, index: int) -> Answers:
    """Sampled answers to the prompt of that index; `told`: what the engine was last told."""
    began = time.monotonic()
    said = await collect_samples(
        engine,
        questions.prompts[index],
        count=SAMPLES,
        max_new_tokens=_LAST_PLACE + 1,
        params={"temperature": TEMPERATURE},
        concurrency=min(SAMPLED_TOGETHER, questions.most),
    )
    seconds = time.monotonic() - began
    return Answers(said=said, seconds=seconds, told=told, ranks=await engine.ranks())


def least_sure(references: Sequence[Completion]) -> int:
    """Index of the answer in whose compared tokens the target most nearly tosses a coin: there another law shows with fewest samples."""

    def doubt(reference: Completion) -> float:
        places = (reference.top_logprobs or ())[1 : _LAST_PLACE + 1]
        likeliest = [math.exp(max(place.values())) for place in places]
        return sum(p * (1 - p) for p in likeliest)

    return max(range(len(references)), key=lambda index: doubt(references[index]))


@dataclass(slots=True)
class _Asked:
    """An engine and what it was last told."""

    engine: EngineClient
    questions: Questions
    told: InForce = field(default_factory=InForce)

    @property
    def every(self) -> range:
        return range(len(self.questions.prompts))

    async def greedy(self, indices: Sequence[int], concurrency: int, *, with_logprobs: bool = False) -> Answers:
        prompts = self.questions.prompts
        began = time.monotonic()
        said = await collect(
            self.engine,
            [prompts[index] for index in indices],
            max_new_tokens=TOKENS,
            concurrency=concurrency,
            with_logprobs=with_logprobs,
        )
        seconds = time.monotonic() - began
        ranks = await self.engine.ranks()
        return Answers(said=said, seconds=seconds, indices=indices, told=self.told, ranks=ranks)

    async def beside(self, alone: Answers) -> Answers:
        """Every prompt again, several at a time; where only one may run, those that there are."""
        return await self.greedy(self.every, self.questions.together) if self.questions.together > 1 else alone

    async def set(self, steps: int, most: int) -> None:
        """ActError where not every rank has it in force."""
        epoch = self.told.epoch + 1
        taken = await self.engine.command(epoch=epoch, mode=KnobMode[mode_at(steps, most).name], steps=steps)
        ranks = await self.engine.ranks()
        others = [rank for rank in ranks if (rank.epoch, rank.steps) != (epoch, steps)]
        if not taken or others or not ranks:
            said = ", ".join(f"rank {r.dp}.{r.rank}: {r.steps} steps, {r.last.name.lower()}" for r in others[:4])
            raise ActError.of(
                "act.not-taken",
                "the speculating engine",
                f"asked for {steps} draft steps; {said or 'refused' if ranks else 'no rank answers for a knob'}",
                remedy="See runbooks/act-not-taken.md.",
            )
        self.told = InForce(epoch, steps)
