"""Runs a recipe's rehearsal: the target alone and the speculating engine side by side, then the recipe's ranks. Touches the world."""

import asyncio
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.errors import FactsError, Finding, SpecError
from spec_toolkit.facts.checkpoint import model_folder
from spec_toolkit.launch.forked import Forked, forked, wait_until_ready, write_launch
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.prepare import Prepared
from spec_toolkit.prove.buckets import read_held_out
from spec_toolkit.prove.rehearse.asking import (
    TOKENS,
    Heard,
    Questions,
    ask_drafting,
    ask_ranks,
    ask_target,
    least_sure,
    sample,
)
from spec_toolkit.prove.rehearse.compared import Engines, make_record
from spec_toolkit.prove.rehearse.ready import Ready
from spec_toolkit.prove.rehearse.record import Rehearsal, Started

_TELL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Step:
    """How far a rehearsal has come."""

    seconds: float  # since it began
    text: str


@dataclass(slots=True)
class _Stage:
    """A nursery, a folder, and the engines so far."""

    nursery: Nursery
    folder: Path
    tell: Callable[[str], None]
    key: str = field(default_factory=lambda: secrets.token_hex(32))  # no first "-": the engine would take it for a flag
    started: list[Started] = field(default_factory=list)

    @contextmanager
    def engines(self, *wanted: tuple[str, Prepared, bool]) -> Iterator[list[Forked]]:
        """All of them (name, what to start, whether it speculates) started at once, and ended on leaving."""
        with ExitStack() as running:
            engines = []
            for name, ready, speculate in wanted:
                folder = self.folder / name.replace(" ", "-")
                spec = write_launch(folder, ready.plan, ready.patches, key=self.key, speculate=speculate)
                engines.append(running.enter_context(forked(self.nursery, folder, spec, name=name)))
            for engine, (name, ready, speculate) in zip(engines, wanted, strict=True):
                seconds = wait_until_ready(self.nursery, engine)
                ranks = ready.plan.recipe.hardware.layout.tp
                self.started.append(
                    Started(name=name, ranks=ranks, speculates=speculate, seconds=seconds, argv=engine.spec.command[2:])
                )
                self.tell(f"{name}: ready {seconds:.1f} s after its start")
            yield engines

    @asynccontextmanager
    async def clients(self, *engines: Forked) -> AsyncIterator[list[EngineClient]]:
        """One of each, and every few seconds a word of how many answers have come."""
        async with AsyncExitStack() as opened:
            clients = [
                await opened.enter_async_context(EngineClient(engine.address, admin_key=self.key)) for engine in engines
            ]
            asking = asyncio.current_task()
            telling = asyncio.create_task(self._tell_answers([*zip(engines, clients, strict=True)]))
            telling.add_done_callback(lambda done: asking.cancel() if asking and not done.cancelled() else None)
            try:
                yield clients
            except asyncio.CancelledError:
                if telling.done() and not telling.cancelled():
                    telling.result()  # nobody reads what is told: that error, and not the cancelling that came of it
                raise
            finally:
                telling.cancel()
                await asyncio.wait([telling])

    async def _tell_answers(self, asked: list[tuple[Forked, EngineClient]]) -> None:
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            self.tell("answers so far: " + ", ".join(f"{client.answers} ({engine.name})" for engine, client in asked))


def rehearse(ready: Ready, *, per_bucket: int, tell: Callable[[Step], None]) -> Rehearsal:
    """EngineError or ActError where an engine does not start or does not answer; its log is then kept, and named."""
    began = time.monotonic()

    def say(text: str) -> None:
        tell(Step(time.monotonic() - began, text))

    questions, left_out = _questions(ready, per_bucket)
    if left_out:
        say(f"{left_out} held-out prompts are left out: too long for the recipe's limits.context_tokens")
    with _folder() as folder:
        say("the engine is imported once")
        with Nursery.start({"TMPDIR": str(folder)}, most=2, home=folder) as nursery:
            imported = time.monotonic() - began
            say("imported")
            stage = _Stage(nursery, folder, say)
            heard = _on_one_rank(stage, ready, questions)
            if ready.ranks is not None:
                heard.several = _on_ranks(stage, ready, ready.ranks, questions)
    heard.started, heard.import_seconds, heard.seconds = stage.started, imported, time.monotonic() - began
    return make_record(ready, questions, heard)


def _questions(ready: Ready, per_bucket: int) -> tuple[Questions, int]:
    """And how many prompts do not fit. FactsError where that leaves a bucket empty."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - the engine's environment has it, and no other verb needs it

    model = ready.alone.plan.recipe.target.model
    folder = model_folder(model)
    if folder is None:
        raise FactsError.of("facts.held-out", model, "lies nowhere on this machine")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    limits = ready.alone.plan.recipe.limits
    longest = limits.context_tokens - TOKENS
    buckets, left_out = [], 0
    for bucket, rows in read_held_out(folder).items():
        ids = [tuple(tokenizer.encode(row.prompt).ids) for row in rows[:per_bucket]]
        fitting = tuple(each for each in ids if len(each) <= longest)
        buckets.append((bucket, fitting))
        left_out += len(ids) - len(fitting)
    empty = [bucket for bucket, prompts in buckets if not prompts]
    if empty:
        raise FactsError.of(
            "rehearse.context",
            "limits.context_tokens",
            f"is {limits.context_tokens:,}",
            why=f"of the held-out prompts of {', '.join(empty)} none fits beside an answer of {TOKENS} tokens",
            remedy="Write 1024 or more.",
        )
    return Questions(buckets=tuple(buckets), most=limits.max_running_requests), left_out


@contextmanager
def _folder() -> Iterator[Path]:
    """A private one, removed at the end; where an engine failed and left a log it is kept, and the error names it."""
    # Named before it is made: however soon Ctrl-C comes, it is known what to remove.
    folder = Path(tempfile.gettempdir()) / f"spec-toolkit-rehearsal-{secrets.token_urlsafe(6)}"
    try:
        folder.mkdir(mode=0o700)
        yield folder
    except SpecError as error:
        if not any(folder.rglob("*.log")):
            shutil.rmtree(folder, ignore_errors=True)
            raise
        raise type(error)(*(_kept(finding, folder) for finding in error.findings)) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _kept(finding: Finding, folder: Path) -> Finding:
    return Finding(
        rule=finding.rule,
        verdict=finding.verdict,
        where=finding.where,
        found=finding.found,
        why=finding.why,
        remedy=f"{finding.remedy} The engines' logs are kept in {folder}.".strip(),
    )


def _on_one_rank(stage: _Stage, ready: Ready, questions: Questions) -> Engines:
    """Side by side where each has a core, one after the other where not."""
    target, drafting = ("target alone", ready.alone, False), ("speculating", ready.alone, True)
    steps = ready.alone.plan.steps
    if not ready.drafts:
        with stage.engines(target) as (engine,):
            return Engines(target=asyncio.run(_of_target(stage, engine, questions)))
    if len(os.sched_getaffinity(0)) > 1:
        with stage.engines(target, drafting) as (first, second):
            return asyncio.run(_side_by_side(stage, first, second, questions, steps=steps, samples=ready.samples))
    with stage.engines(target) as (first,):
        heard = asyncio.run(_first(stage, first, questions, samples=ready.samples))
    with stage.engines(drafting) as (second,):
        asyncio.run(_second(stage, second, questions, heard, steps=steps, samples=ready.samples))
    return heard


async def _of_target(stage: _Stage, engine: Forked, questions: Questions) -> Heard:
    async with stage.clients(engine) as (target,):
        return await ask_target(target, questions, together=True)


async def _side_by_side(  # noqa: PLR0913 - two engines, and what they are asked
    stage: _Stage, first: Forked, second: Forked, questions: Questions, *, steps: Sequence[int], samples: bool
) -> Engines:
    async with stage.clients(first, second) as (target, drafting):
        asked = ask_target(target, questions, together=False), ask_drafting(drafting, questions, steps=steps)
        alone, speculating = await asyncio.gather(*asked)
        stage.tell("greedy answers: all of one rank")
        heard = Engines(alone, speculating)
        if samples:
            index = least_sure(alone.alone.said)
            told = (target, alone.told), (drafting, speculating.told)
            heard.samples = list(await asyncio.gather(*(sample(*each, questions, index) for each in told)))
            stage.tell("sampled answers: all")
        return heard


async def _first(stage: _Stage, engine: Forked, questions: Questions, *, samples: bool) -> Engines:
    async with stage.clients(engine) as (target,):
        alone = await ask_target(target, questions, together=False)
        heard = Engines(alone)
        if samples:
            heard.samples = [await sample(target, alone.told, questions, least_sure(alone.alone.said))]
        return heard


async def _second(  # noqa: PLR0913 - as above
    stage: _Stage, engine: Forked, questions: Questions, heard: Engines, *, steps: Sequence[int], samples: bool
) -> None:
    async with stage.clients(engine) as (drafting,):
        heard.drafting = await ask_drafting(drafting, questions, steps=steps)
        if samples:
            index = least_sure(heard.target.alone.said)
            heard.samples += [await sample(drafting, heard.drafting.told, questions, index)]


def _on_ranks(stage: _Stage, ready: Ready, ranks: Prepared, questions: Questions) -> Heard:
    steps = ranks.plan.steps if ready.drafts else ()

    async def ask(engine: Forked) -> Heard:
        async with stage.clients(engine) as (client,):
            return await ask_ranks(client, questions, drafts=ready.drafts, steps=steps)

    with stage.engines((ready.name_of_ranks, ranks, ready.drafts)) as (engine,):
        return asyncio.run(ask(engine))
