"""The numbers of a model that memory and speed follow from, out of its config.json. Pure.

Which attention a model has is told by its architecture, as the engine tells it: DeepSeek V3's becomes V3.2's where `index_topk` is set,
and which layers own an indexer is written in one of three ways (a list of words, a pattern of letters, a period). A configuration of
another architecture, or one that lacks a number, has no shape: None.
"""

from collections.abc import Mapping
from typing import Any

from spec_toolkit.facts.model import (
    Attention,
    CompressedAttention,
    DsaAttention,
    Experts,
    MlaAttention,
    ModelShape,
    WindowedAttention,
)

LATENT = frozenset({"DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"})
COMPRESSED = frozenset({"DeepseekV4ForCausalLM"})
ASSISTANTS = frozenset({"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"})
WINDOWED = ASSISTANTS | {
    "Gemma4ForConditionalGeneration",
    "Gemma4ForCausalLM",
    "Gemma4UnifiedForConditionalGeneration",
}
_WINDOW, _FULL = "sliding_attention", "full_attention"
_REUSES = "shared"  # of indexer_types
_GLOBAL_HEAD_DIM = 512  # where config.json does not say; transformers 5.19.0, models/gemma4/configuration_gemma4.py
_MOST_LAYERS = 10_000  # no model has them; a number of layers that a file makes up is not worked through


class _NoNumberError(Exception):
    """A field is missing, or is no whole number."""


class _Fields:
    """A configuration, read strictly."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def whole(self, *keys: str) -> int:
        """Of the first of these fields that is there."""
        value = next((self._config[key] for key in keys if self._config.get(key) is not None), None)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise _NoNumberError(keys[0])
        return value

    def maybe(self, key: str, missing: int = 0) -> int:
        return missing if self._config.get(key) is None else self.whole(key)

    def wholes(self, key: str) -> tuple[int, ...]:
        values = self._config.get(key)
        if not isinstance(values, list | tuple) or not all(type(value) is int and value >= 0 for value in values):
            raise _NoNumberError(key)
        return tuple(values)

    def words(self, key: str) -> tuple[str, ...]:
        values = self._config.get(key)
        if not isinstance(values, list | tuple | str) or not all(isinstance(value, str) for value in values):
            raise _NoNumberError(key)
        return tuple(values)

    def has(self, key: str) -> bool:
        return self._config.get(key) is not None

    def flag(self, key: str) -> bool:
        return self._config.get(key) is True


def architecture_of(config: Mapping[str, Any]) -> str | None:
    names = config.get("architectures")
    return names[0] if isinstance(names, list | tuple) and names and isinstance(names[0], str) else None


def language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its own fields, where a multimodal wrapper or an assistant keeps them in `text_config`."""
    text = config.get("text_config")
    return text if isinstance(text, Mapping) else config


def read_shape(config: Mapping[str, Any]) -> ModelShape | None:
    architecture = architecture_of(config)
    fields = _Fields(language_model(config))
    try:
        if architecture in LATENT:
            return _shape(fields, _latent(fields), _experts(fields), fields.whole("intermediate_size"))
        if architecture in COMPRESSED:
            return _shape(fields, _compressed(fields), _experts(fields), fields.maybe("intermediate_size"))
        if architecture in WINDOWED:
            return _shape(fields, _windowed(fields), _experts_beside(fields), fields.whole("intermediate_size"))
    except _NoNumberError:
        return None
    return None


def _shape(fields: _Fields, attention: Attention, experts: Experts | None, intermediate_size: int) -> ModelShape:
    shared = fields.maybe("num_kv_shared_layers")
    windowed = isinstance(attention, WindowedAttention)  # transformers ties Gemma 4's where config.json does not say
    return ModelShape(
        layers=fields.whole("num_hidden_layers"),
        hidden_size=fields.whole("hidden_size"),
        intermediate_size=intermediate_size,
        vocab_size=fields.whole("vocab_size"),
        attention=attention,
        experts=experts,
        mtp_layers=fields.maybe("num_nextn_predict_layers"),
        per_layer_embedding=fields.maybe("hidden_size_per_layer_input"),
        double_width_layers=shared if fields.flag("use_double_wide_mlp") else 0,
        tied_embeddings=fields.flag("tie_word_embeddings") if fields.has("tie_word_embeddings") else windowed,
    )


def _latent(fields: _Fields) -> MlaAttention | DsaAttention:
    mla = MlaAttention(
        kv_lora_rank=fields.whole("kv_lora_rank"),
        qk_rope_head_dim=fields.whole("qk_rope_head_dim"),
        qk_nope_head_dim=fields.whole("qk_nope_head_dim"),
        v_head_dim=fields.whole("v_head_dim"),
        q_lora_rank=fields.whole("q_lora_rank") if fields.has("q_lora_rank") else None,
        num_heads=fields.whole("num_attention_heads"),
    )
    if not fields.has("index_topk"):
        return mla
    return DsaAttention(
        mla=mla,
        index_heads=fields.whole("index_n_heads"),
        index_head_dim=fields.whole("index_head_dim"),
        index_topk=fields.whole("index_topk"),
        indexer_layers=_indexer_layers(fields),
        shared_in_draft=fields.flag("index_share_for_mtp_iteration"),
    )


def _indexer_layers(fields: _Fields) -> int:
    """Source: SGLang 0.5.23, srt/configs/model_config.py, dsa_layer_skips_topk."""
    layers = fields.whole("num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise _NoNumberError("num_hidden_layers")
    if fields.has("indexer_types"):
        return layers - fields.words("indexer_types")[:layers].count(_REUSES)
    if fields.has("index_topk_pattern"):
        return layers - fields.words("index_topk_pattern")[:layers].count("S")
    period, offset = fields.maybe("index_topk_freq", 1), fields.maybe("index_skip_topk_offset", 2)
    if period < 1 or offset < 1:
        raise _NoNumberError("index_topk_freq")
    return sum(max(layer - offset + 1, 0) % period == 0 for layer in range(layers))


def _compressed(fields: _Fields) -> CompressedAttention:
    ratios, layers = fields.wholes("compress_ratios"), fields.whole("num_hidden_layers")
    if len(ratios) < layers:
        raise _NoNumberError("compress_ratios")
    return CompressedAttention(
        num_heads=fields.whole("num_attention_heads"),
        head_dim=fields.whole("head_dim"),
        qk_rope_head_dim=fields.whole("qk_rope_head_dim"),
        q_lora_rank=fields.whole("q_lora_rank"),
        o_lora_rank=fields.whole("o_lora_rank"),
        o_groups=fields.whole("o_groups"),
        index_heads=fields.whole("index_n_heads"),
        index_head_dim=fields.whole("index_head_dim"),
        index_topk=fields.whole("index_topk"),
        window_tokens=fields.whole("sliding_window"),
        compress_ratios=ratios[:layers],
        compress_ratios_draft=ratios[layers:],
    )


def _windowed(fields: _Fields) -> WindowedAttention:
    """Heads and width of the full layers as transformers reads them; an assistant may keep its window's width to itself."""
    kinds = fields.words("layer_types")
    keys_are_values = fields.flag("attention_k_eq_v")
    heads, width = fields.whole("num_key_value_heads"), fields.whole("head_dim")
    return WindowedAttention(
        num_heads=fields.whole("num_attention_heads"),
        window_layers=kinds.count(_WINDOW),
        full_layers=kinds.count(_FULL),
        window_kv_heads=heads,
        full_kv_heads=fields.maybe("num_global_key_value_heads", heads) if keys_are_values else heads,
        window_head_dim=width,
        full_head_dim=fields.maybe("global_head_dim", _GLOBAL_HEAD_DIM),
        window_tokens=fields.maybe("sliding_window"),
        keys_are_values=keys_are_values,
        kv_shared_layers=fields.maybe("num_kv_shared_layers"),
    )


def _experts(fields: _Fields) -> Experts | None:
    if not fields.maybe("n_routed_experts"):
        return None
    return Experts(
        routed=fields.whole("n_routed_experts"),
        per_token=fields.whole("num_experts_per_tok"),
        shared=fields.maybe("n_shared_experts"),
        intermediate_size=fields.whole("moe_intermediate_size"),
        dense_layers=fields.maybe("first_k_dense_replace"),
    )


def _experts_beside(fields: _Fields) -> Experts | None:
    if not fields.maybe("num_experts"):
        return None
    return Experts(
        routed=fields.whole("num_experts"),
        per_token=fields.whole("top_k_experts", "num_experts_per_tok"),
        shared=0,
        intermediate_size=fields.whole("moe_intermediate_size"),
        dense_layers=0,
        beside_dense=True,
    )
