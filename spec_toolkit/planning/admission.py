"""How many requests run at once, and everything that bounds them, as one set of inequalities. Pure.

    cap            the launch's, or the engine's own: 48 where it speculates, 256 for DeepSeek V4
    per rank       max(1, cap // ranks of attention data parallelism)
    verify tokens  per rank x width; a chain of n steps is n + 1 wide, and each step count the engine can be set to has graphs of its own
    graphs         per rank <= largest captured batch, at every width
    dispatch       verify tokens, shared by the ranks of a group, <= the buffer of the experts' all-to-all
    KV             per rank x context <= tokens that fit
    written pool   the same <= the tokens a launch limits the pool to
    window pool    per rank x (window, a page and the reserve) <= tokens of the window's pool

Each is turned into the requests that one rank could run by it. The least of them binds; the next one is what a person meets who lifts
it.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from spec_toolkit.planning.captured import (
    alignment,
    chunk_tokens,
    has_decode_graphs,
    kept_sizes,
    offered_sizes,
    prefill_sizes,
)
from spec_toolkit.planning.chosen import cap_of, requests_of
from spec_toolkit.planning.memory.ledger import Room
from spec_toolkit.planning.memory.rounds import widths_of
from spec_toolkit.planning.situation import Situation

_LOW_LATENCY_OFF = "normal"  # a mode of DeepEP in which the buffer grows with what is sent


class Inequality(Struct, frozen=True, kw_only=True):
    """left <= limit, both in `unit`."""

    name: str  # stable: "request-cap"
    says: str  # what is compared, in words
    left: int
    limit: int
    unit: str  # requests, tokens
    requests: int | None  # the most one rank could run by it; None: it bounds something else

    @property
    def holds(self) -> bool:
        return self.left <= self.limit


class Graphs(Struct, frozen=True, kw_only=True):
    """Of one step count the engine can be set to."""

    width: int  # positions of a verify pass, root included; 1 without a draft
    verify_tokens: int  # of a rank's largest batch
    sizes: tuple[int, ...]  # captured batches, ascending; empty: none


class Admission(Struct, frozen=True, kw_only=True):
    cap: int  # requests of the whole server
    is_written: bool  # by the launch; else it is the engine's own
    ranks: int  # that share it
    per_rank: int  # requests one of them runs at most
    graphs: tuple[Graphs, ...]  # by width, ascending; sizes empty where how far they go is not known
    prefill_graphs: tuple[int, ...] | None  # tokens; None: not known
    inequalities: tuple[Inequality, ...]

    @property
    def admitted(self) -> int:
        """Of all ranks together; what the division leaves over never runs."""
        return self.per_rank * self.ranks

    @property
    def in_order(self) -> tuple[Inequality, ...]:
        """Those that bound requests, the tightest first."""
        bounding = [one for one in self.inequalities if one.requests is not None]
        return tuple(sorted(bounding, key=lambda one: one.requests or 0))

    @property
    def binding(self) -> Inequality | None:
        return next(iter(self.in_order), None)

    @property
    def behind(self) -> Inequality | None:
        """What binds next, once the binding one is lifted."""
        return next(iter(self.in_order[1:]), None)


class Dispatch(Struct, frozen=True, kw_only=True):
    """The buffer of the experts' all-to-all, on each rank."""

    backend: str
    variable: str
    tokens: int  # it takes in one pass
    is_set: bool  # by the launch's environment
    most: int | None  # the variable may say
    sharing: int  # ranks that share a group's tokens


def derive_admission(situation: Situation, room: Room | None = None) -> Admission | None:
    """None where neither the launch nor the engine names a cap: then it is what memory leaves.

    `room`: of the rank's KV; left out, what the launch itself says of it.
    """
    cap = cap_of(situation)
    if cap is None:
        return None
    ranks = max(1, situation.arguments.attention_dp)
    per_rank = requests_of(situation)
    widths = widths_of(situation)
    return Admission(
        cap=cap,
        is_written=situation.arguments.max_running_requests is not None,
        ranks=ranks,
        per_rank=per_rank,
        graphs=tuple(
            Graphs(width=width, verify_tokens=per_rank * width, sizes=_captured(situation, per_rank, width))
            for width in widths
        ),
        prefill_graphs=prefill_sizes(situation),
        inequalities=(
            *_inequalities(situation, cap, per_rank, widths),
            *_of_memory(situation, per_rank, room or Room()),
        ),
    )


def dispatch_of(situation: Situation) -> Dispatch | None:
    """None: no such exchange of experts, a mode without a fixed buffer, or a variable that holds no number."""
    asked = situation.arguments
    limit = situation.engine.dispatch.v.get(asked.moe_a2a_backend or "")
    if limit is None or asked.deepep_mode == _LOW_LATENCY_OFF or asked.disaggregation_mode == "prefill":
        return None
    written = situation.environment.get(limit.variable)
    if written is not None and not written.strip().isdecimal():
        return None
    return Dispatch(
        backend=asked.moe_a2a_backend or "",
        variable=limit.variable,
        tokens=limit.default if written is None else int(written),
        is_set=written is not None,
        most=limit.most,
        sharing=max(1, (asked.tp_size or 1) // max(1, asked.attention_dp) // max(1, asked.attn_cp_size or 1)),
    )


def environment_of(situation: Situation) -> dict[str, str]:
    """What a launch sets so that its largest pass fits the exchange's buffer; nothing where it fits already, or never does."""
    admission, dispatch = derive_admission(situation), dispatch_of(situation)
    if admission is None or dispatch is None or not admission.graphs:
        return {}
    sent = sent_tokens(admission.per_rank, admission.graphs[-1].width, dispatch)
    fits = dispatch.most is None or sent <= dispatch.most
    return {dispatch.variable: str(sent)} if fits and sent > dispatch.tokens else {}


def sent_tokens(per_rank: int, width: int, dispatch: Dispatch) -> int:
    """One rank's share of a verify pass over the group's whole batch."""
    return -(-per_rank * width // dispatch.sharing)


def most_requests(tokens: int, width: int, dispatch: Dispatch) -> int:
    """Of one group, by a buffer of so many tokens."""
    return tokens * dispatch.sharing // width


def _captured(situation: Situation, per_rank: int, width: int) -> tuple[int, ...]:
    offered = offered_sizes(situation) if has_decode_graphs(situation) else None
    if not offered:
        return ()
    return kept_sizes(offered, cap=per_rank, multiple=alignment(situation), width=width)


def _inequalities(situation: Situation, cap: int, per_rank: int, widths: Sequence[int]) -> Iterator[Inequality]:
    ranks = max(1, situation.arguments.attention_dp)
    share = f", {per_rank} on each of {ranks} ranks" if ranks > 1 else ""
    wanted = situation.workload.peak_concurrency
    yield Inequality(
        name="request-cap",
        says=f"requests at once, and how many are admitted{share}",
        left=cap if wanted is None else wanted,
        limit=per_rank * ranks,
        unit="requests",
        requests=per_rank,
    )
    yield from _of_graphs(situation, per_rank, widths)
    yield from _of_dispatch(situation, per_rank, widths)
    chunk, captured = chunk_tokens(situation), prefill_sizes(situation)
    if chunk is not None and captured:
        yield Inequality(
            name="prefill-graphs",
            says="tokens of a prefill chunk on one rank, and of the largest prefill graph",
            left=chunk,
            limit=captured[-1],
            unit="tokens",
            requests=None,
        )


def _of_graphs(situation: Situation, per_rank: int, widths: Sequence[int]) -> Iterator[Inequality]:
    kinds = [(f"graphs.width-{width}", f"verify graph {width} wide", width) for width in widths]
    if situation.arguments.speculates:
        kinds.append(("graphs.draft", "graph of the draft", 1))
    for name, what, width in kinds:
        sizes = _captured(situation, per_rank, width)
        if sizes:
            yield Inequality(
                name=name,
                says=f"requests of one rank, and of the largest {what}",
                left=per_rank,
                limit=sizes[-1],
                unit="requests",
                requests=sizes[-1],
            )


def _of_dispatch(situation: Situation, per_rank: int, widths: Sequence[int]) -> Iterator[Inequality]:
    dispatch = dispatch_of(situation)
    if dispatch is None or not widths:
        return
    widest = max(widths)
    yield Inequality(
        name="dispatch",
        says=f"tokens of one rank's largest verify pass, and of its {dispatch.backend} buffer",
        left=sent_tokens(per_rank, widest, dispatch),
        limit=dispatch.tokens,
        unit="tokens",
        requests=most_requests(dispatch.tokens, widest, dispatch),
    )
    if dispatch.most is not None:
        yield Inequality(
            name="dispatch-ceiling",
            says=f"tokens of the {dispatch.backend} buffer, and the most it can have",
            left=dispatch.tokens,
            limit=dispatch.most,
            unit="tokens",
            requests=most_requests(dispatch.most, widest, dispatch),
        )


def _of_memory(situation: Situation, per_rank: int, room: Room) -> Iterator[Inequality]:
    asked = situation.arguments
    each = room.of_request or situation.workload.context_tokens or asked.context_length
    pools = (
        ("kv", room.kv, each, "that fit"),
        ("written-pool", asked.max_total_tokens, each, "that the launch limits the pool to"),
        ("window-pool", room.windows, room.of_request_windows, "of the window's pool"),
    )
    for name, tokens, one, which in pools:
        if one and tokens is not None:
            yield Inequality(
                name=name,
                says=f"tokens of one rank's requests at {one:,} each, and those {which}",
                left=per_rank * one,
                limit=tokens,
                unit="tokens",
                requests=max(0, tokens) // one,
            )
