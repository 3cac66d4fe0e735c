"""Which tiny model stands for a recipe's target and draft. Pure.

One for each network that the engine has a class or a path of its own for: whether a GLM-5 shares its indexers, and whether a Gemma 4
has experts or embeddings of each layer, is another path through the same class.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.model import DsaAttention, Model
from spec_toolkit.recipe.schema import Draft
from spec_toolkit.terms import Method

_PREFIX = "rehearsal:"
_SAME = "same"
_ASSISTANT = "_assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiny:
    """A tiny model of the production target's architecture."""

    target: str  # as a recipe names it: rehearsal:<name>
    draft: str  # 'same' or rehearsal:<name>
    architecture: str  # what it is a tiny one of, as checkpoints name it

    @property
    def name(self) -> str:
        return self.target.removeprefix(_PREFIX)


def tiny_for(model: Model, draft: Draft, there: AbstractSet[str]) -> Tiny:
    """`there`: the tiny models on this machine. FactsError where none stands for the target or for its draft."""
    name = _named(model)
    beside = _draft_of(name, draft)
    for each in (name, *(() if beside == _SAME else (beside,))):
        if each not in there:
            raise FactsError.of(
                "rehearse.model",
                f"rehearsal:{each}",
                "does not lie with this toolkit's tiny models",
                why=f"it stands for {model.architecture} in rehearsals",
                remedy="Install a version that has it, or rehearse another recipe.",
            )
    return Tiny(
        target=_PREFIX + name,
        draft=beside if beside == _SAME else _PREFIX + beside,
        architecture=model.architecture or "",
    )


def _named(model: Model) -> str:
    shape = model.shape
    match model.architecture:
        case "DeepseekV3ForCausalLM":
            return "deepseek_v3_tiny"
        case "DeepseekV32ForCausalLM":
            return "deepseek_v32_tiny"
        case "GlmMoeDsaForCausalLM" if shape is not None and isinstance(shape.attention, DsaAttention):
            shares = shape.attention.shared_in_draft or shape.attention.indexer_layers < shape.layers
            return "glm52_tiny" if shares else "glm51_tiny"
        case "Gemma4UnifiedForConditionalGeneration":
            return "gemma4_unified_tiny"
        case "Gemma4ForConditionalGeneration" if shape is not None:
            if shape.experts is not None:
                return "gemma4_moe_tiny"
            return "gemma4_e2b_tiny" if shape.per_layer_embedding else "gemma4_dense_tiny"
    raise _none_stands_for(model)


def _none_stands_for(model: Model) -> FactsError:
    if (model.architecture or "").startswith("DeepseekV4"):
        return FactsError.of(
            "rehearse.architecture",
            "target.model",
            f"{model.name} is a {model.architecture}, which cannot be rehearsed",
            why=(
                "SGLang 0.5.23 computes its attention, its compressors and its index by kernels that exist for GPUs only, "
                "and not one forward pass of it ends on a CPU"
            ),
            remedy="`check`, `plan` and `resolve` judge the recipe without running it.",
        )
    return FactsError.of(
        "rehearse.architecture",
        "target.model",
        f"{model.name} is of architecture {model.architecture or 'unknown'}",
        why="there are tiny models of DeepSeek V3 and V3.2, GLM-5.1 and 5.2, and Gemma 4",
        remedy="Rehearse a recipe of these, or name a local folder whose config.json says that it is one.",
    )


def _draft_of(name: str, draft: Draft) -> str:
    """The tiny draft's name, or 'same'."""
    match draft.method:
        case Method.FROZEN_KV_MTP:
            return name + _ASSISTANT
        case Method.MTP | Method.NONE:
            return _SAME
    raise FactsError.of(
        "rehearse.method",
        "draft.method",
        f"is {draft.method.value}",
        why="tiny drafts are trained for mtp and frozen_kv_mtp; another kind would be another code path",
        remedy="`check`, `plan` and `resolve` judge the recipe without running it.",
    )
