"""What an engine said, and what happened between two times it spoke. Pure.

Counters are cumulative since the engine started, so only differences say something about now. A counter that went down means another
engine behind the same port: what came before it is not compared with what came after. What the engine does not say is None, never zero.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from math import sqrt

from msgspec import Struct
from msgspec.structs import replace

_ONE_SIDED_95 = 1.645  # standard deviations


class Telemetry(Struct, frozen=True, kw_only=True):
    """One good scrape of one engine; over all its ranks, which agree or are not scraped as one."""

    at_s: float  # when, on the clock `decide` is given
    rounds: int | None = None  # verify rounds so far, counted per request
    accepted_drafts: int | None = None  # so far; bonus tokens not counted
    accepted_histogram: tuple[int, ...] | None = None  # rounds so far by accepted drafts, [0 .. steps]
    draft_faults: int | None = None  # so far; faults that were isolated inside the engine
    steps: int | None = None  # the ceiling on draft passes now in force, as every rank reports it
    queue_depth: int | None = None  # requests waiting now
    running: int | None = None  # requests in the batch of a round now; with attention DP of the busiest rank


class Emitted(Struct, frozen=True, kw_only=True):
    """An emitted length with what it is worth."""

    length: float  # tokens per round, bonus included; 1 .. steps + 1
    rounds: int  # sample size
    low: float  # the true length lies above it with 95 % confidence
    high: float  # the true length lies below it with 95 % confidence


class Window(Struct, frozen=True, kw_only=True):
    """What happened between two scrapes of one engine."""

    from_s: float
    until_s: float  # the last good scrape; before the first one, when looking began
    rounds: int | None = None  # like the next two, possibly from further back than `from_s`: see `latest_window`
    accepted_drafts: int | None = None
    emitted: Emitted | None = None  # None where counters are missing, do not fit, or the steps changed
    draft_faults: int | None = None  # at the end, so far: `decide` knows how many of them it has answered
    steps: int | None = None  # in force throughout; None: not reported, or changed
    queue_least: int | None = None  # over the scrapes of the window
    queue_most: int | None = None
    running: float | None = None  # mean over the scrapes of the window
    engine_lost: bool | None = None  # the supervisor's word: it ended or hung unasked; None: nobody can say

    @property
    def seconds(self) -> float:
        return self.until_s - self.from_s


def window(*scrapes: Telemetry, engine_lost: bool | None = None) -> Window:
    """Between the first and the last of these scrapes, oldest first; those in between only add to what is now (queue, batch)."""
    kept = _since_last_start(scrapes)
    before, after = kept[0], kept[-1]
    rounds = _difference(before.rounds, after.rounds)
    accepted = _difference(before.accepted_drafts, after.accepted_drafts)
    steps = _agreed(scrape.steps for scrape in kept)
    queue = [scrape.queue_depth for scrape in kept if scrape.queue_depth is not None]
    running = [scrape.running for scrape in kept if scrape.running is not None]
    return Window(
        from_s=before.at_s,
        until_s=after.at_s,
        rounds=rounds,
        accepted_drafts=accepted,
        emitted=estimate(rounds, accepted, steps, _made(before.accepted_histogram, after.accepted_histogram)),
        draft_faults=after.draft_faults,
        steps=steps,
        queue_least=min(queue, default=None),
        queue_most=max(queue, default=None),
        running=sum(running) / len(running) if running else None,
        engine_lost=engine_lost,
    )


def latest_window(
    scrapes: Sequence[Telemetry],
    *,
    seconds: float,
    min_rounds: int,
    since_s: float,
    engine_lost: bool | None = None,
) -> Window:
    """The shortest window of at least `seconds` that ends with the last scrape and begins no earlier than `since_s`, the last move.

    Where that holds fewer than `min_rounds`, as at small batches, rounds are counted from further back: load is a matter of now,
    acceptance of enough rounds. Rounds from before the last move were made with other steps. `scrapes` are oldest first; the oldest
    the caller keeps is the furthest that acceptance looks back.
    """
    if not scrapes:
        return Window(from_s=since_s, until_s=since_s, engine_lost=engine_lost)
    own = [scrape for scrape in scrapes[:-1] if scrape.at_s >= since_s]
    recent = window(*_back_to(own, scrapes[-1], lambda first, last: last.at_s - first.at_s >= seconds))
    recent = replace(recent, engine_lost=engine_lost)
    if recent.rounds is None or recent.rounds >= min_rounds:
        return recent
    counted = [scrape for scrape in own if scrape.rounds is not None]
    longer = window(*_back_to(counted, scrapes[-1], lambda first, last: _rounds(first, last) >= min_rounds))
    return replace(recent, rounds=longer.rounds, accepted_drafts=longer.accepted_drafts, emitted=longer.emitted)


def _back_to(
    earlier: Sequence[Telemetry], last: Telemetry, is_enough: Callable[[Telemetry, Telemetry], bool]
) -> Sequence[Telemetry]:
    """The fewest of the latest scrapes that are enough, `last` included; all of them where none are."""
    for index in range(len(earlier) - 1, -1, -1):
        if is_enough(earlier[index], last):
            return (*earlier[index:], last)
    return (*earlier, last)


def _rounds(first: Telemetry, last: Telemetry) -> int:
    """Between two scrapes that were both counted; below zero across a restart, which is never enough."""
    return _difference(first.rounds, last.rounds) or 0


def estimate(
    rounds: int | None, accepted: int | None, steps: int | None, histogram: Sequence[int] | None = None
) -> Emitted | None:
    """Mean and one-sided 95 % bounds, by the normal approximation. None where the counts are missing or do not fit each other.

    The variance is the sample's where the histogram gives it, else the largest that the mean and the range [0, steps] allow
    (Bhatia-Davis). One pseudo-round at either end of the range keeps a sample without variation from claiming certainty. Rounds of
    one request resemble each other, so the true bounds are somewhat wider: `min_rounds` is there to make up for it.
    """
    if not rounds or accepted is None or steps is None or not 0 <= accepted <= rounds * steps:
        return None
    mean = accepted / rounds
    squares = accepted * steps
    if histogram is not None and sum(histogram) == rounds and sum(n * h for n, h in enumerate(histogram)) == accepted:
        squares = sum(n * n * h for n, h in enumerate(histogram))
    padded = rounds + 2
    variance = (squares + steps * steps) / padded - ((accepted + steps) / padded) ** 2
    reach = _ONE_SIDED_95 * sqrt(max(variance, 0.0) / rounds)
    return Emitted(
        length=1 + mean,
        rounds=rounds,
        low=max(1.0, 1 + mean - reach),
        high=min(1.0 + steps, 1 + mean + reach),
    )


def _since_last_start(scrapes: Sequence[Telemetry]) -> Sequence[Telemetry]:
    """The scrapes of the engine that made the last one. A counter missing in between is compared across the gap."""
    first = 0
    for name in ("rounds", "accepted_drafts", "draft_faults"):
        known: int | None = None
        for index, scrape in enumerate(scrapes):
            value: int | None = getattr(scrape, name)
            if value is None:
                continue
            if known is not None and value < known:
                first = max(first, index)
            known = value
    return scrapes[first:]


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _made(before: Sequence[int] | None, after: Sequence[int] | None) -> tuple[int, ...] | None:
    if before is None or after is None:
        return None
    return tuple(new - old for old, new in zip_longest(before, after, fillvalue=0))


def _agreed(values: Iterable[int | None]) -> int | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None
