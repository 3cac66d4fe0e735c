"""Draws up the account of a launch: of its models, its machine, and what the engine makes of its arguments. Pure."""

from msgspec.structs import replace

from spec_toolkit.facts.model import Model
from spec_toolkit.planning.chosen import memory_mib, requests_of
from spec_toolkit.planning.memory.launched import SEES_IMAGES, fraction_of, layout_of, outside_of
from spec_toolkit.planning.memory.launched_kv import kv_of
from spec_toolkit.planning.memory.ledger import Demand, How, Ledger, make_ledger
from spec_toolkit.planning.memory.reserve import GIB, MIB, outside_lines
from spec_toolkit.planning.memory.rounds import rounds_of
from spec_toolkit.planning.memory.weights import (
    RankWeights,
    assistant_weights,
    draft_apart,
    draft_in_checkpoint,
    target_weights,
)
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.situation import Situation

_IMAGE_CACHE = 100 * MIB  # SGLANG_VLM_CACHE_SIZE_MB's default, srt/environ.py


def draw_up(situation: Situation) -> Ledger:
    return make_ledger(demand_of(situation))


def draw_up_at_most(situation: Situation) -> Ledger | None:
    """With the most that the draft's weights can be; None: they are known, or nobody knows a most."""
    demand = demand_of(situation)
    if demand.draft is None or demand.draft_most is None:
        return None
    return make_ledger(replace(demand, draft=(demand.draft_most, *demand.draft[1:]), draft_most=None))


def demand_of(situation: Situation) -> Demand:
    asked, measured, rounds = situation.arguments, situation.measured, rounds_of(situation)
    memory = memory_mib(situation)
    fraction, says = fraction_of(situation)
    outside = outside_of(situation, chunk_of_rank=True)
    attention = situation.target.shape.attention if situation.target.shape is not None else None
    counted = _counted_draft(situation) if rounds.steps and measured.draft_weights_gib is None else None
    return Demand(
        memory=memory * MIB if memory is not None else None,
        free_before=_bytes(measured.free_before_load_gib),
        fraction=fraction,
        fraction_says=says,
        memory_says=_memory_says(situation),
        target=_target(situation),
        draft=_draft(situation, counted) if rounds.steps else None,
        draft_most=counted.most if counted is not None and (asked.pp_size or 1) == 1 else None,
        kv=kv_of(situation),
        page_size=resolved.page_tokens(situation),
        rounds=rounds,
        requests=requests_of(situation),
        context_tokens=asked.context_length or situation.workload.context_tokens,
        pool_tokens=asked.max_total_tokens,
        outside=outside_lines(outside) if outside is not None else None,
        outside_measured=_bytes(measured.outside_gib),
        window_tokens=getattr(attention, "window_tokens", None),
        image_cache=_IMAGE_CACHE if situation.target.architecture in SEES_IMAGES else 0,
    )


def _memory_says(situation: Situation) -> str:
    measured, facts = situation.measured, situation.site.facts
    if measured.free_before_load_gib is not None:
        return "was free before the load"
    if measured.memory_gib is not None:
        return "somebody saw of the GPU"
    if facts is None or facts.memory_mib.v is None:
        return "nobody knows of the GPU"
    return f"the GPU has: {facts.memory_mib.v:,} MiB ({facts.memory_mib.e.value}: {facts.memory_mib.s})"


def _target(situation: Situation) -> tuple[int | None, How, str]:
    measured = situation.measured
    seen = measured.target_weights_gib
    if seen is None and measured.free_before_load_gib is not None and measured.free_after_load_gib is not None:
        seen = measured.free_before_load_gib - measured.free_after_load_gib
    return _weights(seen, target_weights(situation.target, layout_of(situation)), situation, situation.target)


def _draft(situation: Situation, counted: RankWeights | None) -> tuple[int | None, How, str]:
    if resolved.algorithm_of(situation) == "NGRAM":
        return 0, How.COUNTED, "a table of what was seen has no weights"
    return _weights(situation.measured.draft_weights_gib, counted, situation, situation.draft or situation.target)


def _counted_draft(situation: Situation) -> RankWeights | None:
    target, draft, layout = situation.target, situation.draft, layout_of(situation)
    algorithm = resolved.algorithm_of(situation)
    if draft is None:
        if resolved.has_draft_of_its_own(situation):
            return None
        return draft_in_checkpoint(target, layout, stages=_stages(target) if algorithm == "DSPARK" else None)
    known = None
    match algorithm:
        case "STANDALONE":
            known = target_weights(draft, layout)
        case "FROZEN_KV_MTP":
            known = assistant_weights(draft, layout)
        case "EAGLE":  # of a whole checkpoint the engine loads the MTP layer alone
            known = draft_in_checkpoint(draft, layout)
        case "DSPARK":
            known = draft_in_checkpoint(draft, layout, stages=_stages(draft))
    return known or draft_apart(draft, layout)


def _weights(
    seen: float | None, counted: RankWeights | None, situation: Situation, model: Model
) -> tuple[int | None, How, str]:
    if seen is not None:
        return _bytes(seen), How.MEASURED, "seen on a rank"
    if counted is None:
        return None, How.UNKNOWN, f"too little is known of {model.name} ({model.says})"
    if (situation.arguments.pp_size or 1) > 1:
        return None, How.UNKNOWN, "how pipeline stages divide the layers is not counted"
    return counted.bytes, How.COUNTED, f"{counted.says}; {model.says}"


def _stages(target: Model) -> int | None:
    attention = target.shape.attention if target.shape is not None else None
    ratios = getattr(attention, "compress_ratios_draft", ())
    return len(ratios) or None


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else round(gib * GIB)
