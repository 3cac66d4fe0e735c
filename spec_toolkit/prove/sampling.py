"""Do a speculating engine's sampled answers follow the law of the engine without drafts? The comparison is pure; `collect_samples` asks.

Sampled answers are compared as distributions, never by a seed (theory.md, section 2). At each place, a token of the answer or two
together, the distance is the total variation of the two engines' samples. What chance alone would show comes from the answers
themselves: if both engines have one law, any split of all answers into two groups is as likely as the one found, so splits drawn at
random say how far apart two groups are. The places share one bound in standard deviations of these splits, and an honest comparison
passes one of its bounds with the probability that stands in the report, all places together (the max-T test of Westfall and Young).
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean, pstdev
from typing import Any

from spec_toolkit.engine.client import GENERATE_SECONDS, EngineClient
from spec_toolkit.prove.lossless import Completion, read_completion

Place = tuple[int, ...]  # offsets into an answer, 0 the token that the prefill draws

# The first token comes from the prefill, which does not speculate.
PLACES: tuple[Place, ...] = ((1,), (2,), (3,), (1, 2), (2, 3))
FALSE_ALARMS = 0.001  # share of honest comparisons that a report calls out of bounds
_PASSING = 2  # random splits that may pass a bound; their number follows from the rate
_ENDED = -1  # what stands where an answer has no token any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One place's comparison."""

    place: Place
    distance: float  # total variation of the two samples, 0 .. 1
    bound: float  # total variation; what chance alone passes with the report's rate, all places together
    samples: tuple[int, int]  # answers of the reference, answers of the candidate

    @property
    def name(self) -> str:
        """Counted from 1, as people count tokens."""
        numbers = [str(offset + 1) for offset in self.place]
        return f"token {numbers[0]}" if len(numbers) == 1 else f"tokens {' and '.join(numbers)}"

    @property
    def is_out_of_bound(self) -> bool:
        return self.distance > self.bound

    @property
    def is_within_bound(self) -> bool:
        return self.distance <= self.bound < 1  # nothing is further apart than 1: such a bound cannot be passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole comparison."""

    rows: tuple[Row, ...]
    false_alarms: float  # probability that samples of one law pass a bound somewhere

    @property
    def is_within_bounds(self) -> bool:
        return bool(self.rows) and all(row.is_within_bound for row in self.rows)

    def sentence(self) -> str:
        if not self.rows or not all(all(row.samples) for row in self.rows):
            return "sampled: no answers were compared; that proves nothing"
        reference, candidate = self.rows[0].samples
        rate = f"chance passes one of them once in {1 / self.false_alarms:,.0f} comparisons"
        beyond = [row for row in self.rows if row.is_out_of_bound]
        if not beyond and not self.is_within_bounds:
            return f"sampled: {reference} and {candidate} answers are too few to tell any two laws apart; that proves nothing"
        if self.is_within_bounds:
            nearest = max(self.rows, key=lambda row: row.distance - row.bound)
            return (
                f"sampled: within bounds at {len(self.rows)} places ({reference} and {candidate} answers; {rate}); nearest: "
                f"{nearest.name}, total variation {nearest.distance:.3f}, bound {nearest.bound:.3f}"
            )
        return (
            f"sampled: out of bounds at {len(beyond)} of {len(self.rows)} places ({reference} and {candidate} answers; {rate}); "
            f"first: {beyond[0].name}, total variation {beyond[0].distance:.3f}, bound {beyond[0].bound:.3f}. "
            "See runbooks/outputs-differ.md"
        )


def compare_samples(
    references: Sequence[Completion],
    candidates: Sequence[Completion],
    *,
    places: Sequence[Place] = PLACES,
    false_alarms: float = FALSE_ALARMS,
    seed: int = 0,
) -> Report:
    """`references` are the engine's that does not speculate; both are answers to one prompt under the same settings.

    The counts may differ. Takes a second for a rate of 0.001 and a thousand answers; time grows with both.
    """
    samples = len(references), len(candidates)
    if not all(samples):
        rows = tuple(Row(place=place, distance=1.0, bound=1.0, samples=samples) for place in places)
        return Report(rows=rows, false_alarms=false_alarms)
    answers = [one.output_ids for one in (*references, *candidates)]
    pools = [_Pool([_at(answer, place) for answer in answers]) for place in places]
    found = [pool.apart(range(samples[0])) for pool in pools]
    splits = math.ceil(_PASSING / false_alarms) - 1  # the split that was found is one more
    rng = random.Random(seed)  # noqa: S311 - splits for statistics, the same ones at every run
    everyone = range(len(answers))
    drawn = [
        [pool.apart(chosen) for pool in pools] for chosen in (rng.sample(everyone, min(samples)) for _ in range(splits))
    ]
    means = [fmean(column) for column in zip(*drawn, strict=True)]
    spreads = [pstdev(column) for column in zip(*drawn, strict=True)]
    furthest = sorted(
        max(_standard(one, mean, spread) for one, mean, spread in zip(split, means, spreads, strict=True))
        for split in drawn
    )
    limit = furthest[-_PASSING]
    rows = tuple(
        # A found split that equals the limiting one is within the bound, whatever the last bit of the product says.
        Row(place=place, distance=distance, bound=(mean + limit * spread) * (1 + 1e-12), samples=samples)
        for place, distance, mean, spread in zip(places, found, means, spreads, strict=True)
    )
    return Report(rows=rows, false_alarms=false_alarms)


def _at(answer: Sequence[int], place: Place) -> Place:
    return tuple(answer[offset] if offset < len(answer) else _ENDED for offset in place)


def _standard(distance: float, mean: float, spread: float) -> float:
    return (distance - mean) / spread if spread else 0.0


class _Pool:
    """What stands at one place in all answers; how far any group of them is from the rest."""

    def __init__(self, seen: Sequence[Place]) -> None:
        codes = {kind: code for code, kind in enumerate(dict.fromkeys(seen))}
        self._codes = [codes[kind] for kind in seen]
        self._counts = Counter(self._codes)

    def apart(self, group: Sequence[int]) -> float:
        """Total variation: half the sum of |c / n - (t - c) / m| over kinds seen c times in the group and t times in all."""
        n, everyone = len(group), len(self._codes)
        picked = itemgetter(*group)(self._codes) if n > 1 else (self._codes[group[0]],)
        same = sum(
            count * everyone - self._counts[code] * n
            for code, count in Counter(picked).items()
            if count * everyone > self._counts[code] * n
        )  # what the group has too much of it has too little of elsewhere, so one half of the sum is enough
        return same / (n * (everyone - n))


async def collect_samples(  # noqa: PLR0913 - what to ask, how often and how fast
    engine: EngineClient,
    prompt_ids: Sequence[int],
    *,
    count: int,
    max_new_tokens: int,
    params: Mapping[str, Any],
    concurrency: int = 64,
    seeds: Sequence[int] | None = None,
    seconds: float = GENERATE_SECONDS,
) -> list[Completion]:
    """`count` answers to one prompt, asked `concurrency` at a time; `seconds` bounds each such batch.

    `params` are /generate's sampling_params. `seeds`, one an answer, count where the engine runs with
    --enable-deterministic-inference; another engine draws as it likes.
    """
    if seeds is not None and len(seeds) != count:
        raise ValueError(f"{len(seeds)} seeds for {count} answers")
    shared = {"max_new_tokens": max_new_tokens, **params}
    wanted = [shared if seeds is None else {**shared, "sampling_seed": seeds[i]} for i in range(count)]
    found: list[Completion] = []
    for start in range(0, count, concurrency):
        batch = wanted[start : start + concurrency]
        request = {"input_ids": [list(prompt_ids)] * len(batch), "sampling_params": batch}
        found += [read_completion(answer) for answer in await engine.generate_all(request, seconds=seconds)]
    return found
