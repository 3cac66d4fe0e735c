"""What the engine makes of a launch's arguments, as far as its memory goes by it. Pure."""

from spec_toolkit.facts.records import MemoryDefaults
from spec_toolkit.planning.memory.reserve import Outside, default_fraction
from spec_toolkit.planning.memory.rounds import Rounds
from spec_toolkit.planning.memory.weights import Layout
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.resolved import Family
from spec_toolkit.planning.situation import Situation

SEES_IMAGES = frozenset({"Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"})
_STEPS_WHERE_NO_FILE_SAYS = (0, 1, 3, 5, 7)  # of adaptive speculation, srt/speculative/adaptive_spec_params.py
_MOST_REQUESTS = 2048  # at least, where a launch says nothing and does not speculate (resolve_max_num_reqs)
_PREFILL_TOKENS = 16384  # where prefill is not chunked and a launch says nothing
_EXCHANGES = frozenset(
    {"deepep", "deepep_v2", "mooncake", "nixl", "mori", "pplx", "flashinfer", "megamoe", "flashinfer_megamoe"}
)


def requests_of(situation: Situation) -> int:
    """Most requests of one rank: the server's, shared by the ranks of attention data parallelism."""
    asked, engine = situation.arguments, situation.engine
    usual = engine.default_max_running_requests.v if asked.speculates else _MOST_REQUESTS
    of_model = engine.max_running_requests_of.v.get(situation.target.architecture or "", usual)
    return max(1, (asked.max_running_requests or of_model) // asked.attention_dp)


def rounds_of(situation: Situation) -> Rounds:
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    if algorithm is None:
        return Rounds()
    if algorithm == "DSPARK":
        block = asked.speculative_dspark_block_size or situation.target.dspark_block_size
        return Rounds(steps=(1,), width=block + 1 if block else 1, has_draft_passes=False)
    steps = asked.speculative_num_steps or resolved.DEFAULT_STEPS
    topk = asked.speculative_eagle_topk or 1
    candidates = situation.steps or (_adaptive_steps(situation, steps) if resolved.is_adaptive(situation) else (steps,))
    width = max(candidates) + 1 if topk == 1 else asked.speculative_num_draft_tokens or steps * topk + 1
    return Rounds(steps=tuple(sorted(set(candidates))), topk=topk, width=width)


def layout_of(situation: Situation) -> Layout:
    asked = situation.arguments
    return Layout(
        tp=asked.tp_size or 1,
        attention_dp=asked.attention_dp,
        attention_cp=asked.attn_cp_size or 1,
        moe_dp=asked.moe_dp_size or 1,
        all_to_all=asked.moe_a2a_backend in _EXCHANGES,
        head_by_dp=bool(asked.enable_dp_lm_head),
        whole_embedding=asked.attention_dp > 1 and resolved.family_of(situation.target) is Family.V4,
    )


def outside_of(situation: Situation, *, chunk_of_rank: bool) -> Outside | None:
    """What the engine's estimate goes by; it takes the chunk before attention data parallelism divides it. None: memory not known."""
    memory, asked = memory_mib(situation), situation.arguments
    if memory is None:
        return None
    usual = _defaults(situation, memory)
    chunk = asked.chunked_prefill_size or usual.chunk_tokens
    chunk = chunk if chunk > 0 else asked.max_prefill_tokens or _PREFILL_TOKENS
    largest = _largest_graph(situation, usual)
    rounds = rounds_of(situation)
    family = resolved.family_of(situation.target)
    no_prefill = asked.disable_cuda_graph or asked.cuda_graph_backend_prefill == "disabled"
    return Outside(
        memory_mib=memory,
        ranks=(asked.tp_size or 1) * (asked.pp_size or 1),
        attention_dp=asked.attention_dp,
        chunk_tokens=chunk // asked.attention_dp if chunk_of_rank else chunk,
        largest_graph=largest,
        prefill_graphs=not no_prefill and family in {Family.MLA, Family.DSA},
        deepep=asked.moe_a2a_backend == "deepep",
        role=asked.disaggregation_mode if asked.disaggregation_mode in {"prefill", "decode"} else None,
        decode_tokens=(asked.max_running_requests or largest or 1) * rounds.width,
    )


def fraction_of(situation: Situation) -> tuple[float | None, str]:
    """Share of memory for weights and KV pool, and who says so."""
    written = situation.arguments.mem_fraction_static
    if written is not None:
        return written, "written"
    memory, measured = memory_mib(situation), situation.measured
    before = measured.free_before_load_gib or (memory / 1024 if memory is not None else None)
    if measured.outside_gib is not None and before is not None:
        return 1 - measured.outside_gib / before, "measured"
    outside = outside_of(situation, chunk_of_rank=False)
    if outside is None:
        return None, "the GPU's memory is not known"
    sees_images = situation.target.architecture in SEES_IMAGES and not _decodes_only(situation)
    if sees_images and situation.target.vision is None:
        return None, "the engine lowers it for the tower for images, whose size is not known; write it"
    return default_fraction(outside, situation.target.vision if sees_images else None), "the engine's rule"


def memory_mib(situation: Situation) -> int | None:
    measured, facts = situation.measured.memory_gib, situation.site.facts
    if measured is not None:
        return round(measured * 1024)
    return facts.memory_mib.v if facts is not None else None


def major_of(situation: Situation) -> int | None:
    facts = situation.site.facts
    capability = facts.compute_capability.v if facts is not None else None
    return capability[0] if capability is not None else None


def _adaptive_steps(situation: Situation, steps: int) -> tuple[int, ...]:
    """A file of candidates lies elsewhere: without having read it, none and the launch's own."""
    if situation.arguments.speculative_adaptive_config is not None:
        return (0, steps)
    return (*_STEPS_WHERE_NO_FILE_SAYS, steps)


def _largest_graph(situation: Situation, usual: MemoryDefaults) -> int:
    asked = situation.arguments
    if asked.disable_cuda_graph or asked.cuda_graph_backend_decode == "disabled":
        return 0
    if asked.cuda_graph_bs_decode:
        return max(asked.cuda_graph_bs_decode)
    if asked.cuda_graph_max_bs_decode is not None:
        return asked.cuda_graph_max_bs_decode
    largest = usual.largest_graph_few if (asked.tp_size or 1) < 4 else usual.largest_graph_many
    return min(largest, asked.max_running_requests or largest)


def _defaults(situation: Situation, memory: int) -> MemoryDefaults:
    by_memory = situation.engine.by_memory.v
    return next(row for row in by_memory if row.below_mib is None or memory < row.below_mib)


def _decodes_only(situation: Situation) -> bool:
    return situation.arguments.disaggregation_mode == "decode"
