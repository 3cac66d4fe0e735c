"""Which key of a recipe says what a flag says, and whether one recipe's does. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.recipe.draft_of import method_of, place_of
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.terms import Acceptance, Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    path: str  # "draft.num_steps"
    value: Callable[..., object] = lambda said: said  # what the key holds where the flag says this
    follows: Callable[[Arguments, Recipe], bool] = lambda *_: False  # or the recipe says so without it


def _word(said: str) -> str | None:
    """None for what only says that the engine should choose."""
    return None if said in {"auto", "none"} else said


def _threshold(said: float) -> float | None:
    """1 is the engine's own, and nothing is relaxed."""
    return None if said == 1 else said


def _is_the_chains(asked: Arguments, recipe: Recipe) -> bool:
    draft = recipe.draft
    steps = (asked.speculative_num_draft_tokens or 0) - 1
    return draft.num_draft_tokens is None and draft.topk == 1 and draft.num_steps == steps


def _is_the_targets(asked: Arguments, recipe: Recipe) -> bool:
    is_inside = recipe.draft.method is not Method.NONE and recipe.draft.model == "same"
    return is_inside and asked.speculative_draft_model_path == asked.model_path


def _is_the_last_of_the_graphs(asked: Arguments, recipe: Recipe) -> bool:
    """Whether they end there: as written, or by the cap, of which each rank that holds requests has its share."""
    written = recipe.graphs.decode_batch_sizes
    last = written[-1] if written else -(-recipe.limits.max_running_requests // asked.attention_dp)
    return last == asked.cuda_graph_max_bs_decode


def _drafts_as(asked: Arguments, recipe: Recipe) -> bool:
    """A method may be a nearer word for the algorithm that was asked for."""
    return (method_of(asked.speculative_algorithm or "") is Method.NONE) is (recipe.draft.method is Method.NONE)


def _is_whole(asked: Arguments, _: Recipe) -> bool:
    """One rank has nothing to share out."""
    return asked.attention_dp == 1


KEYS: Mapping[str, Key] = {
    "model_path": Key(path="target.model", value=place_of),
    "revision": Key(path="target.revision"),
    "quantization": Key(path="target.quantization", value=lambda said: {"modelopt_fp4": "nvfp4", "modelopt_fp8": "fp8"}.get(said, _word(said))),
    "tp_size": Key(path="hardware.layout.tp"),
    "dp_size": Key(path="hardware.layout.dp"),
    "attn_dp_size": Key(path="hardware.layout.dp"),
    "ep_size": Key(path="hardware.layout.ep"),
    "enable_dp_attention": Key(path="hardware.layout.dp_attention", follows=_is_whole),
    "enable_dp_lm_head": Key(path="hardware.layout.dp_lm_head"),
    "moe_a2a_backend": Key(path="hardware.layout.moe_a2a_backend", value=_word),
    "nnodes": Key(path="hardware.nodes"),
    "dtype": Key(path="engine.dtype", value=_word),
    "attention_backend": Key(path="engine.attention_backend", value=_word),
    "moe_runner_backend": Key(path="engine.moe_runner_backend", value=_word),
    "flashinfer_mxfp4_moe_precision": Key(path="engine.moe_precision", value=_word),
    "kv_cache_dtype": Key(path="engine.kv_cache_dtype", value=_word),
    "chunked_prefill_size": Key(path="engine.chunked_prefill_tokens"),
    "disable_overlap_schedule": Key(path="engine.overlap", value=lambda said: not said),
    "context_length": Key(path="limits.context_tokens"),
    "max_running_requests": Key(path="limits.max_running_requests"),
    "max_total_tokens": Key(path="limits.kv_pool_tokens"),
    "mem_fraction_static": Key(path="limits.memory_fraction"),
    "swa_full_tokens_ratio": Key(path="limits.window_pool_ratio"),
    "watchdog_timeout": Key(path="policy.watchdog_seconds"),
    "cuda_graph_bs_decode": Key(path="graphs.decode_batch_sizes", value=lambda said: tuple(sorted(set(said)))),
    "cuda_graph_max_bs_decode": Key(path="graphs.decode_batch_sizes", follows=_is_the_last_of_the_graphs),
    "speculative_algorithm": Key(path="draft.method", value=method_of, follows=_drafts_as),
    "speculative_draft_model_path": Key(path="draft.model", value=place_of, follows=_is_the_targets),
    "speculative_draft_model_revision": Key(path="draft.revision"),
    "speculative_num_steps": Key(path="draft.num_steps"),
    "speculative_eagle_topk": Key(path="draft.topk"),
    "speculative_num_draft_tokens": Key(path="draft.num_draft_tokens", follows=_is_the_chains),
    "speculative_dspark_block_size": Key(path="draft.block_tokens"),
    "speculative_use_rejection_sampling": Key(path="draft.acceptance", value=lambda said: Acceptance.REJECTION if said else Acceptance.TARGET_ONLY),
    "speculative_accept_threshold_single": Key(path="draft.accept_threshold_single", value=_threshold),
    "speculative_accept_threshold_acc": Key(path="draft.accept_threshold_accumulated", value=_threshold),
    "speculative_moe_runner_backend": Key(path="draft.moe_runner_backend"),
    "speculative_moe_a2a_backend": Key(path="draft.moe_a2a_backend"),
}  # fmt: skip


def says(recipe: Recipe, destination: str, asked: Arguments) -> bool:
    """Whether the flag's key has the flag's value."""
    key, said = KEYS[destination], getattr(asked, destination)
    return said is None or held(recipe, key.path) == key.value(said) or key.follows(asked, recipe)


def held(recipe: Recipe, path: str) -> object:
    value: object = recipe
    for name in path.split("."):
        value = getattr(value, name)
    return value
