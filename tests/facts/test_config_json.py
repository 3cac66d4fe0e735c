import pytest

from spec_toolkit.facts.config_json import config_json, filler, hf_quant_config
from spec_toolkit.facts.known import load_tables

TABLES = load_tables()
REPOSITORIES = [repo for model in TABLES.models.values() for repo in model.checkpoints]


@pytest.mark.parametrize("repo", REPOSITORIES)
def test_a_rebuilt_config_holds_facts_and_named_filler_alone(repo: str) -> None:
    config, model = config_json(repo, TABLES), TABLES.model(repo)
    assert config is not None
    assert model is not None
    text = config.get("text_config", config)
    beside = {"architectures", "model_type", "quantization_config", "text_config"}
    known = {**model.config, **model.checkpoints[repo].config}
    assert set(text) - beside - set(known) <= set(filler(repo, TABLES))
    assert set(config) - beside <= set(known) | set(model.wrapper) | set(filler(repo, TABLES))
    assert all(text[name] == known[name].v for name in set(text) & set(known) - beside)


def test_filler_is_rare() -> None:
    added = {name for repo in REPOSITORIES for name in filler(repo, TABLES)}
    assert added == {"dtype", "max_position_embeddings", "attention_k_eq_v"}
    assert not [repo for repo in REPOSITORIES if filler(repo, TABLES) and not repo.startswith("google/gemma")]


def test_an_assistant_has_its_targets_positions() -> None:
    config = config_json("google/gemma-4-31B-it-assistant", TABLES)
    assert config is not None
    assert config["text_config"]["max_position_embeddings"] == 262144
    assert config["backbone_hidden_size"] == 5376
    assert "sliding_window" not in config["text_config"], "unknown stays unknown"


def test_a_checkpoint_differs_from_its_model_where_the_table_says_so() -> None:
    fused = config_json("deepseek-ai/DeepSeek-V4-Flash-0731", TABLES)
    preview = config_json("deepseek-ai/DeepSeek-V4-Flash", TABLES)
    fp8 = config_json("sgl-project/DeepSeek-V4-Flash-FP8", TABLES)
    assert fused is not None
    assert preview is not None
    assert fp8 is not None
    assert (fused["dspark_block_size"], len(fused["compress_ratios"])) == (5, 46)
    assert "dspark_block_size" not in preview
    assert (preview["expert_dtype"], "expert_dtype" in fp8) == ("fp4", False)
    assert (preview["model_type"], fp8["model_type"]) == ("deepseek_v4", "deepseek_ref")


def test_layers_that_are_quantised_are_named_one_by_one() -> None:
    config = config_json("nvidia/DeepSeek-V4-Pro-NVFP4", TABLES)
    assert config is not None
    named = config["quantization_config"]["quantized_layers"]
    assert len(named) == 61
    assert "layers.60.ffn.experts" in named


def test_a_second_file_is_there_only_where_the_first_says_nothing() -> None:
    assert hf_quant_config("nvidia/GLM-5-NVFP4", TABLES) is not None
    assert hf_quant_config("nvidia/GLM-5.2-NVFP4", TABLES) is None
    for repo in REPOSITORIES:
        config = config_json(repo, TABLES)
        assert config is not None
        assert "quantization_config" not in config or hf_quant_config(repo, TABLES) is None


def test_what_is_not_in_the_tables_has_no_config() -> None:
    assert config_json("org/model", TABLES) is None
    assert hf_quant_config("org/model", TABLES) is None
    assert filler("org/model", TABLES) == {}
