"""What a recipe asks of the engine, in the engine's own names. Pure: what a launch starts and what a rule reads are one record."""

from msgspec.structs import asdict, replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.engine.flags import ALGORITHM_OF
from spec_toolkit.planning.rules.shape import STEPPING, Shape
from spec_toolkit.recipe.schema import Draft, Recipe
from spec_toolkit.terms import Acceptance, Method

_SPECULATIVE = "speculative_"


def asked_of(
    recipe: Recipe, *, shape: Shape | None, graph_batch_sizes: tuple[int, ...], steps: tuple[int, ...]
) -> Arguments:
    """The last three as a plan has them. Places of this machine (folders, files, ports) are the launch's to fill in."""
    layout, limits, engine = recipe.hardware.layout, recipe.limits, recipe.engine
    asked = Arguments(
        model_path=recipe.target.model,
        revision=recipe.target.revision,
        tp_size=layout.tp,
        dp_size=layout.dp if layout.dp > 1 else None,
        ep_size=layout.ep if layout.ep > 1 else None,
        enable_dp_attention=layout.dp_attention or None,
        enable_dp_lm_head=layout.dp_lm_head or None,
        nnodes=recipe.hardware.nodes if recipe.hardware.nodes > 1 else None,
        moe_a2a_backend=layout.moe_a2a_backend,
        moe_runner_backend=engine.moe_runner_backend,
        flashinfer_mxfp4_moe_precision=engine.moe_precision,
        dtype=engine.dtype,
        kv_cache_dtype=engine.kv_cache_dtype,
        attention_backend=engine.attention_backend,
        chunked_prefill_size=engine.chunked_prefill_tokens,
        disable_overlap_schedule=None if engine.overlap else True,
        context_length=limits.context_tokens,
        max_running_requests=limits.max_running_requests,
        max_total_tokens=limits.kv_pool_tokens,
        mem_fraction_static=limits.memory_fraction,
        swa_full_tokens_ratio=limits.window_pool_ratio,
        watchdog_timeout=recipe.policy.watchdog_seconds,
        cuda_graph_bs_decode=graph_batch_sizes or None,
        enable_metrics=True,
    )
    return _with_draft(asked, recipe.draft, shape, steps)


def autoregressive(asked: Arguments) -> Arguments:
    """The same engine without speculation."""
    return replace(asked, **{name: None for name in asdict(asked) if name.startswith(_SPECULATIVE)})


def _with_draft(asked: Arguments, draft: Draft, shape: Shape | None, steps: tuple[int, ...]) -> Arguments:
    if draft.method is Method.NONE:
        return asked
    # A draft that does not say enough is judged by what it says; a block's numbers are the engine's to derive.
    said = (shape or draft) if draft.method in STEPPING else None
    return replace(
        asked,
        speculative_algorithm=ALGORITHM_OF[draft.method],
        speculative_draft_model_path=None if draft.model == "same" else draft.model,
        speculative_draft_model_revision=draft.revision,
        speculative_num_steps=said.num_steps if said else None,
        speculative_eagle_topk=said.topk if said else None,
        speculative_num_draft_tokens=said.num_draft_tokens if said else None,
        speculative_adaptive=bool(steps) or None,
        speculative_dspark_block_size=draft.block_tokens,
        speculative_use_rejection_sampling=draft.acceptance is Acceptance.REJECTION or None,
        speculative_accept_threshold_single=draft.accept_threshold_single,
        speculative_accept_threshold_acc=draft.accept_threshold_accumulated,
        speculative_moe_runner_backend=draft.moe_runner_backend,
        speculative_moe_a2a_backend=draft.moe_a2a_backend,
    )
