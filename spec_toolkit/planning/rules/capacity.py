"""Rules about what fits in a rank's memory, with a draft and without. Pure.

They read the account that `planning/memory` draws up. What nobody knows is left out of it, so a launch may still be too large where these
say nothing; what they refuse is too large by what is known alone.
"""

import math
from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, note, refuse, warn
from spec_toolkit.planning.admission import derive_admission
from spec_toolkit.planning.chosen import memory_mib, requests_of
from spec_toolkit.planning.memory.caps import Becomes, Excess, Outcome, judge
from spec_toolkit.planning.memory.launched import outside_of
from spec_toolkit.planning.memory.ledger import DRAFT, RESERVE, STATE, TARGET, Ledger, fits
from spec_toolkit.planning.memory.reserve import GIB, default_fraction, outside_lines
from spec_toolkit.planning.memory.rounds import graph_families, rounds_of
from spec_toolkit.planning.memory.situated import draw_up, draw_up_at_most
from spec_toolkit.planning.situation import Situation

_REQUESTS, _FRACTION, _CONTEXT, _TP = "max_running_requests", "mem_fraction_static", "context_length", "tp_size"
_CAPPED = {"draft_weights_gib": "weights", "draft_kv_gib": "KV", "temporary_kv_gib": "temporary slots"}


def memory(situation: Situation) -> Iterator[Finding]:
    ledger = draw_up(situation)
    too_heavy = tuple(_too_heavy(situation, ledger))
    yield from too_heavy
    asked, needed = requests_of(situation), _needed(ledger, requests_of(situation))
    if too_heavy or needed is None or ledger.usable is None or not fits(ledger) or needed <= ledger.usable:
        return
    most = (ledger.fitting or 0) // (ledger.request_tokens or 1)
    spare = ledger.usable - (_needed(ledger, most) or 0)
    found = f"{asked} requests of {_context(situation, ledger):,} tokens need {_gib(needed)} GiB on {_gpu(situation)}, {_gib(ledger.usable)} usable"
    why = f"{_parts(ledger)}{_left_out(ledger)}"
    fit = f"{most} fit{'s' if most == 1 else ''} at once with {_gib(spare)} to spare"
    remedy = f"{fit}; more wait, or run while they are shorter."
    yield note("capacity.memory", _REQUESTS, found, why, remedy)


def memory_fraction(situation: Situation) -> Iterator[Finding]:
    """C008: the engine refuses a fraction that the loaded weights use up; the draft's are loaded by then."""
    yield from _above_fraction(situation, draw_up(situation))


def context(situation: Situation) -> Iterator[Finding]:
    """C100: the longest request does not fit alone."""
    yield from _longest_request(situation, draw_up(situation))


def draft_whole(situation: Situation) -> Iterator[Finding]:
    """Where nobody knows how the engine cuts a draft, what an equal share lets pass is asked again with all of it on each rank."""
    light, heavy = draw_up(situation), draw_up_at_most(situation)
    judges = (_too_heavy, _above_fraction, _longest_request)
    if heavy is None or any(found for judge_ in judges for found in judge_(situation, light)):
        return
    for finding in (found for judge_ in judges for found in judge_(situation, heavy)):
        why = f"{finding.why}; nobody knows how the draft is cut, and this is with all of it on each rank"
        yield warn(finding.rule, finding.where, finding.found, why, finding.remedy)
        return


def written_pool(situation: Situation) -> Iterator[Finding]:
    """A pool that a launch makes smaller than one request of its own context."""
    ledger, written = draw_up(situation), situation.arguments.max_total_tokens
    wanted = ledger.request_tokens
    if not _written_binds(ledger, written) or written is None or wanted is None or written >= wanted:
        return
    slots = f" and {ledger.slots_per_request} slots of its rounds" if ledger.slots_per_request else ""
    found = f"is {written:,} tokens, less than one request of {_context(situation, ledger):,}{slots}"
    yield refuse(
        "capacity.pool",
        "max_total_tokens",
        found,
        "the longest requests would be refused",
        f"Write at least {wanted}, or lower the context.",
    )


def window_pool(situation: Situation) -> Iterator[Finding]:
    """Layers that see a window have a pool of their own, and it may run out before the other does."""
    ledger = draw_up(situation)
    admission = derive_admission(situation, ledger.room)
    binds = admission.binding if admission is not None else None
    if admission is None or binds is None or binds.name != "window-pool" or binds.requests == admission.per_rank:
        return
    share = ledger.kv.window_share if ledger.kv is not None else None
    each = ledger.room.of_request_windows or 0
    ours = "" if situation.arguments.swa_full_tokens_ratio is not None else ", by the engine's rule"
    found = f"is {share:g}{ours}: a window's pool of {binds.limit:,} tokens on {_gpu(situation)}, and a request takes {each:,} of them at least"
    why = f"{binds.requests} run at once on each rank, and {admission.per_rank} are admitted"
    yield warn("capacity.window-pool", "swa_full_tokens_ratio", found, why, "Raise it, or admit fewer.")


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
    for cap in outcome.unjudged:
        found = f"is {getattr(situation.caps, cap):g}, and cannot be compared: what the draft's {_CAPPED[cap]} take is not known"
        yield warn("capacity.draft-cap", f"limits.{cap}", found, remedy="Measure it before you rely on the cap.")


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
    if not families or situation.arguments.disable_cuda_graph or situation.site.gpu == "cpu":
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
        counted = line.name == DRAFT
        left = "They are left out of what is counted." if counted else "What is left for KV is not known either."
        yield note("capacity.unknown", where, "are not known", line.says, left)


def _too_heavy(situation: Situation, ledger: Ledger) -> Iterator[Finding]:
    whole, taken = memory_mib(situation), ledger.taken(TARGET) + ledger.taken(DRAFT)
    if whole is not None and taken >= whole * 2**20:
        found = f"is {situation.arguments.tp_size or 1}, which leaves {_gib(taken)} GiB of weights on {_gpu(situation)}, which has {whole / 1024:.1f}"
        yield refuse("capacity.memory", _TP, found, _parts(ledger), "Use more GPUs.")


def _above_fraction(situation: Situation, ledger: Ledger) -> Iterator[Finding]:
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


def _longest_request(situation: Situation, ledger: Ledger) -> Iterator[Finding]:
    fitting, wanted = ledger.fitting, ledger.request_tokens
    if fitting is None or wanted is None or ledger.pool is None or ledger.pool <= 0 or fitting >= wanted:
        return
    if _written_binds(ledger, situation.arguments.max_total_tokens):
        return
    most = max(0, fitting - (ledger.slots_per_request or 0))
    found = f"is {_context(situation, ledger):,} tokens, and KV for {fitting:,} fits on {_gpu(situation)}"
    why = f"{_gib(ledger.pool)} GiB are left for it{_left_out(ledger)}"
    yield refuse("capacity.context", _CONTEXT, found, why, f"Write at most {most}, or use more GPUs.")


def _written_binds(ledger: Ledger, written: int | None) -> bool:
    """Whether it is the launch that makes the pool as small as it is, and not the memory."""
    return written is not None and (ledger.fitting is None or written <= ledger.fitting)


def _over(excess: Excess, outcome: Outcome) -> Finding:
    where = f"limits.{excess.cap}"
    found = (
        f"is {excess.limit_gib:g}, and the draft's {_CAPPED[excess.cap]} take {excess.takes_gib:.2f} GiB on each rank"
    )
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


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"


RULES = (
    memory,
    memory_fraction,
    context,
    draft_whole,
    written_pool,
    window_pool,
    reserve,
    draft_cap,
    draft_room,
    graph_lists,
    unknown,
)
