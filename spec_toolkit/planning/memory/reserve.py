"""What a round keeps of the KV pool, and what stays outside weights and pool: the engine's own rules. Pure.

Sources: SGLang 0.5.23, srt/mem_cache/allocation_sizing.py (slots of a round) and srt/arg_groups/memory_hook.py (everything outside).
The second is the engine's estimate and no measurement: it counts decode graphs once, of one width, and attention workspaces not at all.
"""

from msgspec import Struct

from spec_toolkit.facts.model import VisionTower

MIB = 2**20
GIB = 2**30


def slots_per_decode(*, num_steps: int, topk: int, width: int, page_size: int) -> int:
    """KV slots one request may take in a round. A tree on pages of several slots keeps whole pages for each branch."""
    if page_size == 1 or topk == 1:
        return max(num_steps * topk, width)
    pages = -(-((page_size - 1) + num_steps) // page_size)
    return max(pages * page_size * topk, width)


def temporary_slots(of_a_round: int, *, page_size: int) -> int:
    """Kept for each request while it runs: two rounds, for the overlap schedule commits one late; in whole pages."""
    return -(-2 * of_a_round // page_size) * page_size


def largest_chain(*, slots: float, page_size: int, at_most: int) -> int | None:
    """Most steps of a chain whose reserve is within so many slots a request; None: not even one step."""
    fitting = (steps for steps in range(at_most, 0, -1) if temporary_slots(steps + 1, page_size=page_size) <= slots)
    return next(fitting, None)


class Outside(Struct, frozen=True, kw_only=True):
    """What the engine's estimate goes by."""

    memory_mib: int
    ranks: int  # tp x pp
    attention_dp: int = 1
    chunk_tokens: int  # of one prefill pass, before attention DP divides it
    largest_graph: int  # decode batch; 0: no graphs
    prefill_graphs: bool = True  # of MLA; V4's attention and models with a tower for images have none
    deepep: bool = False
    role: str | None = None  # prefill, decode; None: both
    decode_tokens: int = 0  # requests x width; counts on a decode engine only


class Need(Struct, frozen=True, kw_only=True):
    """A line of the estimate."""

    name: str
    mib: float
    rule: str


def outside_lines(asked: Outside) -> tuple[Need, ...]:
    """What stays free of weights and KV pool, line by line."""
    tokens = max(asked.decode_tokens if asked.role == "decode" else asked.chunk_tokens, 2048)
    lines = [
        Need(name="engine and attention metadata", mib=512, rule="512 MiB"),
        Need(name="activations", mib=tokens * 1.5, rule=f"1.5 MiB x {tokens:,} tokens"),
        Need(name="communicators", mib=asked.ranks / 8 * 1024, rule=f"128 MiB x {asked.ranks} ranks"),
        *_graph_lines(asked),
    ]
    floor = 10 * 1024
    total = sum(line.mib for line in lines)
    if asked.memory_mib > 60 * 1024 and total < floor:
        lines.append(Need(name="floor", mib=floor - total, rule="10 GiB at least above 60 GiB of memory"))
    if asked.deepep and asked.largest_graph and asked.role != "prefill":
        lines.append(Need(name="DeepEP buffers", mib=2048, rule="2 GiB"))
    return tuple(lines)


def _graph_lines(asked: Outside) -> list[Need]:
    lines, largest, dp = [], asked.largest_graph, asked.attention_dp
    if asked.role != "prefill" and largest:
        lines.append(Need(name="decode graphs", mib=largest * 2, rule=f"2 MiB x batch {largest}, one width"))
        if dp > 1:
            each = 4.5 if largest > 300 else 3
            rule = f"{each:g} MiB x batch {largest} x {dp} ranks"
            lines.append(Need(name="padding of attention DP", mib=largest * dp * each, rule=rule))
    if asked.role != "decode" and asked.prefill_graphs:
        lines.append(Need(name="prefill graphs", mib=1536, rule="1.5 GiB with MLA"))
        if asked.deepep:
            lines.append(Need(name="prefill graphs of DeepEP", mib=1024, rule="1 GiB"))
    return lines


def default_fraction(asked: Outside, vision: VisionTower | None = None) -> float:
    """The engine's share of all memory for weights and KV pool, where a launch says nothing.

    `vision`: of a model that takes images, where its tower is known.
    """
    needed = sum(line.mib for line in outside_lines(asked))
    fraction = round((asked.memory_mib - needed) / asked.memory_mib, 3)
    if vision is None:
        return fraction
    complexity = vision.layers * vision.hidden_size**2 / (24 * 1024**2)
    return fraction * 0.95 * max(0.8, min(1.05, 1 - 0.1 * (complexity - 1)))
