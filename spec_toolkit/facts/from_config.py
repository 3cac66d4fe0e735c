"""A Model out of a config.json, or out of a fragment of one, and of what is known of its tensors. Pure."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from spec_toolkit.facts.model import Model, Origin, Tensor, VisionTower, Weights
from spec_toolkit.facts.quantization import read_quantization, weights_of
from spec_toolkit.facts.shape import COMPRESSED, LATENT, architecture_of, language_model, read_shape

_QUANTIZATION_KEYS = ("quantization_config", "compression_config")
# What the engine takes where vision_config does not say: it reads every Gemma 4 as transformers' Gemma4Config, whose tower has these.
# Source: SGLang 0.5.23, srt/utils/hf_transformers/common.py (gemma4_unified is an alias of it); seen by running its resolver.
_TOWER_LAYERS, _TOWER_WIDTH = 16, 768
# Where the engine looks for a model's positions, in its order, and the ropes that it multiplies them for; of the others (yarn, llama3)
# they are counted in. Source: SGLang 0.5.23, srt/utils/hf_transformers/common.py (get_context_length); seen by running its resolver.
_POSITIONS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
_MULTIPLYING_ROPES = frozenset({"linear", "dynamic"})
_BY_DTYPE = {"BF16": Weights.BF16, "F8_E4M3": Weights.FP8}


def model_from_config(  # noqa: PLR0913 - one argument for each part of a repository
    config: Mapping[str, Any],
    *,
    name: str,
    origin: Origin,
    says: str,
    commit: str | None = None,
    hf_quant: Mapping[str, Any] | None = None,
    whole: bool = True,
    tensors: Mapping[str, Tensor] | None = None,
    unindexed_files: tuple[str, ...] = (),
    tokenizer: str | None = None,
) -> Model:
    """`hf_quant`: the `quantization` of hf_quant_config.json. `whole`: what a whole config.json does not say is not so; what a
    fragment does not say is not known.
    """
    text = language_model(config)
    architecture, shape = architecture_of(config), read_shape(config)
    said = whole or hf_quant is not None or any(key in config for key in _QUANTIZATION_KEYS)
    quantization = read_quantization(config, hf_quant) if said else None
    weights = weights_of(quantization, config) if quantization else None
    inside = _tensors_of_draft(architecture, _count(text, "num_hidden_layers"), tensors)
    return Model(
        name=name,
        origin=origin,
        says=says,
        commit=commit,
        architecture=architecture,
        model_type=config["model_type"] if isinstance(config.get("model_type"), str) else None,
        shape=shape,
        weights=weights,
        weight_bytes=_total_bytes(tensors),
        draft_weight_bytes=_total_bytes(inside),
        draft_weights=_stored_as(inside, weights),
        quantization=quantization,
        hidden_size=_count(text, "hidden_size"),
        backbone_hidden_size=_count(config, "backbone_hidden_size"),
        vocab_size=_count(text, "vocab_size"),
        max_position_embeddings=_positions(text),
        num_hidden_layers=_count(text, "num_hidden_layers"),
        num_nextn_predict_layers=_count(text, "num_nextn_predict_layers"),
        dspark_block_size=_count(config, "dspark_block_size"),
        vision=_vision(config),
        tokenizer=tokenizer,
        tensors=tensors,
        unindexed_files=unindexed_files,
    )


def draft_prefix(architecture: str | None, layers: int | None) -> str | None:
    """How the names of the tensors begin that belong to a draft inside a target's checkpoint; None: it has none, or nobody knows."""
    if architecture in COMPRESSED:
        return "mtp."
    return f"model.layers.{layers}." if architecture in LATENT and layers is not None else None


def _positions(text: Mapping[str, Any]) -> int | None:
    written = next((count for key in _POSITIONS if (count := _count(text, key)) is not None), None)
    rope = text.get("rope_scaling")
    if written is None or not isinstance(rope, Mapping) or "original_max_position_embeddings" in rope:
        return written
    kind, factor = str(rope.get("rope_type", rope.get("type"))), rope.get("factor")
    if kind not in _MULTIPLYING_ROPES or not isinstance(factor, int | float) or not isfinite(factor) or factor <= 0:
        return written
    return int(written * factor)


def _vision(config: Mapping[str, Any]) -> VisionTower | None:
    tower = config.get("vision_config")
    if not isinstance(tower, Mapping):
        return None
    layers, width = _count(tower, "num_hidden_layers"), _count(tower, "hidden_size")
    return VisionTower(
        layers=_TOWER_LAYERS if layers is None else layers, hidden_size=_TOWER_WIDTH if width is None else width
    )


def _tensors_of_draft(
    architecture: str | None, layers: int | None, tensors: Mapping[str, Tensor] | None
) -> Mapping[str, Tensor] | None:
    prefix = draft_prefix(architecture, layers)
    if tensors is None or prefix is None:
        return None
    return {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _total_bytes(tensors: Mapping[str, Tensor] | None) -> int | None:
    """None where not every size is known: a sum of some of them would be less than the whole."""
    if not tensors:
        return None
    sizes = [tensor.bytes for tensor in tensors.values()]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _stored_as(tensors: Mapping[str, Tensor] | None, weights: Weights | None) -> Weights | None:
    """By the type that most of the bytes have; packed four-bit numbers do not say of which kind they are, so they are the target's."""
    by_dtype: dict[str, int] = {}
    for tensor in (tensors or {}).values():
        if tensor.dtype is not None and tensor.bytes is not None:
            by_dtype[tensor.dtype] = by_dtype.get(tensor.dtype, 0) + tensor.bytes
    if not by_dtype:
        return None
    most = max(by_dtype, key=lambda dtype: by_dtype[dtype])
    packed = weights if weights in {Weights.NVFP4, Weights.MXFP4, Weights.FP4_FP8} else None
    return packed if most in {"U8", "I8"} else _BY_DTYPE.get(most)


def _count(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if type(value) is int and value >= 0 else None
