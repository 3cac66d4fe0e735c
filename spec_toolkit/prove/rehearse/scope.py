"""What a rehearsal of a recipe did not exercise, in the recipe's own words. Pure."""

from collections.abc import Iterator

from spec_toolkit.facts.model import DsaAttention
from spec_toolkit.planning.plan import Plan
from spec_toolkit.prove.rehearse.settings import RANKS, computed_in
from spec_toolkit.prove.rehearse.tiny import Tiny
from spec_toolkit.terms import Method


def not_exercised(production: Plan, tiny: Tiny | None, *, samples: bool) -> tuple[str, ...]:
    """Sentences; every one of them is somebody else's to prove, and most need the GPU."""
    return (
        *_kernels(production),
        *_graphs(production),
        *_weights(production),
        *_ranks(production, tiny, samples=samples),
        *_requests(production, samples=samples),
        *_rest(production, tiny),
    )


def _kernels(plan: Plan) -> Iterator[str]:
    recipe, gpu = plan.recipe, plan.recipe.hardware.gpu
    on = "a GPU" if recipe.is_rehearsal else gpu.upper()
    chosen = [
        f"{what} {name}"
        for what, name in (
            ("attention", recipe.engine.attention_backend if not recipe.is_rehearsal else None),
            ("experts", recipe.engine.moe_runner_backend),
            ("the draft's experts", recipe.draft.moe_runner_backend),
        )
        if name
    ]
    named = f" (the recipe names: {', '.join(chosen)})" if chosen else ""
    dtype = computed_in(recipe) if recipe.is_rehearsal else "float32"
    yield f"kernels of {on}{named}: reference kernels in PyTorch, in {dtype}, ran in their place"
    shape = plan.situation.target.shape
    if shape is not None and isinstance(shape.attention, DsaAttention):
        yield (
            "of sparse attention: fp8 index keys, the Hadamard rotation, paged index layouts, the top-k kernels and their order among "
            "equal scores, dense attention for short prompts"
        )


def _graphs(plan: Plan) -> Iterator[str]:
    sizes = plan.decode_graph_batch_sizes
    listed = f" ({len(sizes)} decode batches up to {sizes[-1]:,})" if sizes else ""
    yield (
        f"CUDA graphs{listed}, GPU streams and what they overlap; the schedule that overlaps did run"
        if (plan.recipe.engine.overlap)
        else f"CUDA graphs{listed}, GPU streams; the recipe turns the overlap schedule off, and so did this"
    )


def _weights(plan: Plan) -> Iterator[str]:
    target, engine = plan.situation.target, plan.recipe.engine
    stored = target.weights.value if target.weights else plan.recipe.target.quantization
    kv = engine.kv_cache_dtype
    if stored not in {None, "bf16"}:
        draft = target.draft_weights
        of_draft = f" (the draft's layer: {draft.value})" if draft is not None and draft.value != stored else ""
        yield f"{stored} weights{of_draft}, their scales and how they are loaded; KV as {kv or 'the engine chooses'}"
    elif not plan.recipe.is_rehearsal:
        yield f"arithmetic in bf16, and {kv or 'bf16'} KV: near-ties are wider there"


def _ranks(plan: Plan, tiny: Tiny | None, *, samples: bool) -> Iterator[str]:
    hardware, layout = plan.recipe.hardware, plan.recipe.hardware.layout
    if layout.tp > RANKS and tiny is not None:
        dp = f" with attention DP {layout.dp}" if layout.dp_attention else ""
        yield f"{layout.tp} ranks{dp} and their links: two ran, over gloo"
    if layout.dp_attention and 1 < layout.dp < layout.tp and tiny is not None:
        fails = (
            "; drafts have failed there once several requests ran"
            if plan.recipe.draft.method is not Method.NONE
            else ""
        )
        yield (
            f"ranks that share one request's attention (dp {layout.dp} over {layout.tp} ranks): the two that ran held whole requests "
            f"each{fails}"
        )
    on_one = [what for what, is_so in (("sampled answers", samples), ("fewer steps", len(plan.steps) > 1)) if is_so]
    if layout.tp > 1 and on_one:
        yield f"{' and '.join(on_one)} on several ranks: the ranks were compared greedily, with all steps"
    if layout.moe_a2a_backend:
        yield f"{layout.moe_a2a_backend}: all-to-all between experts"
    if layout.ep > 1:
        yield f"expert parallelism over {layout.ep} ranks"
    if hardware.nodes > 1:
        yield f"{hardware.nodes} nodes and the network between them"


def _requests(plan: Plan, *, samples: bool) -> Iterator[str]:
    if samples:
        yield "top-k, top-p, min-p, penalties and seeds: of all that a request can set for sampling, only a temperature was"
    elif plan.lossy:
        yield "sampled answers: a lossy rule of acceptance promises no law to hold them against"
    yield "streams, requests that are cancelled or retracted, prompts that come in chunks, grammars: each prompt and each answer was whole"
    if (plan.situation.target.architecture or "").startswith("Gemma4"):
        yield "images (and sound, where the model takes it): prompts were text"


def _rest(plan: Plan, tiny: Tiny | None) -> Iterator[str]:
    limits = plan.recipe.limits
    if tiny is not None:
        yield (
            f"memory, and {limits.max_running_requests:,} requests of up to {limits.context_tokens:,} tokens at a time; "
            "the checkpoint's own tokenizer and template"
        )
    yield "supervisor, gateway and sidecar: no policy moved an engine, and none was replaced under its streams"
    yield "acceptance, break-even and speed of any real model: what is printed here is the tiny model's"
