"""A rehearsal's answers side by side, as its record. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from spec_toolkit.prove.lossless import TOLERANCE_NATS, compare_all
from spec_toolkit.prove.rehearse.asking import TEMPERATURE, Answers, Heard, Questions
from spec_toolkit.prove.rehearse.ready import Ready
from spec_toolkit.prove.rehearse.record import (
    Bucket,
    Greedy,
    Rehearsal,
    Sampled,
    Started,
    Trouble,
    accepted_by_position,
    bucket_of,
    greedy_of,
    sampled_of,
)
from spec_toolkit.prove.rehearse.scope import not_exercised
from spec_toolkit.prove.rehearse.settings import computed_in
from spec_toolkit.prove.rehearse.watched import troubles
from spec_toolkit.prove.sampling import compare_samples
from spec_toolkit.recipe.page import draft_words

ISOLATE_DRAFT_FAULTS = "isolate-draft-faults"  # the patch with which ranks count them


@dataclass(slots=True)
class Engines:
    """What was heard of each, and how long it took."""

    target: Heard  # without drafts, on one rank: what every other answer is held against
    drafting: Heard | None = None
    several: Heard | None = None  # on the recipe's ranks
    samples: list[Answers] = field(default_factory=list)  # of the target, of the drafting engine
    started: Sequence[Started] = ()
    import_seconds: float = 0.0
    seconds: float = 0.0  # of the whole rehearsal


def make_record(ready: Ready, questions: Questions, heard: Engines) -> Rehearsal:
    plan = ready.alone.plan
    greedy, sampled = tuple(_greedy(ready, questions, heard)), _sampled(heard.samples)
    trouble = tuple(_troubles(ready, questions, heard))
    drafting = heard.drafting
    return Rehearsal(
        name=ready.production.name,
        recipe=str(ready.loaded.path),
        sha256=ready.loaded.sha256,
        labels=plan.labels,
        draft=draft_words(plan.recipe.draft),
        model=plan.recipe.target.model,
        stands_for=f"{ready.production.situation.target.name}, {ready.tiny.architecture}" if ready.tiny else "itself",
        steps=plan.steps,
        settings=ready.settings,
        added_patches=ready.added_patches,
        engines=tuple(heard.started),
        troubles=trouble,
        together=questions.together,
        greedy=greedy,
        sampled=sampled,
        buckets=_buckets(questions, drafting) if drafting else (),
        accepted=accepted_by_position([one.made for one in drafting.alone.said if one.made]) if drafting else (),
        not_exercised=not_exercised(ready.production, ready.tiny, samples=ready.samples),
        import_seconds=heard.import_seconds,
        seconds=heard.seconds,
        passed=not trouble
        and bool(greedy)
        and all(each.passed for each in greedy)
        and (sampled is None or sampled.passed),
    )


def _greedy(ready: Ready, questions: Questions, heard: Engines) -> Iterator[Greedy]:
    """Every engine's answers against the target's own, one at a time and several at a time; then with fewer steps."""
    steps = ready.alone.plan.recipe.draft.num_steps if ready.drafts else None
    layout = ready.ranks.plan.recipe.hardware.layout if ready.ranks else None
    one_rank = heard.drafting or heard.target
    ways = [("", 1, one_rank)]
    against = partial(_against, heard, tolerance_nats=TOLERANCE_NATS[computed_in(ready.alone.plan.recipe)])
    if layout is not None and heard.several is not None:
        kind = "attention DP" if layout.dp_attention else "TP"
        ways.append((f"{layout.tp} ranks ({kind}), ", layout.tp, heard.several))
    for where, ranks, engine in ways:
        for what, concurrency, answers in _sets(questions, engine):
            if answers is not heard.target.alone:
                yield against(answers, what=where + what, concurrency=concurrency, ranks=ranks, steps=steps)
    for what, count, answers in _lower(questions, one_rank):
        yield against(answers, what=what, concurrency=questions.together, ranks=1, steps=count)


def _sets(questions: Questions, engine: Heard) -> Iterator[tuple[str, int, Answers]]:
    """What they are, how many at a time, the answers."""
    yield "one at a time", 1, engine.alone
    if engine.together is not None and engine.together is not engine.alone:
        yield f"{questions.together} at a time", questions.together, engine.together


def _lower(questions: Questions, engine: Heard) -> Iterator[tuple[str, int, Answers]]:
    """What they are, with how many steps, the answers: of the few, which are no fewer than run at a time."""
    for count, answers in engine.lower:
        steps = f"{count} steps" if count > 1 else "1 step" if count else "no drafts"
        yield f"{questions.together} at a time, {steps}", count, answers


def _against(  # noqa: PLR0913 - where the answers come from
    heard: Engines,
    answers: Answers,
    *,
    tolerance_nats: float,
    what: str,
    concurrency: int,
    ranks: int,
    steps: int | None,
) -> Greedy:
    references = [heard.target.alone.said[index] for index in answers.indices]
    report = compare_all(references, answers.said, tolerance_nats=tolerance_nats, indices=answers.indices)
    return greedy_of(report, what=what, concurrency=concurrency, ranks=ranks, steps=steps, seconds=answers.seconds)


def _troubles(ready: Ready, questions: Questions, heard: Engines) -> Iterator[Trouble]:
    """Of the engines that speculate, in the order in which they were asked."""
    for name, prepared, engine, samples in (
        ("speculating", ready.alone, heard.drafting, heard.samples[1:]),
        (ready.name_of_ranks, ready.ranks, heard.several if ready.drafts else None, []),
    ):
        if prepared is None or engine is None:
            continue
        counts = bool(prepared.plan.steps) and ISOLATE_DRAFT_FAULTS in {patch.id for patch in prepared.patches}
        every = [(what, answers) for what, _, answers in (*_sets(questions, engine), *_lower(questions, engine))]
        every += [("sampled", answers) for answers in samples]
        yield from troubles(name, every, counts_faults=counts)


def _sampled(samples: Sequence[Answers]) -> Sampled | None:
    if not samples:
        return None
    target, drafting = samples
    report = compare_samples(target.said, drafting.said)
    return sampled_of(report, temperature=TEMPERATURE, seconds=max(target.seconds, drafting.seconds))


def _buckets(questions: Questions, drafting: Heard) -> tuple[Bucket, ...]:
    if drafting.together is None:
        return ()
    names = [name for name, _ in questions.buckets]
    pairs = zip(names, drafting.alone.by_bucket(questions), drafting.together.by_bucket(questions), strict=True)
    return tuple(bucket_of(name, alone, together) for name, alone, together in pairs)
