"""One look at an engine, and what of it may be believed. Touches the world in `Scraper` alone.

Loads are read from memory and at once. The ranks' rows wait for the end of a round, and for ever where a rank hangs: one read of them
is under way at most, for the engine would queue a second one behind it, and a look that ends before it does goes without.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.loads import Loads
from spec_toolkit.engine.ranks import RankState
from spec_toolkit.errors import EngineError
from spec_toolkit.policy.modes import Rung
from spec_toolkit.policy.telemetry import Telemetry
from spec_toolkit.terms import Mode

LOOK_SECONDS = (
    2.0  # of one look. Rows come within a round or two; longer, and the loop has other things to do meanwhile
)
_UNKNOWN = Loads(queue_depth=None, running=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one engine said at one time."""

    telemetry: Telemetry | None = None  # None: it did not say how it does, so nothing that can be decided on
    ranks: tuple[RankState, ...] = ()  # empty: it did not say, or has no knob
    answered: bool = False  # the schedulers answered since the last look
    finding: str = ""  # what is wrong with it, for people
    loads: Loads = field(default=_UNKNOWN)

    @property
    def rung(self) -> Rung | None:
        """In force on every rank; None where they do not say one and the same."""
        return common_rung(self.ranks)

    @property
    def fell(self) -> str:
        """Why an engine went to another rung by itself; empty where it did not."""
        return next((rank.reason for rank in self.ranks if rank.reason), "")


def common_rung(ranks: Sequence[RankState]) -> Rung | None:
    rungs = {Rung(Mode[rank.mode.name], rank.steps) for rank in ranks}
    return rungs.pop() if len(rungs) == 1 else None


def summarise(ranks: Sequence[RankState], loads: Loads, at_s: float) -> tuple[Telemetry, str]:
    """One number for all ranks: the sum over data-parallel ranks, of whose own ranks one speaks. What they disagree on is None.

    Also what they disagree on, in a sentence; empty where they agree.
    """
    groups: dict[int, list[RankState]] = {}
    for rank in ranks:
        groups.setdefault(rank.dp, []).append(rank)
    rung = common_rung(ranks)
    apart = [] if rung or not ranks else ["mode or steps"]
    apart += ["epoch"] if len({rank.epoch for rank in ranks}) > 1 else []
    counted: dict[str, int | None] = {}
    for name in ("verify_rounds", "accepted_drafts"):
        values = [{getattr(rank, name) for rank in group} for group in groups.values()]
        apart += [name] if any(len(of_group) > 1 for of_group in values) else []
        counted[name] = _sum([of_group.pop() if len(of_group) == 1 else None for of_group in values])
    telemetry = Telemetry(
        at_s=at_s,
        rounds=counted["verify_rounds"],
        accepted_drafts=counted["accepted_drafts"],
        accepted_histogram=_histogram([group[0].accepted_histogram for group in groups.values()]),
        draft_faults=_sum([_most_faults(group) for group in groups.values()]),
        steps=rung.steps if rung else None,
        queue_depth=loads.queue_depth,
        running=loads.running,
    )
    return telemetry, f"ranks disagree on {', '.join(apart)}" if apart else ""


def faults_by_site(ranks: Sequence[RankState]) -> dict[str, int] | None:
    """Over all ranks; None where none counts them. A fault on several ranks of one round is counted by each."""
    told = [rank.draft_faults for rank in ranks if rank.draft_faults is not None]
    if not told:
        return None
    sites = sorted({site for faults in told for site in faults})
    return {site: sum(faults.get(site, 0) for faults in told) for site in sites}


def missing_draft_kv(ranks: Sequence[RankState]) -> int | None:
    """Prefills, of all data-parallel ranks; None where an engine does not count them."""
    one_each = {rank.dp: rank.draft_kv_missing for rank in reversed(ranks)}
    return _sum(list(one_each.values()))


def last_fault(ranks: Sequence[RankState]) -> str | None:
    told = [rank.last_fault for rank in ranks if rank.last_fault is not None]
    return next((fault for fault in told if fault), "") if told else None


def _most_faults(group: Sequence[RankState]) -> int | None:
    """A fault that only one rank of a group caught is the group's: they share the round."""
    told = [sum(rank.draft_faults.values()) for rank in group if rank.draft_faults is not None]
    return max(told, default=None)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _histogram(rows: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    known = [row for row in rows if row is not None]
    if not known or len(known) != len(rows):
        return None
    return tuple(sum(column) for column in zip_longest(*known, fillvalue=0))


class Scraper:
    """Looks at one engine. Close it when another takes its place."""

    def __init__(self, engine: EngineClient, clock: Callable[[], float], *, hang_seconds: float) -> None:
        self._engine = engine
        self._clock = clock
        self._hang_seconds = hang_seconds
        self._reading: asyncio.Task[tuple[tuple[RankState, ...], float]] | None = None

    async def look(self, seconds: float = LOOK_SECONDS) -> Look:
        """Within `seconds`. Never raises but for cancellation."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_ranks())
        reading = self._reading
        loads, finding = await self._read_loads(seconds)
        if loads is None:  # its front does not answer: neither will its ranks, and their refusal need not be waited for
            loads = _UNKNOWN
        done, _ = await asyncio.wait({reading}, timeout=seconds)
        if not done:
            return Look(loads=loads, finding=finding or f"no rank has answered for {seconds:g} s")
        self._reading = None
        try:
            ranks, at_s = reading.result()
        except EngineError as error:
            # Whoever answers what cannot be read does not hang.
            answered = any(finding.rule == "engine.refused" for finding in error.findings)
            return Look(loads=loads, answered=answered, finding=str(error))
        telemetry, apart = summarise(ranks, loads, at_s)
        return Look(telemetry=telemetry, ranks=ranks, answered=True, finding=apart or finding, loads=loads)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError, EngineError):
                await self._reading

    async def _read_ranks(self) -> tuple[tuple[RankState, ...], float]:
        ranks = await self._engine.ranks(seconds=self._hang_seconds)
        return ranks, self._clock()

    async def _read_loads(self, seconds: float) -> tuple[Loads | None, str]:
        try:
            return await self._engine.loads(seconds=seconds), ""
        except EngineError as error:
            return None, str(error)
