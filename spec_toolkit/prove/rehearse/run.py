"""Runs a recipe's rehearsal: the target alone and the speculating engine side by side, then the recipe's ranks. Touches the world."""

import asyncio
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spec_toolkit.errors import FactsError, Finding, SpecError
from spec_toolkit.facts.checkpoint import model_folder
from spec_toolkit.launch.forked import Forked, forked, wait_until_ready, write_launch
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.prepare import Prepared
from spec_toolkit.prove.buckets import read_held_out
from spec_toolkit.prove.lossless import TOLERANCE_NATS, compare_all
from spec_toolkit.prove.rehearse.asking import (
    TEMPERATURE,
    TOGETHER,
    Answers,
    Heard,
    Questions,
    ask_both,
    ask_drafting,
    ask_target,
)
from spec_toolkit.prove.rehearse.ready import Ready
from spec_toolkit.prove.rehearse.record import (
    Bucket,
    Greedy,
    Rehearsal,
    Sampled,
    Started,
    accepted_by_position,
    bucket_of,
    greedy_of,
    sampled_of,
)
from spec_toolkit.prove.rehearse.scope import not_exercised
from spec_toolkit.prove.sampling import compare_samples
from spec_toolkit.recipe.page import draft_words
from spec_toolkit.shipped import rehearsal

_TOLERANCE = TOLERANCE_NATS["float32"]


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
    started: list[Started] = field(default_factory=list)

    @contextmanager
    def engines(self, *wanted: tuple[str, Prepared, bool]) -> Iterator[list[Forked]]:
        """All of them (name, what to start, whether it speculates) started at once, and ended on leaving."""
        with ExitStack() as running:
            engines = []
            for name, ready, speculate in wanted:
                folder = self.folder / name.replace(" ", "-")
                spec = write_launch(
                    folder, ready.plan, ready.patches, key=secrets.token_urlsafe(24), speculate=speculate
                )
                engines.append(running.enter_context(forked(self.nursery, folder, spec, name=name)))
            for engine, (name, ready, speculate) in zip(engines, wanted, strict=True):
                seconds = wait_until_ready(self.nursery, engine)
                ranks = ready.plan.recipe.hardware.layout.tp
                self.started.append(
                    Started(
                        name=name, ranks=ranks, speculates=speculate, seconds=seconds, argv=engine.spec.command[2:]
                    )
                )
                self.tell(f"{name}: ready {seconds:.1f} s after its start")
            yield engines


def rehearse(ready: Ready, *, per_bucket: int, tell: Callable[[Step], None]) -> Rehearsal:
    """EngineError or ActError where an engine does not start or does not answer; its log is then kept, and named."""
    began = time.monotonic()

    def say(text: str) -> None:
        tell(Step(time.monotonic() - began, text))

    questions = _questions(ready, per_bucket)
    with _folder() as folder:
        say("the engine is imported once")
        with Nursery.start({"TMPDIR": str(folder)}, most=2, log=folder / "nursery.log") as nursery:
            imported = time.monotonic() - began
            say("imported")
            stage = _Stage(nursery, folder, say)
            target, drafting = _on_one_rank(stage, ready, questions)
            several = _on_ranks(stage, ready, questions)
    say("engines ended; comparing")
    sampled = _sampled(target, drafting)
    return _record(
        ready,
        stage.started,
        _Compared(
            greedy=tuple(_greedy(ready, target, drafting, several)),
            sampled=sampled,
            buckets=_buckets(questions, drafting),
            accepted=accepted_by_position([one.made for one in drafting.alone.said if one.made]) if drafting else (),
        ),
        import_seconds=imported,
        seconds=time.monotonic() - began,
    )


def _questions(ready: Ready, per_bucket: int) -> Questions:
    from tokenizers import Tokenizer  # noqa: PLC0415 - the engine's environment has it, and no other verb needs it

    model = ready.alone.plan.recipe.target.model
    folder = model_folder(model)
    if folder is None:
        raise FactsError.of("facts.held-out", model, "lies nowhere on this machine")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return Questions(
        buckets=tuple(
            (bucket, tuple(tuple(tokenizer.encode(row.prompt).ids) for row in rows[:per_bucket]))
            for bucket, rows in read_held_out(folder).items()
        ),
        sampled=ready.drafts and not ready.alone.plan.recipe.is_lossy,
    )


@contextmanager
def _folder() -> Iterator[Path]:
    """A private one, removed at the end; where an engine failed it is kept, and the error names it."""
    folder = Path(tempfile.mkdtemp(prefix="spec-toolkit-rehearsal-"))  # 0700
    try:
        yield folder
    except SpecError as error:
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


def _on_one_rank(stage: _Stage, ready: Ready, questions: Questions) -> tuple[Heard, Heard | None]:
    """Side by side where each has a core, one after the other where not."""
    target, drafting = ("target alone", ready.alone, False), ("speculating", ready.alone, True)
    if not ready.drafts:
        with stage.engines(target) as (engine,):
            return asyncio.run(ask_target(engine.address, questions, together=True)), None
    if len(os.sched_getaffinity(0)) > 1:
        with stage.engines(target, drafting) as (first, second):
            return asyncio.run(ask_both(first.address, second.address, questions))
    with stage.engines(target) as (first,):
        heard = asyncio.run(ask_target(first.address, questions, together=False))
    with stage.engines(drafting) as (second,):
        return heard, asyncio.run(ask_drafting(second.address, questions))


def _on_ranks(stage: _Stage, ready: Ready, questions: Questions) -> Heard | None:
    if ready.ranks is None:
        return None
    greedy = Questions(buckets=questions.buckets, sampled=False)
    name = "two ranks" if ready.drafts else "target on two ranks"
    with stage.engines((name, ready.ranks, ready.drafts)) as (engine,):
        if ready.drafts:
            return asyncio.run(ask_drafting(engine.address, greedy))
        return asyncio.run(ask_target(engine.address, greedy, together=True))


def _greedy(ready: Ready, target: Heard, drafting: Heard | None, several: Heard | None) -> Iterator[Greedy]:
    """Each engine's answers against the target's, one at a time and several at a time."""
    layout = ready.ranks.plan.recipe.hardware.layout if ready.ranks else None
    ways = [(1, "", drafting or Heard(Answers([], 0.0), target.together))]
    if layout is not None and several is not None:
        ways.append((layout.tp, "attention DP" if layout.dp_attention else "TP", several))
    for ranks, kind, heard in ways:
        for concurrency, answers in ((1, heard.alone), (TOGETHER, heard.together)):
            if answers is None or not answers.said:
                continue
            where = f"{ranks} ranks ({kind}), " if kind else ""
            much = "one at a time" if concurrency == 1 else f"{concurrency} at a time"
            report = compare_all(target.alone.said, answers.said, tolerance_nats=_TOLERANCE)
            yield greedy_of(
                report, what=where + much, concurrency=concurrency, ranks=ranks, seconds=answers.seconds
            )


def _sampled(target: Heard, drafting: Heard | None) -> Sampled | None:
    if target.samples is None or drafting is None or drafting.samples is None:
        return None
    report = compare_samples(target.samples.said, drafting.samples.said)
    return sampled_of(report, temperature=TEMPERATURE, seconds=target.samples.seconds + drafting.samples.seconds)


def _buckets(questions: Questions, drafting: Heard | None) -> tuple[Bucket, ...]:
    if drafting is None or drafting.together is None:
        return ()
    names = [name for name, _ in questions.buckets]
    pairs = zip(names, drafting.alone.by_bucket(questions), drafting.together.by_bucket(questions), strict=True)
    return tuple(bucket_of(name, alone, together) for name, alone, together in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    greedy: tuple[Greedy, ...]
    sampled: Sampled | None
    buckets: tuple[Bucket, ...]
    accepted: tuple[float, ...]


def _record(
    ready: Ready, started: list[Started], compared: _Compared, *, import_seconds: float, seconds: float
) -> Rehearsal:
    plan = ready.alone.plan
    return Rehearsal(
        name=ready.production.name,
        recipe=str(ready.loaded.path),
        sha256=ready.loaded.sha256,
        labels=plan.labels,
        draft=draft_words(plan.recipe.draft),
        model=plan.recipe.target.model,
        stands_for=f"{ready.production.situation.target.name}, {ready.tiny.architecture}" if ready.tiny else "itself",
        unlike=ready.tiny.unlike if ready.tiny else "",
        steps=plan.steps,
        settings=ready.settings,
        engines=tuple(started),
        greedy=compared.greedy,
        sampled=compared.sampled,
        buckets=compared.buckets,
        accepted=compared.accepted,
        not_exercised=not_exercised(ready.production, ready.tiny),
        import_seconds=import_seconds,
        seconds=seconds,
    )
