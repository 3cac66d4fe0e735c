"""What a rehearsal found, as one record: the page and `--json` are made of it. Pure."""

from collections.abc import Sequence
from itertools import pairwise, zip_longest

from msgspec import Struct

from spec_toolkit.engine.names import Rounds
from spec_toolkit.errors import Finding
from spec_toolkit.prove import lossless, sampling
from spec_toolkit.prove.buckets import BucketRow, summarise
from spec_toolkit.prove.rehearse.settings import Setting


class Started(Struct, frozen=True, kw_only=True):
    """An engine, and what it took to start."""

    name: str
    ranks: int
    speculates: bool
    seconds: float  # from the fork to ready, patches reported
    argv: tuple[str, ...]


class Greedy(Struct, frozen=True, kw_only=True):
    """Greedy answers of one engine against the target's own."""

    what: str  # which engine, and how many requests at a time
    concurrency: int
    ranks: int
    steps: int | None  # draft passes a round; None: nothing is drafted, or the recipe names no step count
    prompts: int
    compared_tokens: int
    near_ties: int
    differences: int
    tolerance_nats: float
    sentence: str
    seconds: float  # of the answers
    passed: bool


class SampledPlace(Struct, frozen=True, kw_only=True):
    place: str  # "token 2", "tokens 2 and 3": counted from 1
    total_variation: float
    bound: float


class Sampled(Struct, frozen=True, kw_only=True):
    """Sampled answers of both engines, as distributions."""

    temperature: float
    answers: tuple[int, int]  # of the target, of the speculating engine
    false_alarms: float  # probability that samples of one law pass a bound somewhere
    places: tuple[SampledPlace, ...]
    passed: bool
    sentence: str
    seconds: float


class Trouble(Struct, frozen=True, kw_only=True):
    """Why an engine's answers prove nothing, right as they may be: it did not do what it was rehearsed for."""

    engine: str
    after: str  # which answers had come when it was seen first
    rank: str  # "0.1": data-parallel rank, rank; empty: of no one rank
    faults: tuple[tuple[str, int], ...]  # of the draft: where they were caught, how many
    sentence: str


class Bucket(Struct, frozen=True, kw_only=True):
    """One kind of prompt."""

    alone: BucketRow  # one request at a time
    together: BucketRow  # several at a time
    accepted: tuple[float, ...]  # by position: accepted, of the rounds in which all before it were


class Rehearsal(Struct, frozen=True, kw_only=True):
    name: str
    recipe: str
    sha256: str  # of the recipe's bytes
    labels: tuple[str, ...]
    draft: str  # in words
    model: str
    stands_for: str
    steps: tuple[int, ...]  # step counts the engine could be set to; it ran at the last
    settings: tuple[Setting, ...]
    added_patches: tuple[str, ...]  # ids of those that the recipe's deployment does not have
    engines: tuple[Started, ...]
    troubles: tuple[Trouble, ...]
    together: int  # requests at a time, where several are
    greedy: tuple[Greedy, ...]
    sampled: Sampled | None  # None: nothing is drafted, or the rule is a lossy one
    buckets: tuple[Bucket, ...]  # empty where nothing is drafted
    accepted: tuple[float, ...]  # by position, over all buckets
    not_exercised: tuple[str, ...]
    import_seconds: float
    seconds: float  # the whole rehearsal
    passed: bool  # no greedy answer differs where the target is sure, no sampled place is out of bounds, and there is no trouble


class Refused(Struct, frozen=True, kw_only=True):
    """Why a recipe was not rehearsed, or why its rehearsal ended before it had an answer."""

    name: str
    refused: tuple[Finding, ...]
    passed: None = None


def greedy_of(  # noqa: PLR0913 - where the answers come from
    report: lossless.Report, *, what: str, concurrency: int, ranks: int, steps: int | None, seconds: float
) -> Greedy:
    return Greedy(
        what=what,
        concurrency=concurrency,
        ranks=ranks,
        steps=steps,
        prompts=len(report.outcomes),
        compared_tokens=report.compared_tokens,
        near_ties=report.count(lossless.Kind.NEAR_TIE),
        differences=report.count(lossless.Kind.DIFFERENT),
        tolerance_nats=report.tolerance_nats,
        sentence=report.sentence(),
        seconds=seconds,
        passed=report.is_lossless,
    )


def sampled_of(report: sampling.Report, *, temperature: float, seconds: float) -> Sampled:
    return Sampled(
        temperature=temperature,
        answers=report.rows[0].samples if report.rows else (0, 0),
        false_alarms=report.false_alarms,
        places=tuple(
            SampledPlace(place=row.name, total_variation=row.distance, bound=row.bound) for row in report.rows
        ),
        passed=report.is_within_bounds,
        sentence=report.sentence(),
        seconds=seconds,
    )


def bucket_of(name: str, alone: Sequence[Rounds], together: Sequence[Rounds]) -> Bucket:
    return Bucket(
        alone=summarise(name, alone), together=summarise(name, together), accepted=accepted_by_position(alone)
    )


def accepted_by_position(answers: Sequence[Rounds]) -> tuple[float, ...]:
    """Of the rounds in which every draft before a position was accepted, the share in which that position's was too.

    From rounds by number of accepted drafts, [0 .. num_steps]; a position that no round came to is left out.
    """
    histograms = [answer.accepted_histogram or () for answer in answers]
    rounds = [sum(column) for column in zip_longest(*histograms, fillvalue=0)]
    at_least = [sum(rounds[n:]) for n in range(len(rounds))]
    return tuple(after / before for before, after in pairwise(at_least) if before)
