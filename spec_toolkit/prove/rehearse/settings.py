"""A production recipe at toy size: what is kept, what has no meaning on a CPU, and why. Pure.

Every key of a recipe stands in one of the two tables below; a test holds them against the schema, so that a new key is decided here
and not by default.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from spec_toolkit.engine.flags import is_shape_of_draft
from spec_toolkit.prove.rehearse.tiny import Tiny
from spec_toolkit.recipe.schema import Engine, ExtraArg, Graphs, Hardware, Layout, Limits, Recipe, Target

RANKS = 2  # stand for any number: two already have to agree
_TOKENS = 4096  # of one request; the longest held-out prompt and its answer have a few hundred
_POOL_TOKENS = 32_768  # 64 requests, each with a prompt and the drafts of its rounds
_REQUESTS = 64
LEFT_OUT = "left out"
_SPELLED = {None: "bfloat16", "auto": "bfloat16", "float": "float32", "half": "float16"}  # as the engine takes them

KEPT = frozenset({
    "draft.method", "draft.num_steps", "draft.topk", "draft.num_draft_tokens", "draft.block_tokens", "draft.acceptance",
    "draft.accept_threshold_single", "draft.accept_threshold_accumulated",
    "engine.sglang", "engine.patches", "engine.overlap",
    "hardware.layout.dp_attention",
    "policy.allow", "policy.reduced_steps", "policy.dwell_seconds", "policy.window_seconds", "policy.queue_high",
    "policy.cool_down_seconds", "policy.crash_cool_down_seconds", "policy.comeback", "policy.ranks_after_draft_fault",
    "policy.ready_seconds", "policy.drain_seconds", "policy.watchdog_seconds", "policy.resume_deadline_seconds",
    "policy.max_waiting_requests",
})  # fmt: skip

# What a recipe says of itself and no engine reads.
SAID = frozenset({"summary", "source", "evidence"})

_GPU_KERNELS = "kernels of GPUs; the CPU engine has reference kernels in their place"
_ALL_TO_ALL = "all-to-all needs GPUs; ranks exchange through gloo"
_MEMORY = "no memory of a GPU is divided here"
WHY = {
    "target.model": "a tiny trained model of the same architecture",
    "target.revision": "pins the production checkpoint",
    "target.tokenizer": "pins the production checkpoint",
    "target.quantization": "the tiny weights are BF16, and computed in float32",
    "draft.model": "the tiny target's own assistant",
    "draft.revision": "pins the production draft",
    "draft.moe_runner_backend": _GPU_KERNELS,
    "draft.moe_a2a_backend": _ALL_TO_ALL,
    "hardware.gpu": "no GPU is needed",
    "hardware.count": "no GPU is needed",
    "hardware.nodes": "one machine",
    "hardware.layout.tp": "two ranks have to agree as many do",
    "hardware.layout.dp": "two attention ranks stand for many; replicas without it share nothing but a front",
    "hardware.layout.ep": "experts lie with their tensor-parallel ranks",
    "hardware.layout.dp_lm_head": "not tried on the CPU engine",
    "hardware.layout.moe_a2a_backend": _ALL_TO_ALL,
    "engine.image": "the engine is this environment's",
    "engine.dtype": "greedy answers are compared token by token: no bfloat16 near-ties",
    "engine.attention_backend": "the backend SGLang has for CPUs",
    "engine.moe_runner_backend": _GPU_KERNELS,
    "engine.moe_precision": _GPU_KERNELS,
    "engine.kv_cache_dtype": "KV is float32",
    "engine.chunked_prefill_tokens": _MEMORY,
    "engine.extra_args": "flags outside a recipe's keys may mean what a CPU does not have; speculative ones are kept",
    "graphs.decode_batch_sizes": "no CUDA graph is captured",
    "limits.max_running_requests": f"no more than {_REQUESTS} are asked at a time",
    "limits.context_tokens": "the tiny model's positions",
    "limits.kv_pool_tokens": "room for what is asked",
    "limits.memory_fraction": _MEMORY,
    "limits.window_pool_ratio": _MEMORY,
    "limits.draft_weights_gib": _MEMORY,
    "limits.draft_kv_gib": _MEMORY,
    "limits.temporary_kv_gib": _MEMORY,
    "simulated": "acceptance is real here",
}


class Setting(Struct, frozen=True, kw_only=True):
    """One key that a rehearsal does not take as the recipe has it."""

    key: str
    production: str
    rehearsed: str  # LEFT_OUT where there is no such thing
    why: str


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The recipe at toy size."""

    alone: Recipe  # on one rank
    ranks: Recipe | None  # on several, where the recipe has them
    changed: tuple[Setting, ...]


def at_toy_size(recipe: Recipe, tiny: Tiny | None) -> Rehearsed:
    """`tiny`: None for a recipe that is a rehearsal already, and is taken as it is."""
    whole = recipe if tiny is None else _small(recipe, tiny)
    several = whole.hardware.layout.tp > 1
    alone = replace(whole, hardware=replace(whole.hardware, layout=Layout())) if several else whole
    return Rehearsed(alone, whole if several else None, tuple(_changed(recipe, whole)))


def computed_in(recipe: Recipe) -> str:
    """The arithmetic of a recipe at toy size. The tiny weights are BF16: an engine that is told nothing computes in it."""
    return _SPELLED.get(recipe.engine.dtype, recipe.engine.dtype or "")


def _small(recipe: Recipe, tiny: Tiny) -> Recipe:
    limits, engine = recipe.limits, recipe.engine
    return replace(
        recipe,
        target=Target(model=tiny.target),
        draft=replace(recipe.draft, model=tiny.draft, revision=None, moe_runner_backend=None, moe_a2a_backend=None),
        hardware=Hardware(gpu="cpu", layout=_layout(recipe.hardware.layout)),
        engine=Engine(
            sglang=engine.sglang,
            patches=engine.patches,
            overlap=engine.overlap,
            dtype="float32",
            attention_backend="intel_amx",
            extra_args=tuple(arg for arg in engine.extra_args if is_shape_of_draft(arg.flag)),
        ),
        graphs=Graphs(),
        limits=Limits(
            max_running_requests=min(limits.max_running_requests, _REQUESTS),
            context_tokens=_TOKENS,
            kv_pool_tokens=_POOL_TOKENS,
        ),
        evidence=None,
        simulated=False,
    )


def _layout(layout: Layout) -> Layout:
    if layout.tp == 1:
        return Layout()
    return Layout(tp=RANKS, dp=RANKS if layout.dp_attention and layout.dp > 1 else 1, dp_attention=layout.dp_attention)


def _changed(recipe: Recipe, small: Recipe) -> Iterator[Setting]:
    now = leaves(small)
    for key, value in leaves(recipe).items():
        if key in WHY and value != now[key]:
            yield Setting(key=key, production=_words(value), rehearsed=_words(now[key]), why=WHY[key])


def leaves(record: Struct, above: str = "") -> dict[str, object]:
    """Every key of a recipe by its path, unset ones included."""
    found: dict[str, object] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        path = above + name
        if isinstance(value, Struct) and path not in SAID:
            found |= leaves(value, f"{path}.")
        else:
            found[path] = value
    return found


def _words(value: object) -> str:
    match value:
        case None | ():
            return LEFT_OUT
        case tuple() if all(isinstance(each, ExtraArg) for each in value):
            return " ".join(f"{each.flag}" for each in value)
        case tuple():
            return f"{len(value)}, up to {value[-1]}"
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
    return str(value)
