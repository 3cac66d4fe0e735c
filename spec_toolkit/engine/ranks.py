"""What every rank of an engine says about the knob, out of `/server_info`. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spec_toolkit.terms import RANKS_KEY, KnobAnswer, KnobMode


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """One rank. Counters are cumulative since the engine started."""

    dp: int  # data-parallel rank, of replicas or of attention
    rank: int  # within its tensor-parallel group
    epoch: int  # of the command in force; 0: as started
    mode: KnobMode
    steps: int  # the most draft passes in a round
    candidates: tuple[int, ...]  # step counts it can be set to, ascending
    taken: int  # commands
    refused: int  # commands
    last: KnobAnswer  # what became of the last command
    rounds: int  # decode rounds, those the rank idled through included
    # None below: this engine does not count it.
    verify_rounds: int | None = None  # one verify pass of one request; those of requests that just ended included
    accepted_drafts: int | None = None  # bonus tokens not counted
    accepted_histogram: tuple[int, ...] | None = None  # verify rounds by accepted drafts, [0 .. largest candidate]
    reason: str | None = None  # why the mode is not the last command's; empty if it is
    draft_faults: Mapping[str, int] | None = (
        None  # by the name of the site they were caught at; sites without one left out
    )
    draft_kv_missing: int | None = None  # prefills that went on from a prefix whose draft KV is not there
    last_fault: str | None = None  # "site: exception: text", cut; empty if there was none


def read_ranks(server_info: Mapping[str, Any]) -> tuple[RankState, ...]:
    """By data-parallel rank, then rank; empty for an engine without a knob. ValueError where the rows are not what the plugin writes.

    Under attention DP several ranks answer, each with the rows of all, taken in one exchange: every rank is read once.
    """
    try:
        rows = [row for state in server_info["internal_states"] for row in state.get(RANKS_KEY, ())]
        ranks = {(rank.dp, rank.rank): rank for rank in map(_read_rank, rows)}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the ranks' rows cannot be read: {error!r}") from error
    return tuple(ranks[place] for place in sorted(ranks))


def _read_rank(row: Mapping[str, Any]) -> RankState:
    numbers = {name: int(row[name]) for name in ("dp", "rank", "epoch", "steps", "taken", "refused", "rounds")}
    faults = row.get("draft_faults")
    return RankState(
        **numbers,
        mode=KnobMode(row["mode"]),
        candidates=tuple(row["candidates"]),
        last=KnobAnswer(row["last"]),
        verify_rounds=_count(row, "verify_rounds"),
        accepted_drafts=_count(row, "accepted_drafts"),
        accepted_histogram=tuple(map(int, row["accepted_histogram"])) if "accepted_histogram" in row else None,
        reason=_text(row, "reason"),
        draft_faults={str(site): int(count) for site, count in faults.items()} if faults is not None else None,
        draft_kv_missing=_count(row, "draft_kv_missing"),
        last_fault=_text(row, "last_fault"),
    )


def _count(row: Mapping[str, Any], name: str) -> int | None:
    return int(row[name]) if name in row else None


def _text(row: Mapping[str, Any], name: str) -> str | None:
    return str(row[name]) if name in row else None
