"""A config.json, and a hf_quant_config.json, rebuilt from the tables for a repository. Pure.

Good enough for the engine's argument resolution and for its pool configurator, not to load weights: names of modules that are not
quantised stand with a '*' for all layers, and fields that decide nothing there (initialisers, dropout) are missing. Nothing is invented.
Where a field is needed that no fact gives, it is filler, and `filler` names it:

    dtype                   what the weights are stored as, or bfloat16 where they are quantised: the engine's own dtype for them
    max_position_embeddings of a Gemma 4 assistant: its target's, whose keys and values it reads
    attention_k_eq_v        of the larger Gemma 4 assistants: without it, transformers ignores num_global_key_value_heads, which is a fact

amd/GLM-5.2-MXFP4 has no quantization_config here, because nobody was found to say what it holds. The two sgl-project/DeepSeek-V4
repositories say `model_type: deepseek_ref`, as their files did when they were read, and the engine refuses it.
"""

from collections.abc import Mapping
from typing import Any

from spec_toolkit.facts.records import CheckpointFacts, Fact, Level, ModelFacts, Tables

_LAYER = "layers.*."


def config_json(repo: str, tables: Tables) -> dict[str, Any] | None:
    """None: the tables do not know the repository."""
    model = tables.model(repo)
    if model is None:
        return None
    checkpoint = model.checkpoints[repo]
    text = {**known_values(model.config), **filler(repo, tables)}
    text |= {name: fact.v for name, fact in checkpoint.config.items() if name != "model_type"}
    absent = [name for name, fact in checkpoint.config.items() if fact.v is None]
    for name in absent:
        del text[name]
    config: dict[str, Any] = {
        "architectures": [model.architecture.v],
        "model_type": checkpoint.config.get("model_type", model.model_type).v,
    }
    if model.text_model_type is None:
        config |= text
    else:
        config |= {"text_config": {"model_type": model.text_model_type.v, **text}, **known_values(model.wrapper)}
    if checkpoint.quantization_config.v is not None:
        config["quantization_config"] = _for_each_layer(checkpoint.quantization_config.v, model)
    return config


def hf_quant_config(repo: str, tables: Tables) -> dict[str, Any] | None:
    """The file of that name; None: the repository has none, or it is not known."""
    checkpoint = tables.checkpoint(repo)
    said = checkpoint.hf_quant_config if checkpoint else None
    return {"producer": {"name": "modelopt"}, "quantization": dict(said.v)} if said else None


def filler(repo: str, tables: Tables) -> dict[str, Any]:
    """Fields of the language model that `config_json` adds, though no fact says so."""
    model = tables.model(repo)
    if model is None:
        return {}
    known = known_values(model.config)
    needed: dict[str, Any] = {}
    if "dtype" not in known and "torch_dtype" not in known:
        needed["dtype"] = "bfloat16"
    if model.drafts_for is not None and "max_position_embeddings" not in known:
        needed["max_position_embeddings"] = tables.models[model.drafts_for].count("max_position_embeddings")
    if model.drafts_for is not None and "num_global_key_value_heads" in known and "attention_k_eq_v" not in known:
        needed["attention_k_eq_v"] = True
    return needed


def known_values(facts: Mapping[str, Fact[Any]]) -> dict[str, Any]:
    return {name: fact.v for name, fact in facts.items() if fact.e is not Level.UNKNOWN}


def quantization_is_known(checkpoint: CheckpointFacts) -> bool:
    return checkpoint.quantization_config.e is not Level.UNKNOWN


def _for_each_layer(quantization: Mapping[str, Any], model: ModelFacts) -> dict[str, Any]:
    """Keys of `quantized_layers` name one layer each."""
    layers = quantization.get("quantized_layers")
    if not isinstance(layers, Mapping):
        return dict(quantization)
    count = model.count("num_hidden_layers") or 0
    written = {
        name.replace(_LAYER, f"layers.{layer}."): value for name, value in layers.items() for layer in range(count)
    }
    return {**quantization, "quantized_layers": written}
