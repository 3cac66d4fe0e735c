"""What a person calls the place a finding is about: a recipe's key, or a command's flag. Pure.

A rule about the engine names the engine's argument, a rule about recipes the recipe's key; whoever brought a recipe reads keys, whoever
brought a command reads flags.
"""

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding
from spec_toolkit.planning.extra_arguments import places_of
from spec_toolkit.recipe.schema import ExtraArg

_KEY_OF = {
    "model_path": "target.model",
    "revision": "target.revision",
    "quantization": "target.quantization",
    "tp_size": "hardware.layout.tp",
    "dp_size": "hardware.layout.dp",
    "attn_dp_size": "hardware.layout.dp",
    "ep_size": "hardware.layout.ep",
    "enable_dp_attention": "hardware.layout.dp_attention",
    "enable_dp_lm_head": "hardware.layout.dp_lm_head",
    "moe_a2a_backend": "hardware.layout.moe_a2a_backend",
    "nnodes": "hardware.nodes",
    "dtype": "engine.dtype",
    "attention_backend": "engine.attention_backend",
    "moe_runner_backend": "engine.moe_runner_backend",
    "flashinfer_mxfp4_moe_precision": "engine.moe_precision",
    "kv_cache_dtype": "engine.kv_cache_dtype",
    "chunked_prefill_size": "engine.chunked_prefill_tokens",
    "disable_overlap_schedule": "engine.overlap",
    "context_length": "limits.context_tokens",
    "max_running_requests": "limits.max_running_requests",
    "max_total_tokens": "limits.kv_pool_tokens",
    "mem_fraction_static": "limits.memory_fraction",
    "swa_full_tokens_ratio": "limits.window_pool_ratio",
    "watchdog_timeout": "policy.watchdog_seconds",
    "cuda_graph_bs_decode": "graphs.decode_batch_sizes",
    "cuda_graph_max_bs_decode": "graphs.decode_batch_sizes",
    "speculative_algorithm": "draft.method",
    "speculative_draft_model_path": "draft.model",
    "speculative_draft_model_revision": "draft.revision",
    "speculative_num_steps": "draft.num_steps",
    "speculative_eagle_topk": "draft.topk",
    "speculative_num_draft_tokens": "draft.num_draft_tokens",
    "speculative_dspark_block_size": "draft.block_tokens",
    "speculative_use_rejection_sampling": "draft.acceptance",
    "speculative_accept_threshold_single": "draft.accept_threshold_single",
    "speculative_accept_threshold_acc": "draft.accept_threshold_accumulated",
    "speculative_moe_runner_backend": "draft.moe_runner_backend",
    "speculative_moe_a2a_backend": "draft.moe_a2a_backend",
    "site.gpu": "hardware.gpu",
    "site.gpus_per_node": "hardware.count",
    "site.nodes": "hardware.nodes",
    "workload.peak_concurrency": "limits.max_running_requests",
    "workload.context_tokens": "limits.context_tokens",
    "pins.sglang": "engine.sglang",
    "pins.image": "engine.image",
}
# Keys of a recipe that a command says on our own command line, or in its image.
_OPTION_OF = {"hardware.gpu": "--gpu", "hardware.count": "--count", "hardware.nodes": "--nodes"}
_ARGUMENTS = frozenset(Arguments.__struct_fields__)


def in_recipe(finding: Finding, extra_args: tuple[ExtraArg, ...] = ()) -> Finding:
    """`where` as the key of a recipe; a flag that no key stands for is called by its name where `extra_args` do not hold it."""
    if finding.where not in _ARGUMENTS:
        return _at(finding, _KEY_OF.get(finding.where, finding.where))
    written = places_of(extra_args).get(finding.where)
    return _at(finding, written or _KEY_OF.get(finding.where) or flag_of(finding.where))


def in_command(finding: Finding) -> Finding:
    """`where` as a flag of the engine, or as an option of ours."""
    where = _OPTION_OF.get(_KEY_OF.get(finding.where, finding.where)) or _ARGUMENT_OF.get(finding.where, finding.where)
    return _at(finding, flag_of(where) if where in _ARGUMENTS else where)


def flag_of(argument: str) -> str:
    return "--" + argument.replace("_", "-")


_ARGUMENT_OF = {key: argument for argument, key in reversed(_KEY_OF.items()) if argument in _ARGUMENTS}


def _at(finding: Finding, where: str) -> Finding:
    if where == finding.where:
        return finding
    return Finding(
        rule=finding.rule,
        verdict=finding.verdict,
        where=where,
        found=finding.found,
        why=finding.why,
        remedy=finding.remedy,
        changes=finding.changes,
    )
