import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.checkpoint import content_hash, is_folder, model_folder, read_checkpoint
from spec_toolkit.shipped import rehearsal

CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 2,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 4096,
}
TENSORS = {"model.embed_tokens.weight": 64, "model.layers.0.x.weight": 8, "model.layers.2.eh_proj.weight": 32}
TOKENIZER = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}, "added_tokens": []}


def write_weights(path: Path, tensors: Mapping[str, int], cut: int = 0) -> None:
    offset, header = 0, {}
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    path.write_bytes((len(text).to_bytes(8, "little") + text + bytes(offset))[: len(text) + 8 + offset - cut])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    write_weights(tmp_path / "model.safetensors", TENSORS)
    return tmp_path


def test_a_folder_is_read(folder: Path) -> None:
    read = read_checkpoint(folder)
    assert read.architecture == "DeepseekV3ForCausalLM"
    assert (read.num_hidden_layers, read.num_nextn_predict_layers, read.max_position_embeddings) == (2, 1, 4096)
    assert read.tensors == TENSORS


def test_shards_are_read_together_and_the_index_must_agree(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    write_weights(folder / "model-00002-of-00002.safetensors", {"lm_head.weight": 16})
    index: dict[str, Any] = {"weight_map": dict.fromkeys([*TENSORS, "lm_head.weight"], "x")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_checkpoint(folder).tensors == TENSORS | {"lm_head.weight": 16}
    index["weight_map"]["model.norm.weight"] = "x"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(
        FactsError, match=r"promises 1 tensors that no weight file holds, such as 'model\.norm\.weight'"
    ):
        read_checkpoint(folder)


def test_what_a_config_leaves_out_is_none_and_not_zero(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"architectures": ["X"], "num_hidden_layers": 2}))
    read = read_checkpoint(folder)
    assert read.num_nextn_predict_layers is None
    assert read.max_position_embeddings is None


@pytest.mark.parametrize(
    ("file", "content", "found"),
    [
        pytest.param("config.json", None, "no such file", id="no-config"),
        pytest.param("config.json", b"{", "is not JSON", id="half-a-config"),
        pytest.param("config.json", b"[" * 100_000, "is not JSON", id="nested-config"),
        pytest.param("config.json", b"[]", "is not a JSON object", id="a-list"),
        pytest.param("config.json", b"{}", "names no architecture", id="empty-config"),
        pytest.param("config.json", b'{"architectures": ["X"]}', "has no num_hidden_layers", id="no-layers"),
        pytest.param(
            "config.json", b'{"architectures": ["X"], "num_hidden_layers": true}', "is True, not a count", id="no-count"
        ),
        pytest.param("tokenizer.json", b"{}", "has no vocabulary", id="no-vocabulary"),
        pytest.param("model.safetensors", None, "holds no safetensors file", id="no-weights"),
        pytest.param("model.safetensors", b"", "is cut short or no safetensors file", id="empty-weights"),
        pytest.param("model.safetensors", b"\xff" * 100, "is cut short or no safetensors file", id="not-safetensors"),
        pytest.param(
            "model.safetensors",
            (2).to_bytes(8, "little") + b"[]",
            "has a header that is no safetensors header",
            id="no-header",
        ),
    ],
)
def test_a_spoiled_folder_is_refused_in_words(folder: Path, file: str, content: bytes | None, found: str) -> None:
    (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
    with pytest.raises(FactsError, match=found):
        read_checkpoint(folder)


def test_a_weight_file_that_lost_its_end_is_refused(folder: Path) -> None:
    write_weights(folder / "model.safetensors", TENSORS, cut=1)
    with pytest.raises(FactsError, match="is cut short: 103 bytes of weights, 104 announced"):
        read_checkpoint(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_the_content_hash_moves_with_every_file_that_decides(folder: Path, file: str) -> None:
    before = content_hash(folder)
    (folder / file).write_bytes((folder / file).read_bytes() + b" ")
    assert content_hash(folder) != before


def test_the_content_hash_does_not_move_with_a_model_card(folder: Path) -> None:
    before = content_hash(folder)
    (folder / "README.md").write_text("a card")
    (folder / "held_out.jsonl").write_text("{}")
    (folder / "measured.json").write_text("{}")
    assert content_hash(folder) == before


def test_files_that_trade_their_contents_are_another_model(folder: Path) -> None:
    write_weights(folder / "a.safetensors", {"x": 1})
    write_weights(folder / "b.safetensors", {"y": 1})
    before = content_hash(folder)
    (folder / "a.safetensors").rename(folder / "c.safetensors")
    (folder / "b.safetensors").rename(folder / "a.safetensors")
    (folder / "c.safetensors").rename(folder / "b.safetensors")
    assert content_hash(folder) != before


@pytest.mark.parametrize(
    ("model", "folder"),
    [
        pytest.param("rehearsal:deepseek_v3_tiny", rehearsal() / "models/deepseek_v3_tiny", id="rehearsal"),
        pytest.param("/models/x", Path("/models/x"), id="absolute"),
        pytest.param("./x", Path("x"), id="relative"),
        pytest.param("~/x", Path.home() / "x", id="home"),
        pytest.param("deepseek-ai/DeepSeek-V3-0324", None, id="near-miss-a-repository"),
    ],
)
def test_a_recipes_model_names_a_folder_or_a_repository(model: str, folder: Path | None) -> None:
    assert model_folder(model) == folder
    assert is_folder(model) == (folder is not None)
