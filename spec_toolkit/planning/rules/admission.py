"""Rules about how many requests a launch admits, and the graphs and buffers that must keep up with it. Pure.

The inequalities themselves are in `planning.admission`; here each that does not hold becomes a sentence.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Change, Finding, correct, note, refuse, warn
from spec_toolkit.planning.admission import (
    Admission,
    Dispatch,
    derive_admission,
    dispatch_of,
    most_requests,
    sent_tokens,
)
from spec_toolkit.planning.captured import alignment, has_decode_graphs, ladder_with
from spec_toolkit.planning.memory.rounds import widths_of
from spec_toolkit.planning.rules.graphs import round_up
from spec_toolkit.planning.situation import Situation

_CAP = "max_running_requests"
_SIZES, _LARGEST = "cuda_graph_bs_decode", "cuda_graph_max_bs_decode"
_LONGEST = 12  # sizes of a list that a sentence spells out


def request_cap(situation: Situation) -> Iterator[Finding]:
    """C001: a cap nobody wrote is the engine's own, small where it speculates."""
    admission = derive_admission(situation)
    if admission is None or admission.is_written:
        return
    wanted, cap = situation.workload.peak_concurrency, admission.cap
    found = f"is left out, and the engine then admits {cap:,} requests at once"
    if wanted is None:
        yield note("capacity.request-cap", _CAP, found, remedy="Write how many clients come at once.")
    elif wanted > admission.admitted:
        share = -(-wanted // admission.ranks)
        end = round_up(share, alignment(situation))
        remedy = f"Planned with {share * admission.ranks:,}, and graphs that end at {end:,}; write both."
        changes = ((_CAP, share * admission.ranks), *_graphs_to(situation, end))
        yield correct("capacity.request-cap", _CAP, found, f"{wanted:,} are to run", remedy, changes)


def concurrency(situation: Situation) -> Iterator[Finding]:
    """C006: who measures more clients than the cap measures the queue."""
    admission, wanted = derive_admission(situation), situation.workload.peak_concurrency
    if admission is None or not admission.is_written or wanted is None or wanted <= admission.admitted:
        return
    each = f" ({admission.per_rank:,} on each of {admission.ranks} ranks)" if admission.ranks > 1 else ""
    yield warn(
        "capacity.concurrency",
        "workload.peak_concurrency",
        f"is {wanted:,}, and max_running_requests {admission.cap:,} admits {admission.admitted:,} at once{each}",
        "the rest waits in the queue",
        f"Raise max_running_requests to {wanted:,} where memory allows it, or expect the wait.",
    )


def per_rank_cap(situation: Situation) -> Iterator[Finding]:
    """C005: the cap is of the whole server; batches and graphs are of a rank."""
    admission = derive_admission(situation)
    if admission is None or admission.ranks == 1:
        return
    left_over = admission.cap - admission.admitted
    found = f"is {admission.cap:,} for all {admission.ranks} attention ranks together, {admission.per_rank:,} on each"
    if left_over > 0:
        found += f", so that {left_over} of it never run"
    width = max(widths_of(situation), default=None)
    verify = f" and {admission.per_rank * width:,} tokens in a rank's largest verify pass" if width else ""
    end = round_up(admission.per_rank, alignment(situation))
    yield note("capacity.per-rank-cap", _CAP, found, remedy=f"That makes graphs up to {end:,}{verify}.")


def cover(situation: Situation) -> Iterator[Finding]:
    """C003, C007: a batch beyond the largest graph is launched kernel by kernel, without a word."""
    admission = derive_admission(situation)
    last = _largest_everywhere(admission) if admission else None
    if admission is None or last is None:
        return
    each = " on each rank" if admission.ranks > 1 else ""
    say = refuse if situation.require_graphs else warn
    yield say(
        "graphs.cover",
        _SIZES if situation.arguments.cuda_graph_bs_decode else _LARGEST,
        f"{_ending(situation, last)}, and {admission.per_rank:,} requests may run at once{each}",
        f"{_batches(last + 1, admission.per_rank)} without a graph",
        _wider(situation, admission.per_rank),
    )


def beyond_cap(situation: Situation) -> Iterator[Finding]:
    """C005: what is captured is of a rank, however much the whole server admits."""
    admission, asked = derive_admission(situation), situation.arguments
    if admission is None or not has_decode_graphs(situation):
        return
    end = round_up(admission.per_rank, alignment(situation))
    largest = max(asked.cuda_graph_bs_decode or (asked.cuda_graph_max_bs_decode or 0,))
    if largest > end:
        most = (
            f"a rank runs {admission.per_rank:,} requests"
            if admission.ranks > 1
            else f"{admission.per_rank:,} requests run"
        )
        written = asked.cuda_graph_bs_decode
        kept = tuple(size for size in written or () if size < end)
        yield correct(
            "graphs.beyond-cap",
            _SIZES if written else _LARGEST,
            f"goes to {largest:,}, and {most} at most",
            "the engine sets memory aside for graphs that it then leaves out",
            f"Planned to end at {end:,}; write that.",
            ((_SIZES, (*kept, end)) if written else (_LARGEST, end),),
        )


def dispatch_buffer(situation: Situation) -> Iterator[Finding]:
    """C105: the all-to-all asserts at the first verify pass that is larger than its buffer."""
    admission, dispatch = derive_admission(situation), dispatch_of(situation)
    width = max(widths_of(situation), default=None)
    if admission is None or dispatch is None or width is None:
        return
    if situation.sets_environment and dispatch.is_set:
        usual = situation.engine.dispatch.v[dispatch.backend].default
        yield correct(
            "capacity.dispatch",
            dispatch.variable,
            f"is {usual:,} tokens where nothing sets it",
            f"{_pass(admission, dispatch, width)} sends {sent_tokens(admission.per_rank, width, dispatch):,} from each rank",
            f"Planned with {dispatch.tokens:,}, which the launch sets; buffers of that size take memory that is not counted.",
        )
    if dispatch.most is not None and dispatch.tokens > dispatch.most:
        yield refuse(
            "capacity.dispatch-ceiling",
            dispatch.variable,
            f"is {dispatch.tokens:,} tokens",
            f"{dispatch.backend} asserts that it is at most {dispatch.most:,}",
            f"Write at most {dispatch.most}.",
        )
    sent = sent_tokens(admission.per_rank, width, dispatch)
    if sent > min(dispatch.tokens, dispatch.most or dispatch.tokens):
        yield refuse(
            "capacity.dispatch",
            dispatch.variable,
            f"is {dispatch.tokens:,} tokens{'' if dispatch.is_set else ', as nothing sets it'}",
            f"{_pass(admission, dispatch, width)} sends {sent:,} from each rank, and {dispatch.backend} ends the engine there",
            _enough(admission, dispatch, width, sent),
        )


RULES = (request_cap, concurrency, per_rank_cap, cover, beyond_cap, dispatch_buffer)


def _largest_everywhere(admission: Admission) -> int | None:
    """The largest batch that has all its graphs; None where that is the cap."""
    ends = [one.limit for one in admission.inequalities if one.name.startswith("graphs.") and not one.holds]
    return min(ends, default=None)


def _ending(situation: Situation, last: int) -> str:
    asked = situation.arguments
    written = max(asked.cuda_graph_bs_decode) if asked.cuda_graph_bs_decode else asked.cuda_graph_max_bs_decode
    if written is None:
        return f"is left out; graphs then end at {last:,}"
    goes = "ends at" if asked.cuda_graph_bs_decode else "is"
    uneven = f", of which graphs reach {last:,} (their tokens divide among {alignment(situation)} ranks)"
    return f"{goes} {written:,}{uneven if last < written else ''}"


def _batches(first: int, last: int) -> str:
    return f"a batch of {first:,} runs" if first == last else f"batches of {first:,} to {last:,} run"


def _wider(situation: Situation, per_rank: int) -> str:
    written = situation.arguments.cuda_graph_bs_decode
    end = round_up(per_rank, alignment(situation))
    sizes = _sizes_to(situation, end)
    if not written:
        return f"Write {end}."
    if len(sizes) <= _LONGEST:
        return f"Write {', '.join(map(str, sizes))}."
    more = [size for size in sizes if size > max(written)]
    if len(more) <= _LONGEST:
        return f"Go on with {', '.join(map(str, more))}."
    first = ", ".join(map(str, more[: _LONGEST - 1]))
    return (
        f"Go on with {first}, … {more[-1]:,}: {len(more)} more graphs, each captured at the start and kept in memory; "
        "or lower max_running_requests."
    )


def _graphs_to(situation: Situation, end: int) -> tuple[Change, ...]:
    """What makes graphs end there: a written list is kept as far as it goes, and the engine's ladder goes on from it."""
    if not has_decode_graphs(situation):
        return ()
    if situation.arguments.cuda_graph_bs_decode:
        return ((_SIZES, _sizes_to(situation, end)),)
    return ((_LARGEST, end),)


def _sizes_to(situation: Situation, end: int) -> tuple[int, ...]:
    asked, engine = situation.arguments, situation.engine
    ladder = engine.decode_graphs_speculating if asked.speculates else engine.decode_graphs_autoregressive
    return ladder_with(asked.cuda_graph_bs_decode or (), ladder.v, end)


def _pass(admission: Admission, dispatch: Dispatch, width: int) -> str:
    tokens = (
        f"{admission.per_rank:,} requests" if width == 1 else f"{admission.per_rank:,} requests x {width} positions"
    )
    shared = f", shared by {dispatch.sharing} ranks," if dispatch.sharing > 1 else ""
    return f"a {'step' if width == 1 else 'verify pass'} over {tokens}{shared}"


def _enough(admission: Admission, dispatch: Dispatch, width: int, sent: int) -> str:
    if dispatch.most is None or sent <= dispatch.most:
        return f"Set it to {sent}."
    fits = most_requests(dispatch.most, width, dispatch) * admission.ranks
    return f"Even its most, {dispatch.most:,}, is too little: lower max_running_requests to {fits:,}."
