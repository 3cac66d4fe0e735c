"""What SGLang 0.5.23 makes of what a launch leaves open, as far as several rules look at it. Pure; None: it cannot be told.

The order is the engine's own: a model's defaults first (a model may override what was asked), then the attention backend and the page
size that goes with it, then the draft. Read in its `arg_groups` (`model_overrides/`, `overrides.py`, `speculative_hook.py`).
"""

from dataclasses import dataclass
from enum import Enum

from spec_toolkit.facts.model import (
    CompressedAttention,
    DsaAttention,
    MlaAttention,
    Model,
    WindowedAttention,
)
from spec_toolkit.planning.rules.pairing import ASSISTANTS
from spec_toolkit.planning.situation import Site, Situation

EAGLE_FAMILY = frozenset({"EAGLE", "EAGLE3", "STANDALONE"})
CHAIN_OR_TREE = EAGLE_FAMILY | {"FROZEN_KV_MTP"}  # algorithms that draft step by step
_ADAPTIVE = frozenset({"EAGLE", "EAGLE3"})
DEFAULT_STEPS = 3  # of the families here, where a launch says neither steps nor branches
_FP8 = "fp8_e4m3"


class Family(Enum):
    """Kinds of attention that decide which backends a model can run on."""

    MLA = "DeepSeek V3"
    DSA = "DeepSeek V3.2 and GLM-5"
    V4 = "DeepSeek V4"
    GEMMA4 = "Gemma 4"


_FAMILY_OF = {
    "DeepseekV3ForCausalLM": Family.MLA,
    "DeepseekV32ForCausalLM": Family.DSA,
    "GlmMoeDsaForCausalLM": Family.DSA,
    "DeepseekV4ForCausalLM": Family.V4,
    "Gemma4ForCausalLM": Family.GEMMA4,
    "Gemma4ForConditionalGeneration": Family.GEMMA4,
    "Gemma4UnifiedForConditionalGeneration": Family.GEMMA4,
}
_FAMILY_BY_ATTENTION = {
    MlaAttention: Family.MLA,
    DsaAttention: Family.DSA,
    CompressedAttention: Family.V4,
    WindowedAttention: Family.GEMMA4,
}


class Generation(Enum):
    """Of NVIDIA's GPUs, as far as kernels differ."""

    AMPERE = "Ampere"  # SM 8.x, Ada included
    HOPPER = "Hopper"  # SM 9.0
    BLACKWELL = "Blackwell"  # SM 10.x: B200, B300 and their superchips
    BLACKWELL_WORKSTATION = "workstation Blackwell"  # SM 12.x


_GENERATION_OF = {
    8: Generation.AMPERE,
    9: Generation.HOPPER,
    10: Generation.BLACKWELL,
    12: Generation.BLACKWELL_WORKSTATION,
}  # by the compute capability's first number


@dataclass(frozen=True, slots=True)
class Backends:
    prefill: str | None
    decode: str | None
    base: str | None  # what a phase without a word of its own takes
    asked: bool  # by the launch; the engine chose otherwise


def generation_of(site: Site) -> Generation | None:
    capability = site.facts.compute_capability.v if site.facts is not None else None
    return _GENERATION_OF.get(capability[0]) if capability is not None else None


def family_of(model: Model) -> Family | None:
    if model.shape is not None:
        return _FAMILY_BY_ATTENTION[type(model.shape.attention)]
    return _FAMILY_OF.get(model.architecture) if model.architecture is not None else None


def has_draft_of_its_own(situation: Situation) -> bool:
    """Rather than the head in the target's checkpoint, which may be named by the target's own path."""
    asked = situation.arguments
    return asked.speculative_draft_model_path not in {None, asked.model_path} or situation.draft is not None


def drafts_with_assistant(situation: Situation) -> bool:
    """Whether the draft model is one of Gemma 4's. Where nobody read it, its name says so for a Gemma target."""
    if situation.draft is not None and situation.draft.architecture is not None:
        return situation.draft.architecture in ASSISTANTS
    path = situation.arguments.speculative_draft_model_path or ""
    return family_of(situation.target) is Family.GEMMA4 and "assistant" in path.lower()


def algorithm_of(situation: Situation) -> str | None:
    """After upper-casing and aliases: NEXTN is EAGLE, and either is FROZEN_KV_MTP with an assistant."""
    asked = situation.arguments.speculative_algorithm
    if asked is None:
        return None
    name = asked.upper()
    if name in {"NEXTN", "EAGLE"}:
        return "FROZEN_KV_MTP" if drafts_with_assistant(situation) else "EAGLE"
    return name


def why_not_adaptive(situation: Situation) -> tuple[str, str] | None:
    """Argument and reason for which the engine drops adaptive speculation with a line in its log; None: it keeps it."""
    asked, algorithm = situation.arguments, algorithm_of(situation)
    reasons = (
        (algorithm not in _ADAPTIVE, "speculative_algorithm", f"{algorithm} cannot change its steps"),
        (
            asked.speculative_eagle_topk not in {None, 1},
            "speculative_eagle_topk",
            f"only a chain can, and topk is {asked.speculative_eagle_topk}",
        ),
        (
            asked.attention_dp > 1 and not situation.loads_knob,
            "attn_dp_size",
            f"the {asked.attention_dp} ranks of attention data parallelism would choose apart",
        ),
        (bool(asked.enable_multi_layer_eagle), "enable_multi_layer_eagle", "its worker has one depth"),
        (bool(asked.enable_two_batch_overlap), "enable_two_batch_overlap", "a change of steps would drop its backend"),
        (bool(asked.enable_pdmux), "enable_pdmux", "a change of steps does not reach its backends"),
    )
    return next(((argument, reason) for holds, argument, reason in reasons if holds), None)


def is_adaptive(situation: Situation) -> bool:
    return bool(situation.arguments.speculative_adaptive) and why_not_adaptive(situation) is None


def branches_of(situation: Situation) -> int:
    """Branches after the engine's defaults; 1 where it would not get so far."""
    if algorithm_of(situation) not in CHAIN_OR_TREE:
        return 1
    return situation.arguments.speculative_eagle_topk or 1


def backends_of(situation: Situation) -> Backends:
    asked, family = situation.arguments, family_of(situation.target)
    prefill, decode, base = asked.prefill_attention_backend, asked.decode_attention_backend, asked.attention_backend
    anything = any(name is not None for name in (prefill, decode, base))
    if prefill is not None and prefill == decode:
        base = prefill
    if family is Family.V4:
        base = "dsv4"  # whatever was asked
    elif base is None:
        base = _default_backend(situation, alone=not anything)
    if base == "fa3" and asked.kv_cache_dtype == "fp8_e5m2":
        base = "triton"
    if prefill is None and "cutedsl_mla" in {base, decode}:
        prefill = "trtllm_mla"  # it decodes alone
    return Backends(prefill or base, decode or base, base, asked=anything)


def _default_backend(situation: Situation, *, alone: bool) -> str | None:
    family, generation = family_of(situation.target), generation_of(situation.site)
    if family is Family.DSA and alone:
        return "dsa"
    if family is None or generation is None:
        return None
    if family is Family.GEMMA4:
        return "trtllm_mha" if generation is Generation.BLACKWELL else "triton"
    if generation is Generation.HOPPER:
        return "fa3"
    if generation is Generation.BLACKWELL:
        return "trtllm_mla" if family is Family.MLA and alone else "flashinfer"
    return "triton"


_PAGES_OF = {  # tokens: what a backend takes, the first where another was asked
    "flashmla": (64,),
    "trtllm_mla": (64, 32),
    "cutedsl_mla": (64, 32),
    "trtllm_mha": (64, 16, 32, 128),
    "hpc_ops": (64,),
}
_BASE_OR_DECODE = frozenset({"flashmla", "trtllm_mla"})  # the engine does not look at their use in prefill alone


def page_tokens(situation: Situation) -> int | None:
    """Tokens of a KV page."""
    family, backends = family_of(situation.target), backends_of(situation)
    if family is Family.V4:
        return 256
    if family is Family.DSA:
        return 64
    if backends.base is None and not backends.asked:
        return situation.arguments.page_size
    page = situation.arguments.page_size or 1
    for name, pages in _PAGES_OF.items():
        used = {backends.base, backends.decode} | (set() if name in _BASE_OR_DECODE else {backends.prefill})
        if name in used and page not in pages:
            page = pages[0]
    fa4 = "fa4" in {backends.base, backends.prefill, backends.decode}
    if fa4 and family is not Family.MLA and generation_of(situation.site) is Generation.BLACKWELL:
        return 128 if (situation.arguments.speculative_eagle_topk or 0) <= 1 else page
    return page


def kv_word(situation: Situation) -> str | None:
    """How KV is stored, in the word that two engines compare: "auto" is the model's own dtype. None: not known.

    Written first; then the family's default; then what the checkpoint says of its own (`mem_cache/kv_cache_dtype.py`).
    """
    asked, family = situation.arguments.kv_cache_dtype, family_of(situation.target)
    if asked not in {None, "auto"}:
        return "bfloat16" if asked == "bf16" and family is Family.DSA else asked
    if family is Family.V4:
        return _FP8
    if family is Family.DSA:
        generation = generation_of(situation.site)
        newer = {Generation.BLACKWELL, Generation.BLACKWELL_WORKSTATION}
        return None if generation is None else _FP8 if generation in newer else "bfloat16"
    stored = situation.target.quantization
    if stored is None:
        return None
    return _FP8 if stored.kv_cache is not None and stored.kv_cache.upper() == "FP8" else "auto"


def kv_is_fp8(situation: Situation) -> bool | None:
    """None: not known."""
    word = kv_word(situation)
    return None if word is None else word.startswith("fp8")
