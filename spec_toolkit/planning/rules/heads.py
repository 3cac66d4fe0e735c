"""Rules about the draft head that ships in a target's checkpoint: there, whole, indexed, and stored as the engine builds it. Pure.

DeepSeek and GLM keep one more layer after the last of the target's (`model.layers.61.`), DeepSeek V4 calls it `mtp.0.`. Quantised copies
often leave it out, or quantise it where the engine does not expect that; nothing at start-up says so, the drafts are just worthless.
Read in the engine: models/deepseek_common/deepseek_weight_loader.py, models/*_nextn.py, model_loader/weight_utils.py.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, refuse, warn
from spec_toolkit.facts.model import Model, Weights
from spec_toolkit.planning.rules.pairing import NEEDS_ASSISTANT, asked_algorithm
from spec_toolkit.planning.rules.resolved import has_draft_of_its_own
from spec_toolkit.planning.situation import Situation

_V4 = "DeepseekV4ForCausalLM"
# What is the head's alone. Its embedding and output matrix are the target's, and may be absent from the layer.
_ITS_OWN = ("eh_proj", "enorm", "hnorm", "shared_head.norm")
_ITS_OWN_V4 = ("e_proj", "h_proj")
# The loader adds a file by this name for these, though the index does not know it.
_STRAY_FILE = "mtp.safetensors"
_ADDS_STRAY_FILE = frozenset({"Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM"})
# Their draft class forgets the quantisation of a ModelOpt FP4 checkpoint and builds its layer in BF16.
_BUILDS_BF16 = frozenset(
    {
        *("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM", "Glm4MoeForCausalLM"),
        *("Glm4MoeLiteForCausalLM", "Glm5NextForConditionalGeneration"),
    }
)
_QUANTISED_TYPES = frozenset({"U8", "I8", "I32", "F8_E4M3", "F8_E5M2"})
_FP4 = "modelopt_fp4"
# Their loader wants the number of layers said; for the others the engine fills it in.
_COUNTS = _BUILDS_BF16 - {"Glm5NextForConditionalGeneration"}
_REMEDY = "Choose a checkpoint that has it, another method, or run autoregressive."


def mtp_layer(situation: Situation) -> Iterator[Finding]:
    """Absent, or present in a file that is never read."""
    target = situation.target
    if not _drafts_with_its_own_head(situation):
        return
    if target.num_nextn_predict_layers == 0:
        found = "ships no MTP layer (its num_nextn_predict_layers is 0)"
    elif target.architecture in _COUNTS and target.tensors is not None and target.num_nextn_predict_layers is None:
        found = "does not say that it ships an MTP layer (its num_nextn_predict_layers is not set)"
    elif target.tensors is None or _prefixes(target) is None or head_tensors(target):
        return
    elif _STRAY_FILE in target.unindexed_files:
        found = f"holds {_STRAY_FILE}, which its index does not name"
        if target.architecture in _ADDS_STRAY_FILE:
            why = "the engine adds it for this architecture alone, and other tools will not"
            yield warn("features.mtp-unindexed", "model_path", found, why, "Have the index name it.")
            return
    else:
        promised = (
            f"promises {target.num_nextn_predict_layers} MTP layer, and " if target.num_nextn_predict_layers else ""
        )
        found = f"{promised}its weight files hold no '{(_prefixes(target) or ('',))[0]}' tensor"
    yield refuse("features.mtp-layer", "model_path", found, "speculation drafts with that layer", _REMEDY)


def mtp_whole(situation: Situation) -> Iterator[Finding]:
    names = head_tensors(situation.target)
    if not _drafts_with_its_own_head(situation) or not names:
        return
    parts = _ITS_OWN_V4 if situation.target.architecture == _V4 else _ITS_OWN
    missing = [part for part in parts if not any(f".{part}." in name for name in names)]
    if missing:
        found = f"has an MTP layer without {', '.join(missing)}"
        why = "the engine leaves what it does not find as it was made: random"
        yield refuse("features.mtp-incomplete", "model_path", found, why, _REMEDY)


def mtp_quantised(situation: Situation) -> Iterator[Finding]:
    target = situation.target
    if not _drafts_with_its_own_head(situation) or target.architecture not in _BUILDS_BF16 or not _runs_fp4(situation):
        return
    stored = _quantised_weight(target)
    if stored is None and target.draft_weights is Weights.NVFP4:
        stored = "its MTP layer as NVFP4"
    if stored is not None:
        yield refuse(
            "features.mtp-quantised",
            "model_path",
            f"stores {stored}",
            "of a ModelOpt FP4 checkpoint the engine builds that layer in BF16, whatever the files hold",
            "Choose a checkpoint whose MTP layer is BF16, or run autoregressive.",
        )


def head_tensors(target: Model) -> tuple[str, ...]:
    """Names of the head's tensors in the index; empty where there are none or the index is not known."""
    prefixes = _prefixes(target)
    if target.tensors is None or prefixes is None:
        return ()
    return tuple(name for name in target.tensors if name.startswith(prefixes))


def _prefixes(target: Model) -> tuple[str, ...] | None:
    if target.architecture == _V4:
        return ("mtp.0.",)
    if target.num_hidden_layers is None:
        return None
    layer = f"layers.{target.num_hidden_layers}."
    return (f"model.{layer}", f"model.language_model.{layer}")


def _drafts_with_its_own_head(situation: Situation) -> bool:
    inside = not has_draft_of_its_own(situation)
    return (
        inside
        and asked_algorithm(situation) in {"EAGLE", "NEXTN"}
        and situation.target.architecture not in NEEDS_ASSISTANT
    )


def _runs_fp4(situation: Situation) -> bool:
    stored = situation.target.quantization
    named = {situation.arguments.quantization, situation.arguments.speculative_draft_model_quantization}
    from_config = (
        stored is not None
        and (stored.method or "").startswith("modelopt")
        and "FP4" in (stored.algorithm or "").upper()
    )
    return _FP4 in named or from_config or (stored is not None and stored.method == _FP4)


def _quantised_weight(target: Model) -> str | None:
    for name in head_tensors(target):
        tensor = (target.tensors or {})[name]
        if name.endswith((".weight", ".weight_packed")) and tensor.dtype in _QUANTISED_TYPES:
            shape = f" {list(tensor.shape)}" if tensor.shape else ""
            return f"{name} as {tensor.dtype}{shape}"
    return None


RULES = (mtp_layer, mtp_whole, mtp_quantised)
