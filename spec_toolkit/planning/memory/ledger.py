"""The account of one rank's memory: what lies in it, how each line is known, what is left for KV, and what binds first. Pure.

The engine's own division (SGLang 0.5.23, srt/mem_cache/kv_cache_configurator.py, _profile_available_bytes): of what was free before the
load a share, the memory fraction, is for weights and KV pool, the rest for everything else.

    pool   = free_before x fraction - target weights - draft weights
    tokens = (pool - fixed state of requests) / (target + draft bytes per token), in whole pages

A line that nobody knows is in the account without a number; what is left is then an upper bound, and the account says so.
"""

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from spec_toolkit.planning.memory.kv import KvBytes
from spec_toolkit.planning.memory.reserve import GIB, MIB, Need
from spec_toolkit.planning.memory.rounds import Rounds, graph_families


class How(Enum):
    """How a line is known."""

    MEASURED = "measured"
    COUNTED = "counted"  # from the model's numbers, as the engine divides them
    ESTIMATED = "the engine's estimate"
    UNKNOWN = "unknown"


class Place(Enum):
    STATIC = "weights and KV"  # inside the memory fraction
    OUTSIDE = "outside"
    BEFORE = "before the load"  # taken before the engine measures what is free


class Line(Struct, frozen=True, kw_only=True):
    name: str
    place: Place
    bytes: int | None  # of one rank; None: unknown
    how: How
    says: str  # formula and source, for people
    most: int | None = None  # where `bytes` is the least that it can be

    @property
    def gib(self) -> float | None:
        return None if self.bytes is None else self.bytes / GIB


class Room(Struct, frozen=True, kw_only=True):
    """What a rank has of KV, and what one request takes of it, in tokens. None: not known, or there is no such pool."""

    kv: int | None = None  # that memory leaves
    of_request: int | None = None  # at the stated context, reserve included
    windows: int | None = None  # of the window's pool
    of_request_windows: int | None = None  # at least


class Demand(Struct, frozen=True, kw_only=True):
    """What an account is drawn up of; bytes, of one rank. None: not known."""

    memory: int | None  # of the GPU
    free_before: int | None  # measured before the load
    fraction: float | None
    fraction_says: str
    memory_says: str  # who says how much the GPU has
    target: tuple[int | None, How, str]  # weights: bytes, how, in words
    draft: tuple[int | None, How, str] | None  # None: it does not speculate
    draft_most: int | None = None  # where `draft` is the least that it can be
    kv: KvBytes | None
    page_size: int | None  # tokens
    rounds: Rounds
    requests: int  # admission cap of this rank
    context_tokens: int | None
    pool_tokens: int | None  # written cap
    outside: tuple[Need, ...] | None  # the engine's estimate
    outside_measured: int | None = None
    window_tokens: int | None = None
    image_cache: int = 0  # taken out of the pool's share for models that see images


class Ledger(Struct, frozen=True, kw_only=True):
    lines: tuple[Line, ...]
    usable: int | None  # bytes for weights and KV pool
    usable_says: str
    fraction: float | None
    pool: int | None  # of those, for KV; negative: the weights alone are too much
    kv: KvBytes | None
    fitting: int | None  # tokens that memory leaves room for
    tokens: int | None  # of the pool: those, or the written cap
    page_size: int | None
    slots_per_request: int | None  # the temporary reserve
    reserve: int | None  # bytes that all requests' slots come to; the pool may hold fewer
    room: Room

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(line.name for line in self.lines if line.how is How.UNKNOWN)

    @property
    def request_tokens(self) -> int | None:
        """Of one request at the stated context, reserve included."""
        return self.room.of_request

    @property
    def draft_kv(self) -> int | None:
        """Bytes of the draft's own pool, its share of the reserve included."""
        if self.kv is None or self.tokens is None:
            return None
        return 0 if self.kv.draft_is_empty else round(self.tokens * self.kv.draft)

    def line(self, name: str) -> Line | None:
        return next((line for line in self.lines if line.name == name), None)

    def taken(self, name: str) -> int:
        """Bytes of a line; 0 where there is none or nobody knows."""
        line = self.line(name)
        return (line.bytes or 0) if line is not None else 0

    @property
    def outside(self) -> int:
        """Bytes that stay outside weights and pool, as far as they are known."""
        return sum(line.bytes or 0 for line in self.lines if line.place is Place.OUTSIDE)

    @property
    def headroom(self) -> int | None:
        """Bytes that the memory fraction leaves outside."""
        if self.usable is None or not self.fraction:
            return None
        return round(self.usable / self.fraction * (1 - self.fraction))


TARGET, DRAFT = "target weights", "draft weights"
TARGET_KV, DRAFT_KV, STATE, RESERVE = "target KV", "draft KV", "state of requests", "temporary reserve"
EMPTY_KV = "charged and left empty"
IMAGES = "image cache"
# Where the engine's rules stand, with their level of evidence.
_POOL = "sglang-source: srt/model_executor/pool_configurator.py"
_SLOTS = "sglang-source: srt/mem_cache/allocation_sizing.py"
_ESTIMATE = "sglang-source: srt/arg_groups/memory_hook.py"
_CACHE = "sglang-source: srt/environ.py"


def make_ledger(demand: Demand) -> Ledger:
    usable = _usable(demand)
    target = demand.target[0]
    draft = demand.draft[0] or 0 if demand.draft is not None else 0  # unknown: left out, and said
    pool = usable - target - draft - demand.image_cache if usable is not None and target is not None else None
    page, kv = demand.page_size or 1, demand.kv
    fitting = _fitting(pool, kv, demand, page)
    tokens = _tokens(fitting, demand.pool_tokens, page)
    slots = demand.rounds.reserve_slots(page)
    reserve = None if kv is None or slots is None else round(slots * demand.requests * kv.total)
    return Ledger(
        lines=(
            *_before(demand),
            *_weights(demand),
            *_kv_lines(demand, tokens, reserve, pool),
            *_outside(demand),
        ),
        usable=usable,
        usable_says=f"{demand.fraction_says}, of what {demand.memory_says}",
        fraction=demand.fraction,
        pool=pool,
        kv=kv,
        fitting=fitting,
        tokens=tokens,
        page_size=demand.page_size,
        slots_per_request=slots,
        reserve=reserve,
        room=_room(demand, fitting, tokens, slots or 0),
    )


def fits(ledger: Ledger) -> bool | None:
    """Whether one request at the stated context fits; None: not known."""
    if ledger.pool is not None and ledger.pool <= 0:
        return False
    if ledger.tokens is None or ledger.request_tokens is None:
        return None
    return ledger.tokens >= ledger.request_tokens


def _usable(demand: Demand) -> int | None:
    before = demand.free_before if demand.free_before is not None else demand.memory
    if before is None:
        return None
    return None if demand.fraction is None else round(before * demand.fraction)


def _fitting(pool: int | None, kv: KvBytes | None, demand: Demand, page: int) -> int | None:
    if pool is None or kv is None:
        return None
    return int(max(0, pool - kv.fixed(demand.requests)) / kv.total) // page * page


def _tokens(fitting: int | None, written: int | None, page: int) -> int | None:
    if fitting is None or written is None:
        return fitting
    return min(fitting, max(0, written) // page * page)


def _room(demand: Demand, fitting: int | None, tokens: int | None, slots: int) -> Room:
    page, context, kv = demand.page_size or 1, demand.context_tokens, demand.kv
    in_windows = kv is not None and kv.window_share is not None and demand.window_tokens
    return Room(
        kv=fitting,
        of_request=None if context is None else -(-(context + slots) // page) * page,
        windows=int(tokens * kv.window_share) if in_windows and tokens is not None and kv and kv.window_share else None,
        of_request_windows=demand.window_tokens + page + slots if in_windows and demand.window_tokens else None,
    )


def _before(demand: Demand) -> Iterable[Line]:
    taken = None
    if demand.free_before is not None and demand.memory is not None:
        taken = demand.memory - demand.free_before
    how = How.UNKNOWN if taken is None else How.MEASURED
    says = (
        "memory less what was free before the load"
        if taken is not None
        else "driver, context and communicators: not measured here"
    )
    yield Line(name="taken before the load", place=Place.BEFORE, bytes=taken, how=how, says=says)


def _weights(demand: Demand) -> Iterable[Line]:
    for name, weights in ((TARGET, demand.target), (DRAFT, demand.draft)):
        if weights is not None:
            size, how, says = weights
            most = demand.draft_most if name == DRAFT else None
            yield Line(name=name, place=Place.STATIC, bytes=size, how=how, says=says, most=most)


def _kv_lines(demand: Demand, tokens: int | None, reserve: int | None, pool: int | None) -> Iterable[Line]:
    kv, how = demand.kv, How.UNKNOWN if tokens is None else How.COUNTED
    if demand.image_cache:
        yield Line(
            name=IMAGES, place=Place.STATIC, bytes=demand.image_cache, how=How.ESTIMATED, says=f"100 MiB ({_CACHE})"
        )
    if kv is None:
        yield Line(name=TARGET_KV, place=Place.STATIC, bytes=None, how=How.UNKNOWN, says="bytes per token not known")
        return
    fixed = kv.fixed(demand.requests)
    if fixed:
        kind = "rings" if kv.request_state is not None else "windows"
        says = f"{kind} of {demand.requests} requests ({_POOL})"
        yield Line(name=STATE, place=Place.STATIC, bytes=fixed, how=How.COUNTED, says=says)
    whole = None if tokens is None else round(tokens * kv.total)
    held = reserve if whole is None or reserve is None else min(reserve, whole)
    yield from _reserve_line(demand, kv, reserve, held)
    share = 0 if whole is None else whole - (held or 0)
    drafts = (EMPTY_KV, "its layers read the target's") if kv.draft_is_empty else (DRAFT_KV, "the draft's layers")
    parts = [(TARGET_KV, kv.target, kv.rule)] + ([(drafts[0], kv.draft, drafts[1])] if kv.draft else [])
    for name, each, rule in parts:
        size = None if tokens is None else int(share * each / kv.total)
        unsized = "" if pool is not None else "; the pool's size is not known"
        says = f"{each:,.2f} B a token: {rule}{unsized} ({_POOL})"
        yield Line(name=name, place=Place.STATIC, bytes=size, how=how, says=says)


def _reserve_line(demand: Demand, kv: KvBytes, reserve: int | None, held: int | None) -> Iterable[Line]:
    if reserve == 0:
        return
    slots = demand.rounds.reserve_slots(demand.page_size or 1)
    if slots is None or reserve is None:
        says = "how wide a round is, nobody read"
        yield Line(name=RESERVE, place=Place.STATIC, bytes=None, how=How.UNKNOWN, says=says)
        return
    short = f"; the pool holds no more of {reserve / GIB:,.2f} GiB" if held is not None and held < reserve else ""
    says = f"{slots} slots x {demand.requests} requests x {kv.total:,.0f} B, of the pool{short} ({_SLOTS})"
    yield Line(name=RESERVE, place=Place.STATIC, bytes=held, how=How.COUNTED, says=says)


def _outside(demand: Demand) -> Iterable[Line]:
    if demand.outside_measured is not None:
        says = "all that is neither weights nor KV pool"
        yield Line(name="outside", place=Place.OUTSIDE, bytes=demand.outside_measured, how=How.MEASURED, says=says)
        return
    for need in demand.outside or ():
        yield Line(
            name=need.name,
            place=Place.OUTSIDE,
            bytes=round(need.mib * MIB),
            how=How.ESTIMATED,
            says=f"{need.rule} ({_ESTIMATE})",
        )
    if demand.outside is None:
        yield Line(
            name="activations and graphs",
            place=Place.OUTSIDE,
            bytes=None,
            how=How.UNKNOWN,
            says="the GPU's memory is not known",
        )
    for name, says in graph_families(demand.rounds):
        yield Line(name=name, place=Place.OUTSIDE, bytes=None, how=How.UNKNOWN, says=says)
