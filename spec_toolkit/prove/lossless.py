"""Is a speculating engine's greedy output the target's own? The comparison is pure; `collect` asks engines.

Byte equality is not the criterion: a verify pass has another shape than a decode step, so sums are rounded differently and near-ties
flip. Two outputs are compared up to their first difference. There the target's log-probabilities decide: the two candidates within
TOLERANCE are a near-tie, and what follows it has another prefix and is not compared; anything wider is a difference no rounding
explains. (theory.md, section 2; the tolerance is stated with every result.)
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.names import Rounds, read_rounds, read_top_logprobs

# Widest gap, in nats, that still counts as a near-tie. float32: sums over some thousand terms agree to about 1e-4 of a logit.
# bfloat16: neighbouring logits near 32 stand 0.125 apart, and two roundings on each side may move a gap by four of these.
TOLERANCE_NATS: Mapping[str, float] = {"float32": 0.01, "bfloat16": 0.5, "float16": 0.1}

TOP_LOGPROBS = 8  # candidates the reference reports at each position


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One greedy answer."""

    output_ids: tuple[int, ...]
    top_logprobs: tuple[Mapping[int, float], ...] | None = None  # nats by token id, per position; of the reference only
    made: Rounds | None = None


class Kind(Enum):
    EQUAL = "equal"
    NEAR_TIE = "near-tie"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one prompt's comparison found."""

    kind: Kind
    compared_tokens: int  # equal tokens before the first difference, or all
    position: int | None = None  # of the first difference, counted from the first output token
    gap_nats: float | None = None  # target's log-probability of its own token minus the other's, at that position
    gap_is_bound: bool = False  # the other token was not among the reported ones: the gap is at least this wide


def compare(reference: Completion, candidate: Completion, *, tolerance_nats: float) -> Outcome:
    """`reference` is the autoregressive target's and carries log-probabilities."""
    theirs, ours = reference.output_ids, candidate.output_ids
    for position, (expected, got) in enumerate(zip(theirs, ours, strict=False)):
        if expected != got:
            return _judge(reference, position, expected, got, tolerance_nats)
    if len(theirs) != len(ours):
        # Same tokens, but one went on: no tie explains that, because the longer one's next token was not the end.
        return Outcome(
            kind=Kind.DIFFERENT, compared_tokens=min(len(theirs), len(ours)), position=min(len(theirs), len(ours))
        )
    return Outcome(kind=Kind.EQUAL, compared_tokens=len(theirs))


def _judge(reference: Completion, position: int, expected: int, got: int, tolerance_nats: float) -> Outcome:
    if reference.top_logprobs is None:
        raise ValueError("the reference carries no log-probabilities, so a difference cannot be judged")
    known = reference.top_logprobs[position]
    is_bound = got not in known
    gap = known[expected] - (min(known.values()) if is_bound else known[got])
    near = not is_bound and gap <= tolerance_nats
    return Outcome(
        kind=Kind.NEAR_TIE if near else Kind.DIFFERENT,
        compared_tokens=position,
        position=position,
        gap_nats=gap,
        gap_is_bound=is_bound,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole comparison."""

    outcomes: tuple[Outcome, ...]  # one per prompt, in order
    tolerance_nats: float
    indices: Sequence[int] = ()  # of those prompts among all; empty: they are all

    def count(self, kind: Kind) -> int:
        return sum(outcome.kind is kind for outcome in self.outcomes)

    @property
    def compared_tokens(self) -> int:
        return sum(outcome.compared_tokens for outcome in self.outcomes)

    @property
    def is_lossless(self) -> bool:
        return bool(self.outcomes) and not self.count(Kind.DIFFERENT)

    def sentence(self) -> str:
        prompts = len(self.outcomes)
        near, different = self.count(Kind.NEAR_TIE), self.count(Kind.DIFFERENT)
        if self.is_lossless:
            return (
                f"lossless: {prompts} prompts, {self.compared_tokens:,} tokens equal, {near} near-ties "
                f"(within {self.tolerance_nats:g} nats), 0 differences"
            )
        if not prompts:
            return "nothing was compared: that proves nothing"
        index, first = next((i, o) for i, o in enumerate(self.outcomes) if o.kind is Kind.DIFFERENT)
        number = self.indices[index] if self.indices else index
        gap = (
            "one output is longer"
            if first.gap_nats is None
            else f"gap {'at least ' if first.gap_is_bound else ''}{first.gap_nats:.3g} nats"
        )
        return (
            f"not lossless: {different} of {prompts} prompts part from the target where it is sure (wider than "
            f"{self.tolerance_nats:g} nats); first: prompt {number}, token {first.position} (both from 0), {gap}. "
            "This is not rounding. See runbooks/outputs-differ.md"
        )


def compare_all(
    references: Sequence[Completion],
    candidates: Sequence[Completion],
    *,
    tolerance_nats: float,
    indices: Sequence[int] = (),
) -> Report:
    """`indices`: of these prompts among those that a reader knows."""
    pairs = zip(references, candidates, strict=True)
    return Report(
        outcomes=tuple(compare(r, c, tolerance_nats=tolerance_nats) for r, c in pairs),
        tolerance_nats=tolerance_nats,
        indices=indices,
    )


async def collect(
    engine: EngineClient,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    concurrency: int = 1,
    with_logprobs: bool = False,
) -> list[Completion]:
    """Greedy answers to token-id prompts, at most `concurrency` at a time, in the order of the prompts."""
    gate = asyncio.Semaphore(concurrency)

    async def one(prompt: Sequence[int]) -> Completion:
        request: dict[str, Any] = {
            "input_ids": list(prompt),
            "sampling_params": {"temperature": 0, "max_new_tokens": max_new_tokens},
        }
        if with_logprobs:
            request |= {"return_logprob": True, "top_logprobs_num": TOP_LOGPROBS, "logprob_start_len": -1}
        async with gate:
            return read_completion(await engine.generate(request))

    return list(await asyncio.gather(*(one(prompt) for prompt in prompts)))


def read_completion(answer: Mapping[str, Any]) -> Completion:
    meta = answer["meta_info"]
    return Completion(
        output_ids=tuple(answer["output_ids"]), top_logprobs=read_top_logprobs(meta), made=read_rounds(meta)
    )
