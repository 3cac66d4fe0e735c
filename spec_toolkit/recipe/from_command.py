"""The recipe that a launch command stands for. Pure.

What a recipe has a key for becomes that key; what the toolkit sees to by itself (addresses, keys, metrics) is left out; any other flag
becomes an `extra_args` entry, or is left out with a word where a recipe may not carry it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.engine.command_line.parse import Written
from spec_toolkit.engine.command_line.say import note, shown, warn
from spec_toolkit.errors import Finding, RecipeError
from spec_toolkit.recipe.command import CommandLaunch
from spec_toolkit.recipe.draft_of import below_one, commit_of, draft_of, named, place_of
from spec_toolkit.recipe.schema import Engine, ExtraArg, Graphs, Hardware, Layout, Limits, Policy, Recipe, Target

_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_WHY = "it stands in the launch command that this recipe was written from"
_LONGEST_VALUE = 2000  # characters of one flag's

# Destinations of flags that become keys below.
_KEYED = frozenset({
    "model_path", "revision", "quantization", "tp_size", "dp_size", "attn_dp_size", "ep_size", "enable_dp_attention", "enable_dp_lm_head",
    "moe_a2a_backend", "nnodes", "dtype", "attention_backend", "moe_runner_backend", "flashinfer_mxfp4_moe_precision", "kv_cache_dtype",
    "disable_overlap_schedule", "context_length", "max_running_requests", "max_total_tokens", "mem_fraction_static", "watchdog_timeout",
    "cuda_graph_bs_decode", "cuda_graph_max_bs_decode", "speculative_algorithm", "speculative_draft_model_path",
    "speculative_draft_model_revision", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens",
    "speculative_dspark_block_size", "speculative_use_rejection_sampling", "speculative_accept_threshold_single",
    "speculative_accept_threshold_acc", "speculative_moe_runner_backend", "speculative_moe_a2a_backend",
})  # fmt: skip
# What a deployment decides for itself.
_SEEN_TO = frozenset({
    "host", "port", "nccl_port", "node_rank", "dist_init_addr", "enable_metrics", "served_model_name", "api_key", "admin_api_key",
    "speculative_adaptive", "speculative_adaptive_config",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    gpu: str  # a recipe's word: h200
    count: int  # per node
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What the engine takes where a command says nothing and a recipe must; None: not known."""

    sglang: str
    max_running_requests: int
    context_tokens: int | None = None
    steps_topk_width: tuple[int, int, int] | None = None
    refused_flags: Mapping[str, str] = field(
        default_factory=dict
    )  # why a recipe may not carry them; "--x*": all that begin so


@dataclass(frozen=True, slots=True)
class Drawn:
    recipe: Recipe
    findings: tuple[Finding, ...]


def to_recipe(launch: CommandLaunch, machines: Machines, defaults: Defaults) -> Drawn:
    """RecipeError where the command leaves open what nobody can fill in: the model, or its context."""
    asked = launch.arguments
    if asked.model_path is None:
        found = "is not written, or its value is not known here"
        raise RecipeError.of("init.no-model", "--model-path", found, remedy="Write it out.")
    context = asked.context_length or defaults.context_tokens
    if context is None:
        found, why = "is not written", f"how long a context {shown(asked.model_path)} has is not in the tables"
        raise RecipeError.of("init.context", "--context-length", found, why=why, remedy="Add it to the command.")
    findings: list[Finding] = []
    gpus = f"{machines.count} {machines.gpu.upper()}" + (
        f" on each of {machines.nodes} nodes" if machines.nodes > 1 else ""
    )
    recipe = Recipe(
        summary=f"{shown(asked.model_path.rpartition('/')[2])} on {gpus}, from a launch command; nothing was measured.",
        target=_target(asked, findings),
        draft=draft_of(asked, defaults.steps_topk_width, findings),
        hardware=Hardware(gpu=machines.gpu, count=machines.count, nodes=machines.nodes, layout=_layout(asked)),
        engine=_engine(launch, defaults, findings),
        limits=Limits(
            max_running_requests=_cap(asked, defaults, findings),
            context_tokens=context,
            kv_pool_tokens=asked.max_total_tokens,
            memory_fraction=asked.mem_fraction_static,
            window_pool_ratio=below_one(asked.swa_full_tokens_ratio),
        ),
        graphs=Graphs(decode_batch_sizes=tuple(sorted(set(asked.cuda_graph_bs_decode or ()))) or None),
        policy=Policy() if asked.watchdog_timeout is None else Policy(watchdog_seconds=asked.watchdog_timeout),
    )
    findings += _unsaid(launch)
    return Drawn(recipe, tuple(findings))


def _target(asked: Arguments, findings: list[Finding]) -> Target:
    quantization = {"modelopt_fp4": "nvfp4", "modelopt_fp8": "fp8"}.get(asked.quantization or "", asked.quantization)
    return Target(
        model=place_of(asked.model_path or ""),
        revision=commit_of(asked.revision, "target.revision", findings),
        quantization=named(quantization),
    )


def _layout(asked: Arguments) -> Layout:
    return Layout(
        tp=asked.tp_size or 1,
        dp=asked.attn_dp_size or asked.dp_size or 1,
        ep=asked.ep_size or 1,
        dp_attention=asked.attention_dp > 1,
        dp_lm_head=bool(asked.enable_dp_lm_head),
        moe_a2a_backend=named(asked.moe_a2a_backend),
    )


def _engine(launch: CommandLaunch, defaults: Defaults, findings: list[Finding]) -> Engine:
    asked, chunk = launch.arguments, launch.arguments.chunked_prefill_size
    is_pinned = launch.sglang == defaults.sglang or "@sha256:" in (launch.image or "")
    if launch.image and not is_pinned:
        found, why = f"is {shown(launch.image)}", f"this version plans for sglang {defaults.sglang}"
        findings.append(
            warn(
                "init.image", "engine.image", found, why, "Left out: `spec-toolkit pin` writes the one of that version."
            )
        )
    return Engine(
        sglang=defaults.sglang,
        image=launch.image if is_pinned else None,
        overlap=not asked.disable_overlap_schedule,
        dtype=named(asked.dtype),
        attention_backend=named(asked.attention_backend),
        moe_runner_backend=named(asked.moe_runner_backend),
        moe_precision=named(asked.flashinfer_mxfp4_moe_precision),
        kv_cache_dtype=named(asked.kv_cache_dtype),
        chunked_prefill_tokens=chunk if chunk is not None and chunk > 0 else None,
        extra_args=tuple(_extra_args(launch.written, asked, defaults, findings)),
    )


def _cap(asked: Arguments, defaults: Defaults, findings: list[Finding]) -> int:
    if asked.max_running_requests is not None:
        return asked.max_running_requests
    graphs_end = max(asked.cuda_graph_bs_decode or (), default=0) or asked.cuda_graph_max_bs_decode
    if not asked.speculates and graphs_end:
        cap, why = graphs_end, "the decode graphs end there"
    elif asked.speculates:
        cap, why = defaults.max_running_requests, "the engine takes it where it speculates and nothing is said"
    else:
        cap, why = defaults.max_running_requests, "without speculation the engine would take what its memory holds"
    findings.append(
        warn("init.cap", "limits.max_running_requests", f"is written as {cap}; the command names none", why)
    )
    return cap


def _extra_args(
    written: Sequence[Written], asked: Arguments, defaults: Defaults, findings: list[Finding]
) -> Iterator[ExtraArg]:
    keyed = _KEYED | {"chunked_prefill_size"} if (asked.chunked_prefill_size or 0) > 0 else _KEYED
    keyed = keyed if below_one(asked.swa_full_tokens_ratio) is None else keyed | {"swa_full_tokens_ratio"}
    for flag in written:
        if flag.destination in keyed or flag.destination in _SEEN_TO or flag.unknown:
            continue
        why = _why_not(flag, defaults)
        if why:
            findings.append(warn("init.left-out", flag.flag, "is left out of the recipe", why))
            continue
        text = flag.values[0] if flag.values else None
        yield ExtraArg(flag=flag.flag, why=_WHY, value=int(text) if text and _INTEGER.fullmatch(text) else text)


def _why_not(flag: Written, defaults: Defaults) -> str:
    """Why a recipe cannot carry it; empty where it can."""
    for refused, why in defaults.refused_flags.items():
        if flag.flag == refused or (refused.endswith("*") and flag.flag.startswith(refused[:-1])):
            return why
    if flag.flag == "--device" and flag.values == ("cuda",):
        return "it is so anyway"
    if len(flag.values) > 1:
        return "an entry of engine.extra_args holds one value, and it has several"
    if flag.values and (len(flag.values[0]) > _LONGEST_VALUE or not flag.values[0].isprintable()):
        return "its value does not fit on one line"
    return ""


def _unsaid(launch: CommandLaunch) -> Iterator[Finding]:
    """What was left out without harm, and the variables that a recipe has no key for."""
    seen_to = [flag.flag for flag in launch.written if flag.destination in _SEEN_TO]
    if seen_to:
        found = (
            f"{', '.join(seen_to)} {'is' if len(seen_to) == 1 else 'are'} left out; a deployment sees to that by itself"
        )
        yield note("init.seen-to", "command", found)
    variables = sorted(launch.environment.keys() - {"CUDA_VISIBLE_DEVICES"})
    if variables:
        named = ", ".join(shown(name) for name in variables[:8]) + (", …" if len(variables) > 8 else "")
        remedy = "Set what it needs where the deployment is started."
        yield warn("init.environment", "command", f"sets {named}", "a recipe has no key for variables", remedy)
