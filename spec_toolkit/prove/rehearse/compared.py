"""A rehearsal's answers side by side, as its record. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from spec_toolkit.prove.lossless import TOLERANCE_NATS, compare_all
from spec_toolkit.prove.rehearse.asking import TEMPERATURE, TOGETHER, Answers, Heard, Questions
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

_TOLERANCE = TOLERANCE_NATS["float32"]


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
    drafting = heard.drafting
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
        engines=tuple(heard.started),
        greedy=greedy,
        sampled=sampled,
        buckets=_buckets(questions, drafting) if drafting else (),
        accepted=accepted_by_position([one.made for one in drafting.alone.said if one.made]) if drafting else (),
        not_exercised=not_exercised(ready.production, ready.tiny),
        import_seconds=heard.import_seconds,
        seconds=heard.seconds,
        passed=all(each.passed for each in greedy) and (sampled is None or sampled.passed),
    )


def _greedy(ready: Ready, questions: Questions, heard: Engines) -> Iterator[Greedy]:
    """Every engine's answers against the target's own, one at a time and several at a time; then with fewer steps."""
    references, few = heard.target.alone.said, questions.few
    steps = ready.alone.plan.recipe.draft.num_steps if ready.drafts else None
    layout = ready.ranks.plan.recipe.hardware.layout if ready.ranks else None
    one_rank = heard.drafting or heard.target
    ways = [("", 1, one_rank)]
    if layout is not None and heard.several is not None:
        kind = "attention DP" if layout.dp_attention else "TP"
        ways.append((f"{layout.tp} ranks ({kind}), ", layout.tp, heard.several))
    for where, ranks, engine in ways:
        for concurrency, answers in ((1, engine.alone), (TOGETHER, engine.together)):
            if answers is None or answers is heard.target.alone:
                continue
            some = few if len(answers.said) == len(few) else range(len(references))
            report = compare_all([references[i] for i in some], answers.said, tolerance_nats=_TOLERANCE)
            what = where + ("one at a time" if concurrency == 1 else f"{concurrency} at a time")
            yield greedy_of(
                report, what=what, concurrency=concurrency, ranks=ranks, steps=steps, seconds=answers.seconds
            )
    for count, answers in one_rank.lower:
        report = compare_all([references[i] for i in few], answers.said, tolerance_nats=_TOLERANCE)
        what = f"{TOGETHER} at a time, " + (f"{count} steps" if count > 1 else "1 step" if count else "no drafts")
        yield greedy_of(report, what=what, concurrency=TOGETHER, ranks=1, steps=count, seconds=answers.seconds)


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
