import json
from pathlib import Path

import pytest
from tiny_models.deepseek_v3.network import Network as DeepseekV3
from tiny_models.families import READERS, read_network

MODELS = Path(__file__).resolve().parents[2] / "spec_toolkit" / "rehearsal" / "models"


def test_every_sparse_or_deepseek_model_that_is_shipped_can_be_read():
    folders = [folder for folder in MODELS.iterdir() if model_type(folder) in READERS]
    assert {model_type(folder) for folder in folders} >= {"deepseek_v3", "glm_moe_dsa"}
    for folder in folders:
        network = read_network(folder)
        assert not network.training
        assert isinstance(network, DeepseekV3) is (model_type(folder) == "deepseek_v3")


def model_type(folder: Path) -> str:
    return json.loads((folder / "config.json").read_text())["model_type"]


def test_a_family_without_a_network_is_named(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(ValueError, match="mamba"):
        read_network(tmp_path)
