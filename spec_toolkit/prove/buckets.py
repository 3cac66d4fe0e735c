"""Emitted length by kind of prompt: what one mean over all of them hides. Asks an engine."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.names import Rounds, read_rounds
from spec_toolkit.errors import FactsError


class HeldOut(Struct, frozen=True):
    """A prompt no training step has seen."""

    bucket: str  # chat, code, math, tool, long
    prompt: str


class BucketRow(Struct, frozen=True, kw_only=True):
    """One bucket's answers together."""

    bucket: str
    prompts: int
    emitted_tokens: int
    rounds: int
    accepted_drafts: int
    emitted_length: float | None  # (accepted drafts + rounds) / rounds, bonus included; None: no speculation


def read_held_out(model: Path) -> dict[str, list[HeldOut]]:
    """The held-out prompts that ship beside a tiny model, by bucket, in their order."""
    file = model / "held_out.jsonl"
    if not file.is_file():
        raise FactsError.of(
            "facts.held-out", str(model), "has no held_out.jsonl", remedy="Measure a tiny model of the rehearsal."
        )
    prompts: dict[str, list[HeldOut]] = {}
    for line in file.read_bytes().splitlines():
        item = msgspec.json.decode(line, type=HeldOut)
        prompts.setdefault(item.bucket, []).append(item)
    return prompts


def summarise(bucket: str, answers: Sequence[Rounds]) -> BucketRow:
    """Sums first, then one ratio: a mean of ratios would weigh short answers like long ones."""
    rounds = sum(answer.rounds or 0 for answer in answers)
    accepted = sum(answer.accepted_drafts or 0 for answer in answers)
    return BucketRow(
        bucket=bucket,
        prompts=len(answers),
        emitted_tokens=sum(answer.emitted_tokens for answer in answers),
        rounds=rounds,
        accepted_drafts=accepted,
        emitted_length=(accepted + rounds) / rounds if rounds else None,
    )


async def measure(
    engine: EngineClient,
    prompts: Mapping[str, Sequence[HeldOut]],
    *,
    per_bucket: int,
    max_new_tokens: int,
    concurrency: int,
) -> list[BucketRow]:
    """Greedy answers to the first `per_bucket` prompts of each bucket, a bucket at a time."""
    gate = asyncio.Semaphore(concurrency)

    async def one(prompt: str) -> Rounds:
        request = {"text": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": max_new_tokens}}
        async with gate:
            return read_rounds((await engine.generate(request))["meta_info"])

    rows = []
    for bucket, items in prompts.items():
        answers = await asyncio.gather(*(one(item.prompt) for item in items[:per_bucket]))
        rows.append(summarise(bucket, answers))
    return rows
