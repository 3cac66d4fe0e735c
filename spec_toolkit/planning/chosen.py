"""What the engine chooses where a launch leaves it open: its cap on requests, and what goes by its GPU's memory. Pure."""

from spec_toolkit.facts.records import MemoryDefaults
from spec_toolkit.planning.situation import Situation

_MOST_REQUESTS = 2048  # at least, where a launch says nothing and does not speculate (resolve_max_num_reqs)


def cap_of(situation: Situation) -> int | None:
    """Most requests of the whole server at once; None: what memory leaves."""
    asked, engine = situation.arguments, situation.engine
    if asked.max_running_requests is not None:
        return asked.max_running_requests
    own = engine.max_running_requests_of.v.get(situation.target.architecture or "")
    return own or (engine.default_max_running_requests.v if asked.speculates else None)


def requests_of(situation: Situation) -> int:
    """Most requests of one rank: the server's, shared by the ranks of attention data parallelism."""
    cap = cap_of(situation)
    return max(1, (_MOST_REQUESTS if cap is None else cap) // situation.arguments.attention_dp)


def memory_mib(situation: Situation) -> int | None:
    """Of one GPU."""
    measured, facts = situation.measured.memory_gib, situation.site.facts
    if measured is not None:
        return round(measured * 1024)
    return facts.memory_mib.v if facts is not None else None


def defaults_by_memory(situation: Situation) -> MemoryDefaults | None:
    """None: the GPU's memory is not known."""
    memory, rows = memory_mib(situation), situation.engine.by_memory.v
    if memory is None:
        return None
    return next(row for row in rows if row.below_mib is None or memory < row.below_mib)


def largest_graph(situation: Situation) -> int | None:
    """The largest decode batch of a list that a launch does not write; None: not known."""
    asked, defaults = situation.arguments, defaults_by_memory(situation)
    if asked.cuda_graph_max_bs_decode:
        return asked.cuda_graph_max_bs_decode
    if defaults is None:
        return None
    largest = defaults.largest_graph_few if (asked.tp_size or 1) < 4 else defaults.largest_graph_many
    return min(largest, asked.max_running_requests or largest)
