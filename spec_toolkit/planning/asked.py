"""What a recipe asks of the engine, in the engine's own names. Pure: what a launch starts and what a rule reads are one record."""

from msgspec.structs import asdict, replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.engine.flags import ALGORITHM_OF
from spec_toolkit.planning.rules.shape import Shape
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
        dtype=engine.dtype,
        attention_backend=engine.attention_backend,
        disable_overlap_schedule=None if engine.overlap else True,
        context_length=limits.context_tokens,
        max_running_requests=limits.max_running_requests,
        max_total_tokens=limits.kv_pool_tokens,
        mem_fraction_static=limits.memory_fraction,
        watchdog_timeout=recipe.policy.watchdog_seconds,
        cuda_graph_bs_decode=graph_batch_sizes or None,
        enable_metrics=True,
    )
    return _with_draft(asked, recipe.draft, shape, steps)


def autoregressive(asked: Arguments) -> Arguments:
    """The same engine without speculation."""
    return replace(asked, **{name: None for name in asdict(asked) if name.startswith(_SPECULATIVE)})


def is_speculative(name: str) -> bool:
    return name.startswith(_SPECULATIVE)


def _with_draft(asked: Arguments, draft: Draft, shape: Shape | None, steps: tuple[int, ...]) -> Arguments:
    if draft.method is Method.NONE:
        return asked
    return replace(
        asked,
        speculative_algorithm=ALGORITHM_OF[draft.method],
        speculative_draft_model_path=None if draft.model == "same" else draft.model,
        speculative_draft_model_revision=draft.revision,
        speculative_num_steps=shape.num_steps if shape else None,
        speculative_eagle_topk=shape.topk if shape else None,
        speculative_num_draft_tokens=shape.num_draft_tokens if shape else None,
        speculative_adaptive=bool(steps) or None,
        speculative_dspark_block_size=draft.block_tokens,
        speculative_use_rejection_sampling=draft.acceptance is Acceptance.REJECTION or None,
        speculative_accept_threshold_single=draft.accept_threshold_single,
        speculative_accept_threshold_acc=draft.accept_threshold_accumulated,
    )
