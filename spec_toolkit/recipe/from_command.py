"""The recipe that a launch command stands for. Pure.

What a recipe has a key for becomes that key; what the toolkit sees to by itself (addresses, keys, metrics) is left out; any other flag
becomes an `extra_args` entry, or is left out with a word where a recipe may not carry it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.engine.command_line.parse import Written
from spec_toolkit.engine.command_line.say import shown
from spec_toolkit.engine.flags import Flag
from spec_toolkit.engine.secrets import SECRET
from spec_toolkit.errors import Finding, RecipeError, note, warn
from spec_toolkit.recipe.command import CommandLaunch
from spec_toolkit.recipe.draft_of import below_one, commit_of, draft_of, named, place_of
from spec_toolkit.recipe.keys_of_flags import KEYS, held, says
from spec_toolkit.recipe.schema import Draft, Engine, ExtraArg, Graphs, Hardware, Layout, Limits, Policy, Recipe, Target
from spec_toolkit.recipe.words import render
from spec_toolkit.terms import Method, Mode

_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_WHY = "it stands in the launch command that this recipe was written from"
_SAYS_WHY = {"init.revision", "init.algorithm"}  # rules of findings that say why their key is not what was written
_LONGEST_VALUE = 2000  # characters of one flag's

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
    target = _target(asked, findings)
    draft = draft_of(asked, defaults.steps_topk_width, findings)
    recipe = Recipe(
        summary=f"{shown(asked.model_path.rpartition('/')[2])} on {gpus}, from a launch command; nothing was measured.",
        target=target,
        draft=draft,
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
        policy=_policy(asked, draft),
    )
    extra = tuple(_extra_args(launch, recipe, defaults, findings))
    findings += _unsaid(launch)
    return Drawn(replace(recipe, engine=replace(recipe.engine, extra_args=extra)), tuple(findings))


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
    # A digest alone may be of any version; a tag beside it says which.
    is_fit = launch.sglang == defaults.sglang or (launch.sglang is None and "@sha256:" in (launch.image or ""))
    if launch.image and not is_fit:
        found, why = f"is {shown(launch.image)}", f"this version plans for sglang {defaults.sglang}"
        findings.append(
            warn(
                "init.image", "engine.image", found, why, "Left out: `spec-toolkit pin` writes the one of that version."
            )
        )
    return Engine(
        sglang=defaults.sglang,
        image=launch.image if is_fit else None,
        overlap=not asked.disable_overlap_schedule,
        dtype=named(asked.dtype),
        attention_backend=named(asked.attention_backend),
        moe_runner_backend=named(asked.moe_runner_backend),
        moe_precision=named(asked.flashinfer_mxfp4_moe_precision),
        kv_cache_dtype=named(asked.kv_cache_dtype),
        chunked_prefill_tokens=chunk if chunk is not None and chunk > 0 else None,
    )


def _policy(asked: Arguments, draft: Draft) -> Policy:
    policy = Policy() if draft.method is not Method.NONE else Policy(allow=(Mode.AUTOREGRESSIVE,))
    return policy if asked.watchdog_timeout is None else replace(policy, watchdog_seconds=asked.watchdog_timeout)


def _cap(asked: Arguments, defaults: Defaults, findings: list[Finding]) -> int:
    if asked.max_running_requests is not None:
        return asked.max_running_requests
    graphs_end = max(asked.cuda_graph_bs_decode or (), default=0) or asked.cuda_graph_max_bs_decode
    if not asked.speculates and graphs_end:
        ranks = asked.attention_dp
        cap, why = graphs_end * ranks, "the decode graphs end there" + (f", on each of {ranks} ranks" * (ranks > 1))
    elif asked.speculates:
        cap, why = defaults.max_running_requests, "the engine takes it where it speculates and nothing is said"
    else:
        cap, why = defaults.max_running_requests, "without speculation the engine would take what its memory holds"
    findings.append(
        warn("init.cap", "limits.max_running_requests", f"is written as {cap}; the command names none", why)
    )
    return cap


def _extra_args(
    launch: CommandLaunch, recipe: Recipe, defaults: Defaults, findings: list[Finding]
) -> Iterator[ExtraArg]:
    """What the recipe does not say yet, as far as it may; `recipe`: all else of it."""
    said = {finding.where for finding in findings if finding.rule in _SAYS_WHY}
    for flag in launch.written:
        key = KEYS.get(flag.destination)
        if flag.destination in _SEEN_TO or flag.unknown or (key is not None and key.path in said):
            continue
        if key is not None and says(recipe, flag.destination, launch.arguments):
            continue
        why = _why_not(flag, defaults)
        if why and key is not None:
            value = held(recipe, key.path)
            why = f"its key {key.path} is {'left open' if value is None else render(value)}"
        if why:
            values = f" with its {shown(' '.join(flag.values))}" if flag.values and SECRET not in flag.values else ""
            findings.append(warn("init.left-out", flag.flag, f"is left out of the recipe{values}", why))
            continue
        text = flag.values[0] if flag.values else None
        yield ExtraArg(flag=flag.flag, why=_WHY, value=int(text) if text and _INTEGER.fullmatch(text) else text)


def _why_not(flag: Written, defaults: Defaults) -> str:
    """Why a recipe cannot carry it; empty where it can."""
    for refused, why in defaults.refused_flags.items():
        if flag.flag == refused or (refused.endswith("*") and flag.flag.startswith(refused[:-1])):
            return why
    if any(SECRET in value for value in flag.values):
        return "a secret stands in it, and recipes are read by many"
    if flag.flag == Flag.DEVICE and flag.values == ("cuda",):
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
