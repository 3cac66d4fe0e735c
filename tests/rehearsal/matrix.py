"""The matrix's cells: what one family does at one depth, schedule and layout, against its target alone and its replay.

One engine serves all cells of its shape. Tokens are compared with the autoregressive engine's, margin-aware; rounds and accepted
drafts with the replay in torch, because an error in a draft changes no token. A cell is a row with its figures and its faults.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

import requests
import torch
from tiny_models.answers import Answer, departures
from tiny_models.families import read_network
from tiny_models.prompts import read_prompts, read_tokenizer, token_ids
from tiny_models.replay import Drafting, Replay, replay
from tiny_models.tokenizer import EOS_ID

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.prove.lossless import TOLERANCE_NATS, TOP_LOGPROBS, Completion, Kind, compare_all, read_completion
from spec_toolkit.prove.rehearse.asking import least_sure
from spec_toolkit.prove.sampling import collect_samples, compare_samples
from tests.rehearsal.families import FAMILIES, TinyFamily
from tests.rehearsal.shapes import Engine, Shape

DEPTHS = (1, 2, 4, 7)
SAMPLED_DEPTH = 4
TOKENS = 32  # of a greedy answer
PER_BUCKET = 2  # held-out prompts; there are five buckets
TOGETHER = 8
DROPPED_AFTER = 5  # tokens of a stream that is then dropped
ANSWERS, SHORT = 512, 4  # sampled answers of one setting, tokens of each
SETTINGS: Mapping[str, Mapping[str, float]] = {
    "sampled": {"temperature": 1.6, "top_k": 8},  # a trained model is so sure at 1.0 that little could differ
    "sampled, cut": {"temperature": 1.6, "top_k": 6, "top_p": 0.5},
}
PENALTIES: Mapping[str, float] = {"repetition_penalty": 1.5, "frequency_penalty": 0.5}


@cache
def prompts_of(family: str) -> tuple[tuple[int, ...], ...]:
    folder = FAMILIES[family].folder
    tokenizer = read_tokenizer(folder)
    return tuple(tuple(token_ids(tokenizer, prompt)) for prompt in read_prompts(folder, PER_BUCKET))


_network = cache(read_network)


@cache
def replays_of(family: str, num_steps: int) -> tuple[Replay, ...]:
    network = _network(FAMILIES[family].folder)
    return tuple(replay(network, ids, num_steps, TOKENS, EOS_ID) for ids in prompts_of(family))


@cache
def penalised_of(family: str) -> tuple[Completion, ...]:
    """Greedy answers under PENALTIES by the direct formula, in torch, with the log-probabilities of the penalised law."""
    return tuple(_penalised(_network(FAMILIES[family].folder), ids) for ids in prompts_of(family))


@torch.inference_mode()
def _penalised(network: Drafting, prompt: Sequence[int]) -> Completion:
    cache, ids = network.new_cache(), torch.tensor([list(prompt)])
    said: list[int] = []
    known: list[dict[int, float]] = []
    while len(said) < TOKENS and EOS_ID not in said:
        logits = network.lm_head(network.hidden(ids, cache)[:, -1])[0]
        counts = torch.bincount(torch.tensor(said, dtype=torch.long), minlength=logits.numel())
        logits = logits - counts * PENALTIES["frequency_penalty"]
        factor = torch.where(counts > 0, PENALTIES["repetition_penalty"], 1.0)
        best = torch.where(logits < 0, logits * factor, logits / factor).log_softmax(-1).topk(TOP_LOGPROBS)
        known.append(dict(zip(best.indices.tolist(), best.values.tolist(), strict=True)))
        said.append(int(best.indices[0]))
        ids = best.indices[:1][None]
    return Completion(output_ids=tuple(said), top_logprobs=tuple(known))


@dataclass(slots=True)
class Reference:
    """What the target answers alone, one prompt at a time."""

    greedy: list[Completion]  # with log-probabilities
    prompts: tuple[int, ...]  # that are sampled
    sampled: dict[tuple[str, int], list[Completion]] = field(default_factory=dict)  # by setting and prompt


def reference_of(engine: Engine, settings: Sequence[str] = tuple(SETTINGS)) -> Reference:
    """From an engine that does not speculate."""
    assert engine.shape.num_steps == 0
    greedy = [said.completion for said in asyncio.run(_greedy(engine, together=1, with_logprobs=True))]
    # Two, since one law is easily told where the target tosses a coin, and another where drafts are often refused.
    prompts = tuple(dict.fromkeys((0, least_sure(greedy))))
    samples = {(name, index): asyncio.run(_samples(engine, name, index)) for name in settings for index in prompts}
    return Reference(greedy, prompts, samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cell's result."""

    cell: str
    tokens: int = 0  # compared and equal
    near_ties: int = 0
    differences: int = 0
    replayed: str = ""  # requests whose rounds and accepted drafts are the replay's, of all
    sampled: str = ""  # total variation and bound, at the place nearest to its bound
    seconds: float
    cpu_seconds: float
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Said:
    completion: Completion
    cached_tokens: int


async def _greedy(
    engine: Engine, *, together: int, with_logprobs: bool = False, penalties: Mapping[str, float] = MappingProxyType({})
) -> list[_Said]:
    gate = asyncio.Semaphore(together)
    wanted = {"sampling_params": {"temperature": 0, "max_new_tokens": TOKENS, **penalties}}
    more = {"return_logprob": True, "top_logprobs_num": TOP_LOGPROBS, "logprob_start_len": -1} if with_logprobs else {}
    async with EngineClient(engine.address) as asked:

        async def one(ids: Sequence[int]) -> _Said:
            async with gate:
                answer = await asked.generate({"input_ids": list(ids), **wanted, **more})
            return _Said(read_completion(answer), int(answer["meta_info"]["cached_tokens"]))

        return list(await asyncio.gather(*(one(ids) for ids in prompts_of(engine.family.name))))


async def _samples(engine: Engine, setting: str, prompt: int) -> list[Completion]:
    async with EngineClient(engine.address) as asked:
        return await collect_samples(
            asked, prompts_of(engine.family.name)[prompt], count=ANSWERS, max_new_tokens=SHORT,
            params={**SETTINGS[setting], "ignore_eos": True},
        )  # fmt: skip


async def _drop_streams(engine: Engine) -> list[int]:
    """Ask every prompt as a stream and hang up after some tokens; how many each had sent."""
    async with EngineClient(engine.address) as asked:

        async def one(ids: Sequence[int]) -> int:
            wanted = {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True}
            async with aclosing(asked.stream({"input_ids": list(ids), "sampling_params": wanted})) as events:
                async for event in events:
                    if len(event["output_ids"]) >= DROPPED_AFTER:
                        return len(event["output_ids"])
            raise AssertionError("the stream ended before it was dropped")

        return list(await asyncio.gather(*(one(ids) for ids in prompts_of(engine.family.name))))


def greedy_cell(
    engine: Engine, reference: Reference, *, together: int, cell: str = "", least_cached: Sequence[int] = ()
) -> Row:
    """Tokens against the target alone, rounds against the replay; with `least_cached` what the prefix cache gave each prompt, too."""
    began, cpu = time.perf_counter(), engine.cpu_seconds()
    said = asyncio.run(_greedy(engine, together=together))
    seconds, cpu = time.perf_counter() - began, engine.cpu_seconds() - cpu
    answers = [each.completion for each in said]
    report = compare_all(reference.greedy, answers, tolerance_nats=TOLERANCE_NATS["float32"])
    faults = [] if report.is_lossless else [report.sentence()]
    replays = replays_of(engine.family.name, engine.shape.num_steps)
    parted = departures(replays, [_as_answer(each) for each in answers])
    tied = {
        i for i, outcome in enumerate(report.outcomes) if outcome.kind is Kind.NEAR_TIE
    }  # another answer, other rounds
    drawn = engine.shape.rejection  # then drafts are drawn, for greedy requests too, and their rounds are no replay's
    if other := [each for each in parted if each.request not in tied and not drawn]:
        faults.append(f"rounds: {len(other)} of {len(replays)} requests are not as replayed; first: {other[0]}")
    for index, (each, least) in enumerate(zip(said, least_cached, strict=False)):
        if each.cached_tokens < least:
            faults.append(
                f"prefix cache: {each.cached_tokens} tokens of prompt {index} came from it, at least {least} should"
            )
    return Row(
        cell=cell or f"greedy, batch {together}", tokens=report.compared_tokens, near_ties=report.count(Kind.NEAR_TIE),
        differences=report.count(Kind.DIFFERENT), replayed="drafts are drawn" if drawn else f"{len(replays) - len(parted)}/{len(replays)}",
        seconds=seconds, cpu_seconds=cpu, faults=tuple(faults),
    )  # fmt: skip


def _as_answer(answer: Completion) -> Answer:
    made = answer.made
    assert made is not None
    return Answer(answer.output_ids, made.rounds or 0, made.accepted_histogram or ())


def hit_cell(engine: Engine, reference: Reference) -> Row:
    """The prompts were asked before: whole pages of each come from the prefix cache.

    Less the last token, whose state is needed, and one more: under EAGLE the cache's keys are pairs of tokens.
    """
    page = int(requests.get(f"{engine.address}/server_info", timeout=30).json()["page_size"])
    least = [(len(ids) - 2) // page * page for ids in prompts_of(engine.family.name)]
    assert any(least), "no prompt fills a page"
    return greedy_cell(engine, reference, together=TOGETHER, cell="prefix-cache hit", least_cached=least)


def cancelled_cell(engine: Engine, reference: Reference) -> Row:
    """Streams are dropped; then every prompt answers as before, and the pools hold as little as before."""
    engine.flush()
    before = engine.used_tokens()
    sent = asyncio.run(_drop_streams(engine))
    assert max(sent) < 400 - 8, sent
    row = greedy_cell(engine, reference, together=TOGETHER, cell=f"after {len(sent)} dropped streams")
    after = engine.used_tokens()  # before a flush, which empties the pools whoever holds them
    leak = (
        () if after == before else (f"pool: {after} tokens are held at rest, {before} before the streams were dropped",)
    )
    return _with_faults(row, leak)


def penalised_cell(engine: Engine) -> Row:
    """Penalties move the greedy choice at once where they count, so equal tokens say more of them than samples do."""
    began, cpu = time.perf_counter(), engine.cpu_seconds()
    said = asyncio.run(_greedy(engine, together=TOGETHER, penalties=PENALTIES))
    seconds, cpu = time.perf_counter() - began, engine.cpu_seconds() - cpu
    report = compare_all(
        penalised_of(engine.family.name), [each.completion for each in said], tolerance_nats=TOLERANCE_NATS["float32"]
    )
    return Row(
        cell="greedy, penalised", tokens=report.compared_tokens, near_ties=report.count(Kind.NEAR_TIE),
        differences=report.count(Kind.DIFFERENT), seconds=seconds, cpu_seconds=cpu,
        faults=() if report.is_lossless else (report.sentence(),),
    )  # fmt: skip


def sampled_cell(engine: Engine, reference: Reference, setting: str) -> Row:
    began, cpu = time.perf_counter(), engine.cpu_seconds()
    found = {index: asyncio.run(_samples(engine, setting, index)) for index in reference.prompts}
    seconds, cpu = time.perf_counter() - began, engine.cpu_seconds() - cpu
    reports = {index: compare_samples(reference.sampled[setting, index], said) for index, said in found.items()}
    faults = [f"prompt {index}: {each.sentence()}" for index, each in reports.items() if not each.is_within_bounds]
    # Where every answer has the same token there is no law to tell, and nothing to be near.
    rows = [row for each in reports.values() for row in each.rows if row.bound > 0]
    if not rows:
        faults.append("every answer is the same: this compared laws of one token")
    answers = [said for each in found.values() for said in each]
    accepted = sum((each.made and each.made.accepted_drafts) or 0 for each in answers)
    if accepted < len(answers) / 4:
        faults.append(
            f"{accepted} drafts were accepted in {len(answers)} answers: this compared engines that hardly speculate"
        )
    nearest = max(rows, key=lambda row: row.distance - row.bound, default=None)
    return Row(
        cell=setting, tokens=len(answers) * SHORT,
        sampled=f"{nearest.distance:.3f} / {nearest.bound:.3f}" if nearest else "no law",
        seconds=seconds, cpu_seconds=cpu, faults=tuple(faults),
    )  # fmt: skip


def _with_faults(row: Row, more: tuple[str, ...]) -> Row:
    kept: dict[str, Any] = {name: getattr(row, name) for name in Row.__slots__}
    return Row(**{**kept, "faults": (*row.faults, *more)})


def cells(engine: Engine, reference: Reference, *, settings: Sequence[str] = tuple(SETTINGS)) -> Iterator[Row]:
    """Every cell of an engine, the prefix cache empty before the first two."""
    engine.flush()
    yield greedy_cell(engine, reference, together=1)
    engine.flush()
    yield greedy_cell(engine, reference, together=TOGETHER)
    if engine.shape.layout != "attention-dp":  # there the second time may be another rank's
        yield hit_cell(engine, reference)
    yield cancelled_cell(engine, reference)
    yield penalised_cell(engine)
    for setting in settings:
        yield sampled_cell(engine, reference, setting)


def settings_of(shape: Shape) -> tuple[str, ...]:
    """Which settings are sampled: a law does not depend on the depth, so one depth stands for all."""
    return tuple(SETTINGS) if shape.num_steps == SAMPLED_DEPTH else ()


def shapes_of(family: TinyFamily) -> Iterator[Shape]:
    """Depth x schedule by target-only acceptance; one depth by rejection too, and on two ranks, where the family takes it."""
    for overlap in (True, False):
        for num_steps in DEPTHS:
            yield Shape(num_steps=num_steps, overlap=overlap)
        if family.takes_rejection:
            yield Shape(num_steps=SAMPLED_DEPTH, overlap=overlap, rejection=True)
    for layout in family.layouts:
        yield Shape(num_steps=SAMPLED_DEPTH, layout=layout)
