import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models.gemma4.checkpoint import (
    WEIGHTS,
    assistant_shapes,
    assistant_tensors,
    read_checkpoint,
    target_shapes,
    target_tensors,
    write_checkpoint,
)
from tiny_models.gemma4.config import FAMILIES, MEDIA_TOKENS, Config, assistant_json, dense, e2b, target_json
from tiny_models.tokenizer import VOCABULARY
from torch import Tensor

from tests.rehearsal.gemma_models import COMMITTED, assistant_folder, seeded, target_folder

each_family = pytest.mark.parametrize("family", FAMILIES)
each_committed = pytest.mark.parametrize("family", COMMITTED)


def shapes_of(tensors: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    target, assistant = tmp_path / "target", tmp_path / "assistant"
    target.mkdir()
    assistant.mkdir()
    return target, assistant


@each_family
def test_the_network_has_every_tensor_of_the_layout_and_no_other(family: str) -> None:
    network = seeded(family)
    assert shapes_of(target_tensors(network)) == target_shapes(network.config)
    assert shapes_of(assistant_tensors(network)) == assistant_shapes(network.config.assistant)


@pytest.mark.slow
@each_family
def test_the_layout_is_that_of_transformers_own_classes(family: str) -> None:
    import transformers

    config: Config = FAMILIES[family]()
    for settings, mine in (
        (target_json(config), target_shapes(config)),
        (assistant_json(config), assistant_shapes(config.assistant)),
    ):
        read = transformers.AutoConfig.for_model(**settings)
        with torch.device("meta"):
            theirs = getattr(transformers, read.architectures[0])(read)
        head = {"lm_head.weight"}  # tied, and so not stored
        assert {stored(n): s for n, s in shapes_of(theirs.state_dict()).items() if n not in head} == mine


def stored(name: str) -> str:
    """The 12B's checkpoint keeps what projects patches apart from the projection behind it; transformers' class holds one in the other."""
    projection = name.replace("embed_vision.multimodal_embedder.", "embed_vision.")
    return projection if "embedding_projection" in name else name.replace("embed_vision.", "vision_embedder.")


REAL_HEADS = {"head_dim": 256, "global_head_dim": 512, "vocab_size": 262144}
# Counted from the published configurations: facts/tables/models.yaml.
REAL_ASSISTANTS = {
    "31B": (dense(), 5376, 1024, 8192, {"num_attention_heads": 32, "num_key_value_heads": 16}, 469_518_592),
    "26B-A4B": (dense(), 2816, 1024, 8192, {"num_attention_heads": 16, "num_key_value_heads": 8}, 419_711_232),
    "E2B": (e2b(), 1536, 256, 2048, {"num_attention_heads": 4, "num_key_value_heads": 1}, 77_731_328),
}


@pytest.mark.parametrize("name", REAL_ASSISTANTS)
def test_an_assistant_at_its_real_size_has_the_published_number_of_parameters(name: str) -> None:
    config, backbone, hidden, width, heads, parameters = REAL_ASSISTANTS[name]
    text = replace(config.assistant.text, hidden_size=hidden, intermediate_size=width, **heads, **REAL_HEADS)
    real = replace(config.assistant, text=text, backbone_hidden_size=backbone, num_centroids=2048)
    shapes = assistant_shapes(real)
    counted = {n: s for n, s in shapes.items() if not n.endswith(("layer_scalar", "token_ordering"))}  # buffers
    assert sum(torch.Size(shape).numel() for shape in counted.values()) == parameters


@each_family
def test_weights_are_bf16_and_the_order_of_tokens_is_whole_numbers(family: str) -> None:
    network = seeded(family)
    assert {tensor.dtype for tensor in target_tensors(network).values()} == {torch.bfloat16}
    for name, tensor in assistant_tensors(network).items():
        assert tensor.dtype == (torch.int64 if name.endswith("token_ordering") else torch.bfloat16)


def test_the_centroids_of_the_e_kind_hold_each_token_once() -> None:
    order = assistant_tensors(seeded("gemma4_e2b"))["masked_embedding.token_ordering"]
    assert sorted(order.tolist()) == list(range(VOCABULARY))
    assert order.tolist() != sorted(order.tolist())  # in natural order a reordering that is left out would not show


def test_no_text_holds_a_token_that_stands_for_media() -> None:
    alphabet = json.loads((target_folder("gemma4_dense") / "tokenizer.json").read_text())["model"]["vocab"]
    token_of = {index: token for token, index in alphabet.items()}
    # Byte-level tokens spell a byte that can be printed by its own Latin-1 sign; UTF-8 has no byte from 0xF5 on.
    assert all(0xF5 <= ord(token_of[index]) <= 0xFF for index in MEDIA_TOKENS.values())


@each_family
def test_reading_gives_back_what_was_written(family: str, folders: tuple[Path, Path]) -> None:
    network = seeded(family)
    write_checkpoint(network, *folders)
    again = read_checkpoint(*folders, network.config)
    for tensors in (target_tensors, assistant_tensors):
        written, found = tensors(network), tensors(again)
        assert all(written[name].equal(found[name]) for name in written)


@pytest.mark.parametrize("which", [0, 1], ids=["target", "assistant"])
def test_a_checkpoint_with_a_tensor_too_few_or_too_many_is_refused(folders: tuple[Path, Path], which: int) -> None:
    network = seeded("gemma4_dense")
    write_checkpoint(network, *folders)
    weights = folders[which] / WEIGHTS
    tensors = load_file(weights)
    save_file({name: t for name, t in tensors.items() if "layers.1.self_attn.q_proj" not in name}, weights)
    with pytest.raises(RuntimeError, match=r"layers\.1\.self_attn\.q_proj"):
        read_checkpoint(*folders, network.config)
    prefix = ("model.language_model.", "model.")[which]
    save_file(tensors | {f"{prefix}layers.1.extra.weight": torch.ones(1)}, weights)
    with pytest.raises(RuntimeError, match="extra"):
        read_checkpoint(*folders, network.config)


@each_committed
def test_the_committed_models_have_the_layout_and_every_tensor_has_a_value(family: str) -> None:
    config = FAMILIES[family]()
    for folder, shapes in (
        (target_folder(family), target_shapes(config)),
        (assistant_folder(family), assistant_shapes(config.assistant)),
    ):
        tensors = load_file(folder / WEIGHTS)
        assert shapes_of(tensors) == shapes
        assert (folder / WEIGHTS).stat().st_size <= 4e6
        for name, tensor in tensors.items():
            assert tensor.isfinite().all(), name
            assert tensor.numel() == 1 or tensor.float().std() > 0, name
            assert not tensor.float().eq(1).all(), name  # a norm or a scalar at one could be left unread unseen


@each_committed
def test_the_committed_configurations_are_what_training_writes(family: str, folders: tuple[Path, Path]) -> None:
    write_checkpoint(seeded(family), *folders)
    for committed, written in zip((target_folder(family), assistant_folder(family)), folders, strict=True):
        for name in ("config.json", "generation_config.json"):
            assert (committed / name).read_text() == (written / name).read_text()
