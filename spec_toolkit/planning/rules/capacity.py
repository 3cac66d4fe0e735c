"""Rules about what fits in a rank's memory, with a draft and without. Pure.

They read the account that `planning/memory` draws up. What nobody knows is left out of it, so a launch may still be too large where these
say nothing; what they refuse is too large by what is known alone.
"""

import math
from collections.abc import Iterator

from spec_toolkit.errors import Finding
from spec_toolkit.planning.finding import correct, note, refuse, warn
from spec_toolkit.planning.memory.caps import Becomes, Excess, Outcome, judge
from spec_toolkit.planning.memory.launched import memory_mib, outside_of, requests_of, rounds_of
from spec_toolkit.planning.memory.ledger import DRAFT, RESERVE, STATE, TARGET, Ledger, fits
from spec_toolkit.planning.memory.reserve import GIB, default_fraction, outside_lines
from spec_toolkit.planning.memory.rounds import graph_families
from spec_toolkit.planning.memory.situated import draw_up
from spec_toolkit.planning.situation import Situation

_REQUESTS, _FRACTION, _CONTEXT, _TP = "max_running_requests", "mem_fraction_static", "context_length", "tp_size"


def memory(situation: Situation) -> Iterator[Finding]:
    ledger, gpu = draw_up(situation), _gpu(situation)
    whole, taken = memory_mib(situation), ledger.taken(TARGET) + ledger.taken(DRAFT)
    if whole is None:
        return
    if taken >= whole * 2**20:
        found = f"leaves {_gib(taken)} GiB of weights on {gpu}, which has {whole / 1024:.1f}"
        yield refuse(
            "capacity.memory", _TP, _is(situation.arguments.tp_size or 1, found), _parts(ledger), "Use more GPUs."
        )
        return
    asked, needed = requests_of(situation), _needed(ledger, requests_of(situation))
    if needed is None or ledger.usable is None or not fits(ledger) or needed <= ledger.usable:
        return
    bound = next(bound for bound in ledger.bounds if bound.name == "memory")
    spare = ledger.usable - (_needed(ledger, bound.requests) or 0)
    found = f"{asked} requests of {_context(situation, ledger):,} tokens need {_gib(needed)} GiB on {gpu}, {_gib(ledger.usable)} usable"
    why = f"{_parts(ledger)}{_left_out(ledger)}"
    fit = f"{bound.requests} fit{'s' if bound.requests == 1 else ''} at once with {_gib(spare)} to spare"
    remedy = f"{fit}; more wait, or run while they are shorter."
    yield note("capacity.memory", _REQUESTS, found, why, remedy)


def memory_fraction(situation: Situation) -> Iterator[Finding]:
    """C008: the engine refuses a fraction that the loaded weights use up; the draft's are loaded by then."""
    ledger = draw_up(situation)
    fraction, before = ledger.fraction, _before(situation, ledger)
    loaded = ledger.taken(TARGET) + ledger.taken(DRAFT)
    if fraction is None or before is None or not loaded or loaded >= before:
        return
    floor = loaded / before
    if fraction > floor:
        return
    whose = "" if situation.arguments.mem_fraction_static is not None else ", by the engine's rule"
    found = f"is {fraction:g}{whose}; the weights alone take {floor:.4f} of {_gib(before)} GiB ({_weights(ledger)})"
    without = f"; without speculation {ledger.taken(TARGET) / before:.4f}" if ledger.taken(DRAFT) else ""
    why = f"nothing is left for KV{without}"
    least = math.ceil(floor * 1000) / 1000
    remedy = f"Write more than {least:.3f}, or use more GPUs." if least < 1 else "Use more GPUs."
    yield refuse("capacity.memory-fraction", _FRACTION, found, why, remedy)


def context(situation: Situation) -> Iterator[Finding]:
    """C100: the longest request does not fit alone."""
    ledger = draw_up(situation)
    if ledger.tokens is None or ledger.pool is None or ledger.pool <= 0 or fits(ledger) is not False:
        return
    wanted, slots = _context(situation, ledger), ledger.slots_per_request or 0
    page = ledger.page_size or 1
    most = max(0, (ledger.tokens // page * page) - slots)
    found = f"is {wanted:,} tokens, and KV for {ledger.tokens:,} fits on {_gpu(situation)}"
    why = f"{_gib(ledger.pool)} GiB are left for it{_left_out(ledger)}"
    yield refuse("capacity.context", _CONTEXT, found, why, f"Write at most {most}, or use more GPUs.")


def reserve(situation: Situation) -> Iterator[Finding]:
    """C010: what a written fraction leaves is less than the engine itself would keep free."""
    ledger, outside = draw_up(situation), outside_of(situation, chunk_of_rank=True)
    headroom = ledger.headroom
    if situation.arguments.mem_fraction_static is None or outside is None or headroom is None:
        return
    lines = outside_lines(outside)
    needed = sum(line.mib for line in lines) * 2**20
    if headroom >= needed or situation.measured.outside_gib is not None:
        return
    found = f"is {ledger.fraction:g} and leaves {_gib(headroom)} GiB outside weights and KV on {_gpu(situation)}"
    listed = ", ".join(f"{line.name} {line.mib / 1024:.1f}" for line in lines)
    unknown = ", ".join(name for name, _ in graph_families(rounds_of(situation)))
    why = f"the engine's own estimate of what it needs there is {_gib(needed)} ({listed}){f', and it leaves out {unknown}' if unknown else ''}"
    graphs = sum(line.mib for line in lines if line.name == "decode graphs") * 2**20
    alone = " Fewer graph sizes alone do not clear it." if headroom < needed - graphs else ""
    yield warn("capacity.reserve", _FRACTION, found, why, f"Write at most {default_fraction(outside):g}.{alone}")


def draft_cap(situation: Situation) -> Iterator[Finding]:
    """C014: above a cap speculation is given up, or narrowed where its slots alone are too many."""
    outcome = judged(situation)
    for excess in outcome.excesses:
        yield _over(excess, outcome)


def judged(situation: Situation) -> Outcome:
    """What the caps make of a launch; a plan takes its steps, or its launch without a draft, from here."""
    return judge(draw_up(situation), situation.caps, rounds_of(situation), requests_of(situation))


def draft_room(situation: Situation) -> Iterator[Finding]:
    """C013: a fraction tuned without a draft has no room for one."""
    seen, asked = situation.measured, situation.arguments
    whole, fraction = memory_mib(situation), asked.mem_fraction_static or seen.autoregressive_fraction
    draft = [size for size in (seen.draft_weights_gib, seen.draft_graphs_gib) if size is not None]
    if not asked.speculates or seen.autoregressive_spare_gib is None or whole is None or fraction is None or not draft:
        return
    needed, spare = sum(draft), seen.autoregressive_spare_gib
    lowered = room_for_draft(situation)
    if lowered is None or fraction <= lowered:
        return
    found = f"is {fraction:g}; without speculation it left {spare:g} GiB free, and the draft needs {needed:.1f}"
    parts = f"weights {seen.draft_weights_gib or 0:g}, graphs {seen.draft_graphs_gib or 0:g}"
    why = f"graph capture would run out of memory ({parts})"
    remedy = f"Planned with {lowered:g}; write that, or end the graph list earlier."
    yield correct("capacity.draft-room", _FRACTION, found, why, remedy, ((_FRACTION, lowered),))


def room_for_draft(situation: Situation) -> float | None:
    """The fraction that leaves a draft what was seen to be free without it; None: it need not change, or nobody measured."""
    seen, whole = situation.measured, memory_mib(situation)
    needed = (seen.draft_weights_gib or 0) + (seen.draft_graphs_gib or 0)
    base, spare = seen.autoregressive_fraction, seen.autoregressive_spare_gib
    if base is None or spare is None or whole is None or needed <= spare:
        return None
    return math.floor((base - needed / (whole / 1024)) * 1000) / 1000


def graph_lists(situation: Situation) -> Iterator[Finding]:
    """C012: three families of graphs, each of its own width, and each once for every step count."""
    families = graph_families(rounds_of(situation))
    if not families or situation.arguments.disable_cuda_graph:
        return
    listed = ", ".join(f"{name.removeprefix('graphs: ')} ({says})" for name, says in families)
    why = "nobody has published what one takes, and the engine's estimate counts decode graphs of one width"
    found = f"makes the engine capture families of graphs: {listed}"
    yield note("capacity.graph-families", "speculative_algorithm", found, why, "Leave room for them.")


def unknown(situation: Situation) -> Iterator[Finding]:
    """What the account could not be drawn up of, where the machine is known."""
    ledger = draw_up(situation)
    missing = [line for line in ledger.lines if line.bytes is None and line.name in {TARGET, DRAFT}]
    if memory_mib(situation) is None or situation.target.shape is None:
        return
    for line in missing:
        where = "target.weights" if line.name == TARGET else "draft.weights"
        left = "left out of what is counted" if line.name == DRAFT else "so what is left for KV is not known"
        yield note("capacity.unknown", where, "are not known", line.says, f"They are {left}.")


def _over(excess: Excess, outcome: Outcome) -> Finding:
    names = {"draft_weights_gib": "weights", "draft_kv_gib": "KV", "temporary_kv_gib": "temporary slots"}
    where = f"limits.{excess.cap}"
    found = f"is {excess.limit_gib:g}, and the draft's {names[excess.cap]} take {excess.takes_gib:.2f} GiB on each rank"
    match outcome.becomes:
        case Becomes.NARROWER:
            steps = outcome.num_steps
            return correct(
                "capacity.draft-cap", where, found, remedy=f"Planned with num_steps {steps}, the most that stay below."
            )
        case Becomes.AUTOREGRESSIVE:
            return correct("capacity.draft-cap", where, found, remedy="Planned autoregressively, without a draft.")
        case _:
            why = "the policy does not allow autoregressive"
            return refuse("capacity.draft-cap", where, found, why, "Allow it, or raise the cap.")


def _needed(ledger: Ledger, requests: int) -> int | None:
    """Bytes that so many requests at the stated context take, weights included."""
    if ledger.kv is None or ledger.request_tokens is None:
        return None
    kv = requests * ledger.request_tokens * ledger.kv.total + ledger.taken(STATE)
    return round(ledger.taken(TARGET) + ledger.taken(DRAFT) + kv)


def _parts(ledger: Ledger) -> str:
    parts = [_weights(ledger)]
    if ledger.pool is not None and ledger.pool > 0:
        parts.append(f"{_gib(ledger.pool)} left for KV")
    if ledger.taken(RESERVE) > 0.05 * GIB:
        parts.append(f"{_gib(ledger.taken(RESERVE))} of it kept for rounds")
    return ", ".join(parts)


def _weights(ledger: Ledger) -> str:
    draft = f", draft {ledger.taken(DRAFT) / GIB:.2f}" if ledger.taken(DRAFT) else ""
    return f"weights {ledger.taken(TARGET) / GIB:.2f}{draft}"


def _left_out(ledger: Ledger) -> str:
    names = dict.fromkeys(name.partition(":")[0] for name in ledger.unknown)
    return f"; unknown and left out: {', '.join(names)}" if names else ""


def _before(situation: Situation, ledger: Ledger) -> int | None:
    measured, whole = situation.measured.free_before_load_gib, memory_mib(situation)
    if measured is not None:
        return round(measured * GIB)
    return None if whole is None or ledger.line(TARGET) is None else whole * 2**20


def _context(situation: Situation, ledger: Ledger) -> int:
    return situation.arguments.context_length or situation.workload.context_tokens or ledger.request_tokens or 0


def _gpu(situation: Situation) -> str:
    return f"each {situation.site.gpu.upper()}" if situation.site.gpu else "each rank"


def _is(value: int, found: str) -> str:
    return f"is {value}, which {found}"


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"


RULES = (memory, memory_fraction, context, reserve, draft_cap, draft_room, graph_lists, unknown)
