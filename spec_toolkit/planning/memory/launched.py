"""What the engine makes of a launch's arguments, as far as its memory goes by it. Pure."""

from spec_toolkit.planning.chosen import defaults_by_memory, largest_graph, memory_mib
from spec_toolkit.planning.memory.reserve import Outside, default_fraction
from spec_toolkit.planning.memory.rounds import rounds_of
from spec_toolkit.planning.memory.weights import Layout
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.resolved import Family
from spec_toolkit.planning.situation import Situation

SEES_IMAGES = frozenset({"Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"})
_PREFILL_TOKENS = 16384  # where prefill is not chunked and a launch says nothing


def layout_of(situation: Situation) -> Layout:
    asked = situation.arguments
    return Layout(
        tp=asked.tp_size or 1,
        attention_dp=asked.attention_dp,
        attention_cp=asked.attn_cp_size or 1,
        moe_dp=asked.moe_dp_size or 1,
        all_to_all=asked.exchanges,
        head_by_dp=bool(asked.enable_dp_lm_head),
        whole_embedding=asked.attention_dp > 1 and resolved.family_of(situation.target) is Family.V4,
    )


def outside_of(situation: Situation, *, chunk_of_rank: bool) -> Outside | None:
    """What the engine's estimate goes by; it takes the chunk before attention data parallelism divides it. None: memory not known."""
    memory, usual, asked = memory_mib(situation), defaults_by_memory(situation), situation.arguments
    if memory is None or usual is None:
        return None
    chunk = asked.chunked_prefill_size or usual.chunk_tokens
    chunk = chunk if chunk > 0 else asked.max_prefill_tokens or _PREFILL_TOKENS
    largest = _largest_graph(situation)
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
        decode_tokens=(asked.max_running_requests or largest or 1) * (rounds_of(situation).width or 1),
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
    return default_fraction(
        outside, situation.target.vision if sees_images else None
    ), "the engine's rule (sglang-source: srt/arg_groups/memory_hook.py)"


def major_of(situation: Situation) -> int | None:
    facts = situation.site.facts
    capability = facts.compute_capability.v if facts is not None else None
    return capability[0] if capability is not None else None


def _largest_graph(situation: Situation) -> int:
    asked = situation.arguments
    if asked.disable_cuda_graph or asked.cuda_graph_backend_decode == "disabled":
        return 0
    if asked.cuda_graph_bs_decode:
        return max(asked.cuda_graph_bs_decode)
    return largest_graph(situation) or 0


def _decodes_only(situation: Situation) -> bool:
    return situation.arguments.disaggregation_mode == "decode"
