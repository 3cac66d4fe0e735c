"""Rules about number formats that a launch asks for: of the KV cache, and of weights the checkpoint has settled already. Pure.

Read in SGLang 0.5.23: `_dsa_kv_cache_dtype_default`, `_deepseek_v4_kv_cache_dtype`, `_mla_kv_cache_dtype_checks` of
`arg_groups/overrides.py`, and `arg_groups/kv_cache_hook.py`.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, refuse, warn
from spec_toolkit.facts.model import Model
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.resolved import Family, Generation
from spec_toolkit.planning.situation import Situation
from spec_toolkit.recipe.schema import Target

REFUSED_BY_ENGINE = frozenset(
    {
        *("precision.kv-sparse", "precision.kv-v4", "precision.kv-trtllm"),
        *("precision.kv-gpu", "precision.kv-nvfp4", "precision.kv-fp4"),
    }
)

_KV = "kv_cache_dtype"
_OPEN = frozenset({None, "auto"})
_OLDER = frozenset({Generation.AMPERE, Generation.HOPPER})
_NVFP4_PREFILL = frozenset({"flashinfer", "trtllm_mha"})
_NVFP4_DRAFTS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "NGRAM"})
_OTHER = "Write fp8_e4m3, or leave it out."


def kv_cache(situation: Situation) -> Iterator[Finding]:
    """C084's half about KV, and which formats the sparse families have kernels for."""
    asked, family = situation.arguments.kv_cache_dtype, resolved.family_of(situation.target)
    if asked in _OPEN:
        return
    found = f"is {asked}"
    if family is Family.DSA and asked not in {"bf16", "bfloat16", "fp8_e4m3"}:
        why = "sparse attention keeps its cache in bfloat16 or fp8_e4m3"
        yield refuse("precision.kv-sparse", _KV, found, why, "Write one of them, or leave it out.")
    elif family is Family.V4 and asked == "bf16":
        why = "for DeepSeek V4 the engine takes the long spelling alone"
        yield correct("precision.kv-v4", _KV, found, why, "Planned with bfloat16; write that.", ((_KV, "bfloat16"),))
    elif family is Family.V4 and asked not in {"bfloat16", "fp8_e4m3"}:
        why = "DeepSeek V4 keeps its cache in fp8_e4m3 or bfloat16"
        yield refuse("precision.kv-v4", _KV, found, why, "Write one of them, or leave it out.")
    elif "trtllm_mla" in _backends(situation) and asked == "bfloat16":
        why = "for these MLA kernels the engine takes the short spelling alone"
        yield correct("precision.kv-trtllm", _KV, found, why, "Planned with bf16; write that.", ((_KV, "bf16"),))
    elif {"trtllm_mla", "cutedsl_mla"} & _backends(situation) and asked not in {"bf16", "bfloat16", "fp8_e4m3"}:
        why = "the MLA kernels for Blackwell read bf16 or fp8_e4m3"
        yield refuse("precision.kv-trtllm", _KV, found, why, "Write one of them, or leave it out.")
    elif asked == "fp8_e5m2":
        why = "its two bits of mantissa cost accuracy, and few kernels read it; beside an FP8 DeepSeek V3 it ended an engine of 0.4.2"
        yield warn("precision.kv-e5m2", _KV, found, why, "Write fp8_e4m3 where an FP8 cache is wanted.")


def blackwells_formats(situation: Situation) -> Iterator[Finding]:
    asked, generation = situation.arguments.kv_cache_dtype, resolved.generation_of(situation.site)
    if asked not in {"mxfp8", "nvfp4"} or resolved.family_of(situation.target) in {Family.DSA, Family.V4}:
        return
    if generation in _OLDER:
        found = f"is {asked}, on {situation.site.gpu} ({generation.value})"
        yield refuse("precision.kv-gpu", _KV, found, "its kernels need a Blackwell GPU", _OTHER)
    elif asked == "nvfp4":
        yield from _nvfp4(situation, generation)


def _nvfp4(situation: Situation, generation: Generation | None) -> Iterator[Finding]:
    asked, family, chosen = situation.arguments, resolved.family_of(situation.target), resolved.backends_of(situation)
    by_model = chosen.base if family is Family.GEMMA4 or generation is Generation.BLACKWELL else None
    prefill = asked.prefill_attention_backend or asked.attention_backend or by_model
    fit = {"flashinfer"} if family is Family.MLA else _NVFP4_PREFILL
    if prefill is not None and prefill not in fit:
        found = f"is nvfp4, with attention backend {prefill}"
        why = f"prompts are worked off over it by {' or '.join(sorted(fit))} alone"
        yield refuse("precision.kv-nvfp4", _KV, found, why, _OTHER)
    elif asked.decode_attention_backend not in {None, "trtllm_mha"}:
        found = f"is nvfp4, decoded by {asked.decode_attention_backend}"
        yield refuse("precision.kv-nvfp4", _KV, found, "trtllm_mha alone decodes over it", _OTHER)
    elif generation is Generation.BLACKWELL and asked.speculates:
        algorithm = (asked.speculative_algorithm or "").upper()  # as written: an assistant under NEXTN is taken
        broad = algorithm == "NGRAM" and asked.speculative_ngram_max_bfs_breadth != 1
        if broad or algorithm not in _NVFP4_DRAFTS:
            why = "drafts are verified over it as a chain, by EAGLE, EAGLE3, and NGRAM with speculative_ngram_max_bfs_breadth 1"
            yield refuse("precision.kv-nvfp4", _KV, f"is nvfp4, with {algorithm}", why, _OTHER)


def fp4_blocks(situation: Situation) -> Iterator[Finding]:
    """FP4 in blocks of 16, on any GPU."""
    family, backends = resolved.family_of(situation.target), resolved.backends_of(situation)
    if situation.arguments.kv_cache_dtype != "fp4_mx_block16" or family not in {Family.MLA, Family.GEMMA4}:
        return
    fa4 = backends.prefill == "fa4"
    reads = backends.decode if fa4 else backends.base
    if reads is None or (backends.decode != backends.prefill and not fa4) or "trtllm_mla" in _backends(situation):
        return  # two backends are taken with a warning; the last is refused above
    fit = {"flashinfer"} if family is Family.MLA else {"triton"} if fa4 else {"triton", "trtllm_mha"}
    if reads not in fit:
        found, why = f"is fp4_mx_block16, with attention backend {reads}", f"here {' or '.join(sorted(fit))} reads it"
        yield refuse("precision.kv-fp4", _KV, found, why, _OTHER)


def redundant(situation: Situation) -> Iterator[Finding]:
    """C084: what the checkpoint says already."""
    asked, stored = situation.arguments.quantization, situation.target.quantization
    if asked is not None and stored is not None and stored.method == asked == "fp8":
        why = "the checkpoint is stored so and says it itself"
        yield warn("precision.redundant", "quantization", f"is {asked}", why, "Leave it out.")


def stored(target: Target, model: Model) -> Iterator[Finding]:
    """A recipe's word for its checkpoint: the engine never hears it and serves what the checkpoint holds."""
    word, weights = target.quantization, model.weights
    if word is None or weights is None or word == weights.value:
        return
    found, why = f"is {word}", f"{target.model} is stored in {weights.value}, and the engine serves it as it is stored"
    remedy = f"Write {weights.value}, or the model that is stored in {word}."
    yield warn("precision.not-as-stored", "target.quantization", found, why, remedy)


def _backends(situation: Situation) -> frozenset[str | None]:
    backends = resolved.backends_of(situation)
    return frozenset({backends.base, backends.decode})


RULES = (kv_cache, blackwells_formats, fp4_blocks, redundant)
