"""Rules about the kernels for the draft's experts. Pure.

NVFP4 checkpoints of DeepSeek V3 and GLM-5 keep the MTP layer in bfloat16, and the engine drops the quantisation of the draft with
them; but the draft takes the target's MoE kernels over. On ROCm it takes Triton's instead, on CUDA nobody tells it to
(`_speculative_moe_runner_default`, `_deepseek_spec_moe_resolution` in `arg_groups/overrides.py`, SGLang 0.5.23).
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, warn
from spec_toolkit.facts.model import Weights
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.resolved import Family, Generation
from spec_toolkit.planning.situation import Situation

_RUNNER, _A2A = "speculative_moe_runner_backend", "speculative_moe_a2a_backend"
_INHERITED = frozenset({None, "auto", "flashinfer_trtllm"})
_FP4 = frozenset({"modelopt_fp4"})


def inherited_kernels(situation: Situation) -> Iterator[Finding]:
    """C070: illegal memory access every few hours; Triton's arm of the comparison ran a day and more without one."""
    asked = situation.arguments
    fitting = (
        asked.speculates
        and resolved.algorithm_of(situation) == "EAGLE"
        and not resolved.has_draft_of_its_own(situation)
        and resolved.family_of(situation.target) in {Family.MLA, Family.DSA}
        and resolved.generation_of(situation.site) is Generation.BLACKWELL
        and _is_fp4(situation)
    )
    if not fitting:
        return
    why = (
        "the draft's experts are bfloat16, and on these kernels they have ended in illegal memory accesses after hours"
    )
    if asked.speculative_moe_runner_backend is None and asked.moe_runner_backend in _INHERITED:
        found = "is left out, and the draft takes the target's flashinfer_trtllm over"
        yield correct(
            "draft-moe.kernels", _RUNNER, found, why, "Planned with triton; write that.", ((_RUNNER, "triton"),)
        )
    elif asked.speculative_moe_runner_backend == "flashinfer_trtllm":
        yield warn(
            "draft-moe.kernels", _RUNNER, "is flashinfer_trtllm", why, "Write triton until a long soak says otherwise."
        )
    if asked.speculative_moe_a2a_backend is None and asked.speculative_moe_runner_backend in {None, "triton"}:
        exchange = asked.moe_a2a_backend
        found = f"is left out, and the draft takes the target's {exchange or 'exchange'} over"
        why = "Triton's kernels for the draft's experts need none"
        yield correct("draft-moe.exchange", _A2A, found, why, "Planned with none; write that.", ((_A2A, "none"),))


def _is_fp4(situation: Situation) -> bool:
    stored, target = situation.target.quantization, situation.target
    algorithm = stored.algorithm if stored is not None else None
    return (
        situation.arguments.quantization in _FP4
        or target.weights is Weights.NVFP4
        or (algorithm is not None and algorithm.upper() == "NVFP4")
    )


RULES = (inherited_kernels,)
