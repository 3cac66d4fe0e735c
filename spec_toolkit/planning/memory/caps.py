"""Whether a draft stays within its caps, and what a launch becomes where it does not. Pure."""

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from spec_toolkit.planning.memory.ledger import DRAFT, DRAFT_KV, RESERVE, Ledger
from spec_toolkit.planning.memory.reserve import GIB, largest_chain
from spec_toolkit.planning.memory.rounds import Rounds
from spec_toolkit.planning.situation import Caps
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.terms import Mode


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


def caps_of(recipe: Recipe) -> Caps:
    limits = recipe.limits
    return Caps(
        draft_weights_gib=limits.draft_weights_gib,
        draft_kv_gib=limits.draft_kv_gib,
        temporary_kv_gib=limits.temporary_kv_gib,
        may_run_autoregressive=Mode.AUTOREGRESSIVE in recipe.policy.allow,
    )


def judge(ledger: Ledger, caps: Caps, rounds: Rounds, requests: int) -> Outcome:
    """`requests`: of one rank. What nobody knows exceeds no cap."""
    excesses = tuple(_excesses(ledger, caps))
    if not excesses or not rounds.steps:
        return Outcome(becomes=Becomes.AS_ASKED)
    narrower = None
    if all(excess.cap == "temporary_kv_gib" for excess in excesses) and rounds.topk == 1 and rounds.has_draft_passes:
        narrower = _narrower(ledger, excesses[0].limit_gib, rounds, requests)
    if narrower is not None:
        return Outcome(becomes=Becomes.NARROWER, excesses=excesses, num_steps=narrower)
    becomes = Becomes.AUTOREGRESSIVE if caps.may_run_autoregressive else Becomes.REFUSED
    return Outcome(becomes=becomes, excesses=excesses)


def _excesses(ledger: Ledger, caps: Caps) -> Iterator[Excess]:
    taken = {
        "draft_weights_gib": ledger.taken(DRAFT),
        "draft_kv_gib": ledger.taken(DRAFT_KV),
        "temporary_kv_gib": ledger.taken(RESERVE),
    }
    for cap, size in taken.items():
        limit = getattr(caps, cap)
        if limit is not None and size / GIB > limit:
            yield Excess(cap=cap, limit_gib=limit, takes_gib=size / GIB)


def _narrower(ledger: Ledger, limit_gib: float, rounds: Rounds, requests: int) -> int | None:
    if ledger.kv is None or ledger.page_size is None:
        return None
    slots = limit_gib * GIB / (requests * ledger.kv.total)
    return largest_chain(slots=slots, page_size=ledger.page_size, at_most=max(rounds.steps) - 1)
