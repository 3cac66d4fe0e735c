"""The layout of the sparse models: names and shapes at the real size against the published counts, and what is written and read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_models.deepseek_v3.checkpoint import WEIGHTS, checkpoint_tensors
from tiny_models.sparse_mla.checkpoint import read_checkpoint, read_config, tensor_shapes, write_checkpoint
from tiny_models.sparse_mla.config import DEEPSEEK_V32, GLM_51, GLM_52, config_json
from tiny_models.sparse_mla.network import Network

CONFIGS = [
    pytest.param(config, id=name) for name, config in {"v32": DEEPSEEK_V32, "glm51": GLM_51, "glm52": GLM_52}.items()
]
GLM_SIZES = {
    "vocab_size": 154880,
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 78,
    "first_k_dense_replace": 3,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 2048,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "index_n_heads": 32,
}  # fmt: skip - the published config.json
DEEPSEEK_SIZES = {
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "index_n_heads": 64,
}  # fmt: skip - the published config.json


@pytest.mark.parametrize(
    ("config", "sizes", "main", "draft"),
    [
        pytest.param(DEEPSEEK_V32, DEEPSEEK_SIZES, 671_877_944_064, 11_624_027_648, id="v32"),
        pytest.param(GLM_51, GLM_SIZES, 743_911_218_432, 9_952_920_576, id="glm51"),
        pytest.param(
            replace(GLM_52, index_topk_freq=4, index_skip_topk_offset=3), GLM_SIZES, 743_377_019_904, 9_952_920_576, id="glm52"
        ),
    ],
)  # fmt: skip
def test_at_the_real_size_the_layout_has_the_published_parameters(config, sizes, main, draft):
    """The counts of facts/tables/models.yaml: the main model, and what the MTP layer adds beside its copies of embedding and head."""
    shapes = tensor_shapes(replace(config, **sizes))
    size = sum(torch.Size(shape).numel() for shape in shapes.values())
    prefix = f"model.layers.{sizes['num_hidden_layers']}."
    of_mtp = sum(torch.Size(shape).numel() for name, shape in shapes.items() if name.startswith(prefix))
    assert size - of_mtp == main
    assert of_mtp - 2 * sizes["vocab_size"] * sizes["hidden_size"] == draft


@pytest.mark.parametrize("config", CONFIGS)
def test_the_network_has_exactly_the_checkpoints_tensors(config):
    network = Network(config)
    assert {name: tuple(t.shape) for name, t in checkpoint_tensors(network).items()} == tensor_shapes(config)


def test_only_owners_and_the_mtp_layer_have_an_indexer():
    owners = {name.split(".")[2] for name in tensor_shapes(GLM_52) if "indexer" in name}
    assert owners == {"0", "1", "3", "5"}
    assert config_json(GLM_52)["indexer_types"] == ["full", "full", "shared", "full", "shared"]
    assert {name.split(".")[2] for name in tensor_shapes(GLM_51) if "indexer" in name} == {"0", "1", "2", "3", "4"}


def test_the_real_pattern_of_glm_52_is_the_published_one():
    real = replace(GLM_52, num_hidden_layers=78, index_topk_freq=4, index_skip_topk_offset=3)
    owners = [layer for layer in range(78) if real.owns_indexer(layer)]
    assert owners == [0, 1, 2, *range(6, 78, 4)]


@pytest.mark.parametrize(
    ("config", "has", "lacks"),
    [
        pytest.param(DEEPSEEK_V32, {"rope_theta", "rope_scaling"}, {"indexer_rope_interleave", "indexer_types"}, id="v32"),
        pytest.param(GLM_51, {"rope_parameters", "indexer_rope_interleave"}, {"rope_theta", "index_topk_freq"}, id="glm51"),
        pytest.param(GLM_52, {"index_share_for_mtp_iteration", "indexer_types"}, {"rope_scaling"}, id="glm52"),
    ],
)  # fmt: skip
def test_a_configuration_has_the_keys_of_its_family(config, has, lacks):
    keys = config_json(config).keys()
    assert has <= keys
    assert not lacks & keys


@pytest.mark.parametrize("config", CONFIGS)
def test_reading_gives_back_what_was_written(config, tmp_path: Path):
    torch.manual_seed(2)
    network = Network(config)
    write_checkpoint(network, tmp_path)
    assert read_config(tmp_path) == config
    written, found = checkpoint_tensors(network), checkpoint_tensors(read_checkpoint(tmp_path))
    assert written.keys() == found.keys()
    assert all(written[name].equal(found[name]) for name in written)
    assert (tmp_path / WEIGHTS).stat().st_size <= 4e6


def test_the_configuration_of_another_model_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(config_json(GLM_52) | {"index_topk": 64}))
    with pytest.raises(ValueError, match="none of the tiny sparse models"):
        read_config(tmp_path)
