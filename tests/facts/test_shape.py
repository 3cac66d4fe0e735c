import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.facts.config_json import config_json
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.model import CompressedAttention, DsaAttention, MlaAttention, ModelShape, WindowedAttention
from spec_toolkit.facts.shape import WINDOWED, read_shape
from spec_toolkit.shipped import rehearsal

TABLES = load_tables()
REPOSITORIES = [repo for model in TABLES.models.values() for repo in model.checkpoints]
V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "vocab_size": 129280,
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def shape_of(repo: str) -> ModelShape:
    config = config_json(repo, TABLES)
    assert config is not None
    shape = read_shape(config)
    assert shape is not None
    return shape


@pytest.mark.parametrize("repo", REPOSITORIES)
def test_every_repository_of_the_tables_has_a_shape(repo: str) -> None:
    assert shape_of(repo).layers > 0


def test_deepseek_v3_keeps_one_latent_of_576() -> None:
    shape = shape_of("deepseek-ai/DeepSeek-V3-0324")
    assert isinstance(shape.attention, MlaAttention)
    assert (shape.layers, shape.attention.kv_lora_rank + shape.attention.qk_rope_head_dim) == (61, 576)
    assert shape.experts is not None
    assert (shape.experts.routed, shape.experts.per_token, shape.experts.dense_layers) == (256, 8, 3)
    assert (shape.mtp_layers, shape.tied_embeddings) == (1, False)


@pytest.mark.parametrize(
    ("repo", "layers", "indexers", "shared"),
    [
        ("deepseek-ai/DeepSeek-V3.2", 61, 61, False),
        ("zai-org/GLM-5-FP8", 78, 78, False),
        ("zai-org/GLM-5.2-FP8", 78, 21, True),
    ],
)
def test_layers_that_own_an_indexer_are_counted(repo: str, layers: int, indexers: int, shared: bool) -> None:
    shape = shape_of(repo)
    assert isinstance(shape.attention, DsaAttention)
    assert (shape.layers, shape.attention.indexer_layers, shape.attention.shared_in_draft) == (layers, indexers, shared)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"index_topk_freq": 4, "index_skip_topk_offset": 3, "indexer_types": None}, id="period"),
        pytest.param({"index_topk_pattern": "FFF" + "SSSF" * 18 + "SSS", "indexer_types": None}, id="pattern"),
        pytest.param({}, id="words"),
    ],
)
def test_three_ways_to_say_who_owns_an_indexer_agree(how: dict[str, Any]) -> None:
    config = config_json("zai-org/GLM-5.2", TABLES)
    assert config is not None
    shape = read_shape({**config, "index_topk_freq": None, "index_skip_topk_offset": None, **how})
    assert shape is not None
    assert isinstance(shape.attention, DsaAttention)
    assert shape.attention.indexer_layers == 21


@pytest.mark.parametrize(
    ("repo", "kinds", "draft"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", (2, 21, 20), (0,)),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", (2, 21, 20), (0, 0, 0)),
        ("deepseek-ai/DeepSeek-V4-Pro", (0, 30, 31), (0,)),
        ("deepseek-ai/DeepSeek-V4-Pro-0813", (0, 30, 31), (0, 0, 0)),
    ],
)
def test_deepseek_v4_layers_are_told_apart_by_what_they_compress(repo: str, kinds: Any, draft: Any) -> None:
    attention = shape_of(repo).attention
    assert isinstance(attention, CompressedAttention)
    assert tuple(attention.compress_ratios.count(ratio) for ratio in (0, 4, 128)) == kinds
    assert attention.compress_ratios_draft == draft


@pytest.mark.parametrize(
    ("repo", "window", "full", "window_heads", "full_heads"),
    [
        ("google/gemma-4-E2B-it", 28, 7, 1, 1),
        ("google/gemma-4-E4B-it", 35, 7, 2, 2),
        ("google/gemma-4-12B-it", 40, 8, 8, 1),
        ("google/gemma-4-31B-it", 50, 10, 16, 4),
        ("google/gemma-4-26B-A4B-it", 25, 5, 8, 2),
        ("google/gemma-4-26B-A4B-it-assistant", 3, 1, 8, 2),
    ],
)
def test_gemma_layers_see_a_window_or_everything(
    repo: str, window: int, full: int, window_heads: int, full_heads: int
) -> None:
    attention = shape_of(repo).attention
    assert isinstance(attention, WindowedAttention)
    assert (attention.window_layers, attention.full_layers) == (window, full)
    assert (attention.window_kv_heads, attention.full_kv_heads) == (window_heads, full_heads)
    assert (attention.window_head_dim, attention.full_head_dim) == (256, 512)


def test_what_only_some_gemmas_have() -> None:
    e2b, moe = shape_of("google/gemma-4-E2B-it"), shape_of("google/gemma-4-26B-A4B-it")
    assert (e2b.per_layer_embedding, e2b.double_width_layers, e2b.experts) == (256, 20, None)
    assert moe.experts is not None
    assert (moe.experts.routed, moe.experts.beside_dense, moe.per_layer_embedding) == (128, True, 0)
    assert moe.tied_embeddings


def test_global_heads_count_only_where_keys_are_values() -> None:
    config = config_json("google/gemma-4-31B-it", TABLES)
    assert config is not None
    other = read_shape({**config, "text_config": {**config["text_config"], "attention_k_eq_v": False}})
    assert other is not None
    assert isinstance(other.attention, WindowedAttention)
    assert other.attention.full_kv_heads == 16


@pytest.mark.parametrize("name", ["deepseek_v3_tiny"])
def test_a_rehearsals_model_has_a_shape(name: str) -> None:
    config = json.loads((rehearsal() / "models" / name / "config.json").read_text())
    assert read_shape(config) is not None


@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param({"architectures": ["LlamaForCausalLM"]}, id="another-architecture"),
        pytest.param({"architectures": []}, id="no-architecture"),
        pytest.param({"architectures": "DeepseekV3ForCausalLM"}, id="a-word-for-a-list"),
        pytest.param({"kv_lora_rank": None}, id="no-rank"),
        pytest.param({"num_hidden_layers": True}, id="true-is-no-number"),
        pytest.param({"num_hidden_layers": 61.0}, id="a-fraction"),
        pytest.param({"num_hidden_layers": -1}, id="below-zero"),
        pytest.param({"index_topk": 2048, "index_n_heads": 64}, id="half-an-indexer"),
        pytest.param({"n_routed_experts": 8}, id="half-of-the-experts"),
        pytest.param(
            {"index_topk": 1, "index_n_heads": 1, "index_head_dim": 1, "num_hidden_layers": 10**12}, id="no-end"
        ),
    ],
)
def test_what_lacks_a_number_has_no_shape(spoiled: dict[str, Any]) -> None:
    assert read_shape(V3) is not None
    assert read_shape(V3 | spoiled) is None


FIELDS = sorted(
    {*V3, "compress_ratios", "layer_types", "indexer_types", "index_topk", "index_topk_pattern", "text_config"}
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON),
    st.sampled_from(["deepseek-v3-0324", "deepseek-v4-flash", "gemma-4-31b"]),
)
def test_no_configuration_is_too_strange(strange: dict[str, Any], model: str) -> None:
    known = config_json(TABLES.models[model].repo.v, TABLES)
    assert known is not None
    for config in (strange, {**known, **strange, "architectures": known["architectures"]}):
        shape = read_shape(config)
        assert shape is None or shape.layers >= 0


def test_every_gemma_architecture_of_the_tables_is_read_as_one() -> None:
    gemmas = {model.architecture.v for id_, model in TABLES.models.items() if id_.startswith("gemma")}
    assert gemmas <= WINDOWED
