import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_models.deepseek_v3.checkpoint import (
    WEIGHTS,
    checkpoint_tensors,
    read_checkpoint,
    tensor_shapes,
    write_checkpoint,
)
from tiny_models.deepseek_v3.config import Config, config_json
from tiny_models.deepseek_v3.network import Network
from torch import Tensor


@pytest.fixture(scope="module")
def tensors(model: Path) -> dict[str, Tensor]:
    return load_file(model / WEIGHTS)


def test_names_and_shapes_are_those_of_the_real_layout(tensors: dict[str, Tensor]) -> None:
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == tensor_shapes(Config())


def test_the_network_has_no_parameter_the_checkpoint_lacks() -> None:
    network = Network(Config())
    assert {name: tuple(t.shape) for name, t in checkpoint_tensors(network).items()} == tensor_shapes(Config())


def test_the_layout_is_the_real_one_at_its_real_size() -> None:
    real = Config(
        vocab_size=129280,
        hidden_size=7168,
        intermediate_size=18432,
        moe_intermediate_size=2048,
        num_hidden_layers=61,
        first_k_dense_replace=3,
        num_attention_heads=128,
        num_key_value_heads=128,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_routed_experts=256,
        num_experts_per_tok=8,
    )  # fmt: skip - the published config.json
    shapes = tensor_shapes(real)
    size = sum(torch.Size(shape).numel() for shape in shapes.values())
    mtp = sum(torch.Size(shape).numel() for name, shape in shapes.items() if name.startswith("model.layers.61."))
    # Published: 671.0 B without the MTP module, whose unique part, without the copied embedding and head, is 11.5 B.
    assert round((size - mtp) / 1e9, 1) == 671.0
    assert (mtp - 2 * 129280 * 7168) / 1e9 == pytest.approx(11.5, abs=0.15)
    assert shapes["model.layers.61.eh_proj.weight"] == (7168, 14336)


@pytest.mark.parametrize("written", ["committed", "now"])
def test_weights_are_bf16_and_the_correction_bias_is_fp32(tensors: dict[str, Tensor], written: str) -> None:
    tensors = tensors if written == "committed" else checkpoint_tensors(Network(Config()))
    bias = {name for name in tensors if name.endswith("e_score_correction_bias")}
    assert len(bias) == 4
    assert {tensors[name].dtype for name in bias} == {torch.float32}
    assert {tensor.dtype for name, tensor in tensors.items() if name not in bias} == {torch.bfloat16}


def test_every_tensor_was_trained_and_is_finite(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        assert tensor.isfinite().all(), name
        assert tensor.float().std() > 0, name


def test_the_mtp_copies_of_embedding_and_head_are_the_targets(tensors: dict[str, Tensor]) -> None:
    assert tensors["model.layers.4.embed_tokens.weight"].equal(tensors["model.embed_tokens.weight"])
    assert tensors["model.layers.4.shared_head.head.weight"].equal(tensors["lm_head.weight"])


def test_the_committed_configuration_is_what_training_writes(model: Path, tmp_path: Path) -> None:
    write_checkpoint(Network(Config()), tmp_path)
    for name in ("config.json", "generation_config.json"):
        assert (model / name).read_text() == (tmp_path / name).read_text()
    assert json.loads((model / "config.json").read_text()) == config_json(Config())


def test_reading_gives_back_what_was_written(tmp_path: Path) -> None:
    torch.manual_seed(2)
    network = Network(Config())
    write_checkpoint(network, tmp_path)
    written, found = checkpoint_tensors(network), checkpoint_tensors(read_checkpoint(tmp_path))
    assert all(written[name].equal(found[name]) for name in written)


def test_a_checkpoint_with_a_tensor_too_few_or_too_many_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    network = Network(Config())
    write_checkpoint(network, tmp_path)
    tensors = load_file(tmp_path / WEIGHTS)
    save_file({k: v for k, v in tensors.items() if "eh_proj" not in k}, tmp_path / WEIGHTS)
    with pytest.raises(RuntimeError, match="eh_proj"):
        read_checkpoint(tmp_path)
    save_file(tensors | {"model.layers.4.extra.weight": torch.ones(1)}, tmp_path / WEIGHTS)
    with pytest.raises(RuntimeError, match="extra"):
        read_checkpoint(tmp_path)


def test_the_weights_take_at_most_four_megabytes(model: Path) -> None:
    assert (model / WEIGHTS).stat().st_size <= 4e6
