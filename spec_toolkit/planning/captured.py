"""Which batches the engine captures as CUDA graphs, and which run launch by launch. Pure.

Of the sizes it is given, or of a ladder up to a largest one, the engine keeps those that a rank's requests can reach, adds the end where
the list goes beyond it, and leaves out every size whose tokens the ranks of attention cannot share evenly
(SGLang 0.5.23: model_executor/runner/base_cuda_graph_runner.py, get_batch_sizes_to_capture). A verify graph of width w needs
size x w to be a multiple, a graph of the draft the size itself. So a list covers the cap at every width only if it ends with the cap
rounded up to that multiple.
"""

from collections.abc import Sequence

from spec_toolkit.facts.records import Rung
from spec_toolkit.planning.chosen import defaults_by_memory, largest_graph
from spec_toolkit.planning.rules.graphs import below, climb, ranks_in_step, round_up
from spec_toolkit.planning.rules.resolved import Family, backends_of, family_of
from spec_toolkit.planning.situation import Situation

_DEEPEP = 2048  # tokens; arg_groups/cuda_graph_hook.py, apply_deepep_adjustments
_CAPTURES_PREFILL_BESIDE = frozenset({None, "none", "deepep", "megamoe", "flashinfer"})  # all-to-alls


def alignment(situation: Situation) -> int:
    """What a captured size must be a multiple of, in tokens: ranks that share a request, where they gather what they computed."""
    asked = situation.arguments
    context_ranks = max(1, asked.attn_cp_size or 1)
    group = (asked.tp_size or 1) // context_ranks
    ranks = ranks_in_step(group, attention_dp=asked.attention_dp, exchanges=asked.exchanges)
    multiple = ranks * (2 if asked.enable_two_batch_overlap else 1)
    return multiple if multiple % context_ranks == 0 else multiple * context_ranks


def has_decode_graphs(situation: Situation) -> bool:
    asked = situation.arguments
    if asked.cuda_graph_backend_decode is not None:
        return asked.cuda_graph_backend_decode != "disabled"
    return not (asked.disable_cuda_graph or asked.disaggregation_mode == "prefill" or asked.device == "cpu")


def offered_sizes(situation: Situation) -> tuple[int, ...] | None:
    """The list before a rank's cap is looked at; None: how far it goes is not known."""
    asked, engine = situation.arguments, situation.engine
    if asked.cuda_graph_bs_decode:
        return tuple(sorted(set(asked.cuda_graph_bs_decode)))
    largest = largest_graph(situation)
    if largest is None:
        return None
    ladder = engine.decode_graphs_speculating if asked.speculates else engine.decode_graphs_autoregressive
    return climb(ladder.v, largest)


def kept_sizes(offered: Sequence[int], *, cap: int, multiple: int, width: int) -> tuple[int, ...]:
    """Of a rank that runs at most `cap` requests; `width`: tokens of one request in this graph, 1 in those of the draft."""
    end = round_up(cap, multiple)
    sizes = {*offered, end} if max(offered) > end else {*offered}
    return tuple(sorted(size for size in sizes if size <= end and size * width % multiple == 0))


def ladder_with(written: Sequence[int], ladder: Sequence[Rung], end: int) -> tuple[int, ...]:
    """What a person wrote, as far as it can be reached, and from there the engine's own ladder to the end."""
    reachable = sorted({size for size in written if size <= end})
    above = [size for size in climb(ladder, end) if not reachable or size > reachable[-1]]
    return (*reachable, *above)


def chunk_tokens(situation: Situation) -> int | None:
    """Of one prefill pass on one rank; None: not known, or not cut into chunks."""
    asked, defaults = situation.arguments, defaults_by_memory(situation)
    chunk = asked.chunked_prefill_size or (defaults.chunk_tokens if defaults else None)
    return None if chunk is None or chunk < 1 else chunk // max(1, asked.attention_dp)


def prefill_sizes(situation: Situation) -> tuple[int, ...] | None:
    """Token counts of a prefill pass that have a graph; empty: none; None: not known."""
    asked, family = situation.arguments, family_of(situation.target)
    backend = asked.cuda_graph_backend_prefill
    off = asked.disable_cuda_graph or asked.disaggregation_mode == "decode" or asked.device == "cpu"
    if backend == "disabled" or (backend is None and (off or _left_without_prefill_graphs(situation))):
        return ()
    chunk = chunk_tokens(situation)
    if family is None or chunk is None:
        return None
    most = min(chunk, situation.engine.prefill_graph_most_mla.v) if family in {Family.MLA, Family.DSA} else chunk
    ladder = situation.engine.prefill_graphs.v
    if asked.moe_a2a_backend == "deepep" and (chunk >= _DEEPEP or asked.attention_dp == 1):
        # Its list is made of multiples of 8 before the chunk is known; attention ranks with a smaller chunk make it anew.
        return tuple(sorted({round_up(size, 8) for size in below(ladder, _DEEPEP)}))
    return below(ladder, min(most, asked.max_total_tokens or most))


def _left_without_prefill_graphs(situation: Situation) -> bool:
    """Cases for which the engine switches them off by itself, unless it is told to."""
    asked, family = situation.arguments, family_of(situation.target)
    return (
        family is Family.V4  # its scratch is heavy
        or (family is Family.GEMMA4 and situation.target.architecture != "Gemma4ForCausalLM")  # images and sound
        or (family is Family.MLA and backends_of(situation).prefill == "trtllm_mla")
        or (asked.pp_size or 1) > 1
        or bool(asked.enable_two_batch_overlap)
        or asked.moe_a2a_backend not in _CAPTURES_PREFILL_BESIDE
    )
