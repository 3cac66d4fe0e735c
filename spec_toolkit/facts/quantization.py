"""How a checkpoint is quantised, as its config.json or hf_quant_config.json says. Pure.

The same thing is said in many ways: by a method alone (fp8), by a method and an algorithm (modelopt and NVFP4), by groups of modules with
a number of bits (compressed-tensors, quark). What is said in none of them is not guessed.
"""

from collections.abc import Mapping
from typing import Any

from spec_toolkit.facts.model import Quantization, Weights

_IGNORED = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers", "exclude")
_UNQUANTISED = {"bfloat16": Weights.BF16, "bf16": Weights.BF16}
_BY_WORD = {
    "fp8": Weights.FP8,
    "nvfp4": Weights.NVFP4,
    "modelopt_fp4": Weights.NVFP4,
    "mxfp4": Weights.MXFP4,
    "w4afp8": Weights.W4A8,
    "w4a16": Weights.W4A16,
    "awq": Weights.W4A16,
    "gptq": Weights.W4A16,
    "awq_marlin": Weights.W4A16,
    "gptq_marlin": Weights.W4A16,
}


def read_quantization(config: Mapping[str, Any], hf_quant: Mapping[str, Any] | None = None) -> Quantization:
    """`config`: the whole of config.json; `hf_quant`: the `quantization` of hf_quant_config.json, read where config.json says nothing."""
    said = _mapping(config.get("quantization_config")) or _mapping(config.get("compression_config"))
    method = _word(said.get("quant_method")) if said else None
    if not said and hf_quant:
        said, method = hf_quant, "modelopt"
    weights = _weights_group(said)
    bits = said.get("bits", weights.get("num_bits"))
    return Quantization(
        method=method,
        algorithm=_word(said.get("moe_quant_algo")) or _word(said.get("quant_algo")),
        bits=bits if type(bits) is int else None,
        kv_cache=_kv_cache(said),
        ignored=tuple(str(module) for key in _IGNORED for module in _sequence(said.get(key))),
    )


def weights_of(quantization: Quantization, config: Mapping[str, Any]) -> Weights | None:
    """How the bulk is stored; None: it is not said, or in a way not known here."""
    text = _mapping(config.get("text_config"))
    if quantization.method is None and quantization.algorithm is None:
        dtype = config.get("dtype") or config.get("torch_dtype") or text.get("dtype") or text.get("torch_dtype")
        return _UNQUANTISED.get(str(dtype))
    if config.get("expert_dtype") == "fp4" and quantization.algorithm is None:
        return Weights.FP4_FP8
    for word in (quantization.algorithm, quantization.method):
        known = _BY_WORD.get(word.lower()) if word else None
        if known is not None:
            return known
    return _by_groups(_mapping(config.get("quantization_config")))


def _by_groups(said: Mapping[str, Any]) -> Weights | None:
    """Of compressed-tensors and quark: bits and type of weights and activations."""
    if "nvfp4" in str(said.get("format")):
        return Weights.NVFP4
    weights, activations = _weights_group(said), _activations_group(said)
    bits, kind = weights.get("num_bits"), weights.get("type")
    if weights.get("dtype") == "fp4":
        return Weights.MXFP4
    if bits == 8 and kind == "float":
        return Weights.FP8
    if bits == 4:
        return Weights.W4A16 if not activations else Weights.W4A8 if activations.get("num_bits") == 8 else None
    return None


def _weights_group(said: Mapping[str, Any]) -> Mapping[str, Any]:
    groups = list(_mapping(said.get("config_groups")).values()) or [said.get("global_quant_config")]
    return _mapping(_mapping(groups[0]).get("weights") or _mapping(groups[0]).get("weight"))


def _activations_group(said: Mapping[str, Any]) -> Mapping[str, Any]:
    groups = list(_mapping(said.get("config_groups")).values())
    return _mapping(_mapping(groups[0]).get("input_activations")) if groups else {}


def _kv_cache(said: Mapping[str, Any]) -> str | None:
    """Source: SGLang 0.5.23, srt/layers/quantization/modelopt_quant.py: a scheme of eight-bit floats counts as FP8."""
    scheme = _mapping(said.get("kv_cache_scheme"))
    if scheme.get("num_bits") == 8 and scheme.get("type") == "float":
        return "FP8"
    return _word(said.get("kv_cache_quant_algo"))


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()
