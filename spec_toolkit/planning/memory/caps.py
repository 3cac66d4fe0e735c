"""Whether a draft stays within its caps, and what a launch becomes where it does not. Pure."""

from collections.abc import Iterator, Mapping
from enum import Enum

from msgspec import Struct

from spec_toolkit.planning.memory.ledger import DRAFT, Ledger
from spec_toolkit.planning.memory.reserve import GIB, largest_chain
from spec_toolkit.planning.memory.rounds import Rounds
from spec_toolkit.planning.situation import Caps


class Becomes(Enum):
    AS_ASKED = "as asked"
    NARROWER = "fewer steps"
    AUTOREGRESSIVE = "autoregressive"
    REFUSED = "refused"


class Excess(Struct, frozen=True, kw_only=True):
    cap: str  # its key: draft_weights_gib
    limit_gib: float
    takes_gib: float


class Outcome(Struct, frozen=True, kw_only=True):
    becomes: Becomes
    excesses: tuple[Excess, ...] = ()
    num_steps: int | None = None  # the most that the caps leave room for, where it becomes narrower
    unjudged: tuple[str, ...] = ()  # caps with nothing to compare them to


def judge(ledger: Ledger, caps: Caps, rounds: Rounds, requests: int) -> Outcome:
    """`requests`: of one rank. What nobody knows exceeds no cap, and is no proof that it stays below."""
    if not rounds.steps:
        return Outcome(becomes=Becomes.AS_ASKED)
    taken = _taken(ledger)
    excesses = tuple(_excesses(taken, caps))
    if not excesses:
        return Outcome(becomes=Becomes.AS_ASKED, unjudged=tuple(_unjudged(taken, caps)))
    narrower = None
    if all(excess.cap == "temporary_kv_gib" for excess in excesses) and rounds.topk == 1 and rounds.has_draft_passes:
        narrower = _narrower(ledger, excesses[0].limit_gib, rounds, requests)
    if narrower is not None:
        return Outcome(becomes=Becomes.NARROWER, excesses=excesses, num_steps=narrower)
    becomes = Becomes.AUTOREGRESSIVE if caps.may_run_autoregressive else Becomes.REFUSED
    return Outcome(becomes=becomes, excesses=excesses)


def _taken(ledger: Ledger) -> Mapping[str, tuple[int | None, int | None]]:
    """By cap: bytes at least and at most; None: not known."""
    weights = ledger.line(DRAFT)
    least = weights.bytes if weights is not None else None
    most = weights.most if weights is not None and weights.most is not None else least
    return {
        "draft_weights_gib": (least, most),
        "draft_kv_gib": (ledger.draft_kv, ledger.draft_kv),
        "temporary_kv_gib": (ledger.reserve, ledger.reserve),
    }


def _excesses(taken: Mapping[str, tuple[int | None, int | None]], caps: Caps) -> Iterator[Excess]:
    for cap, (least, _) in taken.items():
        limit = getattr(caps, cap)
        if limit is not None and least is not None and least / GIB > limit:
            yield Excess(cap=cap, limit_gib=limit, takes_gib=least / GIB)


def _unjudged(taken: Mapping[str, tuple[int | None, int | None]], caps: Caps) -> Iterator[str]:
    for cap, (least, most) in taken.items():
        limit = getattr(caps, cap)
        if limit is not None and (least is None or most is None or least / GIB <= limit < most / GIB):
            yield cap


def _narrower(ledger: Ledger, limit_gib: float, rounds: Rounds, requests: int) -> int | None:
    if ledger.kv is None or ledger.page_size is None:
        return None
    slots = limit_gib * GIB / (requests * ledger.kv.total)
    return largest_chain(slots=slots, page_size=ledger.page_size, at_most=max(rounds.steps) - 1)
