from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.facts.from_config import draft_prefix, model_from_config
from spec_toolkit.facts.model import Model, Origin, Tensor, VisionTower, Weights

FP8 = {"quantization_config": {"quant_method": "fp8"}}
V3 = {"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 61, "num_nextn_predict_layers": 1}


def model_of(config: dict[str, Any], **more: Any) -> Model:
    return model_from_config(config, name="x", origin=Origin.FOLDER, says="a test", **more)


def test_what_a_fragment_does_not_say_is_not_known() -> None:
    fragment, whole = model_of({"torch_dtype": "bfloat16"}, whole=False), model_of({"torch_dtype": "bfloat16"})
    assert (fragment.quantization, fragment.weights) == (None, None)
    assert whole.quantization is not None
    assert (whole.quantization.method, whole.weights) == (None, Weights.BF16)


def test_what_a_fragment_says_is_read() -> None:
    read = model_of({**V3, **FP8, "hidden_size": 7168}, whole=False)
    assert (read.architecture, read.hidden_size, read.num_hidden_layers) == ("DeepseekV3ForCausalLM", 7168, 61)
    assert (read.num_nextn_predict_layers, read.weights, read.shape) == (1, Weights.FP8, None)


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"max_position_embeddings": 4096, "max_seq_len": 8192}, 8192),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2.5}}, 10_240),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "dynamic", "factor": 2}}, 8192),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "yarn", "factor": 2}}, 4096),
        (
            {
                "max_position_embeddings": 4096,
                "rope_scaling": {"type": "linear", "factor": 2, "original_max_position_embeddings": 2048},
            },
            4096,
        ),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": ["linear"], "factor": float("inf")}}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": float("inf")}}, 4096),
    ],
    ids=str,
)
def test_positions_are_counted_as_the_engine_counts_them(config: dict[str, Any], positions: int) -> None:
    model = model_from_config(config, name="x", origin=Origin.FOLDER, says="a test")
    assert model.max_position_embeddings == positions


def test_a_wrappers_numbers_are_its_language_models() -> None:
    read = model_of(
        {"hidden_size": 1, "backbone_hidden_size": 5376, "text_config": {"hidden_size": 1024, "vocab_size": 9}}
    )
    assert (read.hidden_size, read.backbone_hidden_size, read.vocab_size) == (1024, 5376, 9)


@pytest.mark.parametrize(
    ("vision", "tower"),
    [
        pytest.param(
            {"num_hidden_layers": 27, "hidden_size": 1152}, VisionTower(layers=27, hidden_size=1152), id="tower"
        ),
        pytest.param({"mm_embed_dim": 3840}, VisionTower(layers=16, hidden_size=768), id="no-layers"),
        pytest.param(None, None, id="none"),
    ],
)
def test_a_tower_is_as_large_as_the_engine_takes_it_to_be(vision: Any, tower: VisionTower | None) -> None:
    assert model_of({"vision_config": vision}).vision == tower


TENSORS = {
    "model.layers.60.mlp.up_proj.weight": Tensor(bytes=100, dtype="F8_E4M3"),
    "model.layers.61.eh_proj.weight": Tensor(bytes=10, dtype="BF16"),
    "model.layers.61.mlp.up_proj.weight": Tensor(bytes=30, dtype="F8_E4M3"),
}


def test_the_draft_inside_is_weighed_by_its_own_tensors() -> None:
    read = model_of({**V3, **FP8}, tensors=TENSORS)
    assert (read.weight_bytes, read.draft_weight_bytes, read.draft_weights) == (140, 40, Weights.FP8)
    assert read.tensors is not None


def test_a_draft_that_is_not_there_weighs_nothing_that_is_known() -> None:
    read = model_of({**V3, **FP8}, tensors={"model.layers.6.x": Tensor(bytes=1, dtype="BF16")})
    assert (read.draft_weight_bytes, read.draft_weights) == (None, None)


def test_names_without_sizes_make_no_sum() -> None:
    read = model_of(V3, tensors=TENSORS | {"model.layers.61.enorm.weight": Tensor(bytes=None)})
    assert (read.weight_bytes, read.draft_weight_bytes) == (None, None)


@pytest.mark.parametrize(
    ("dtype", "algorithm", "stored"),
    [
        ("U8", "NVFP4", Weights.NVFP4),
        ("BF16", "NVFP4", Weights.BF16),
        ("U8", "FP8", None),
        ("F64", "NVFP4", None),
    ],
)
def test_packed_four_bit_numbers_are_of_the_targets_kind(dtype: str, algorithm: str, stored: Weights | None) -> None:
    config = {**V3, "quantization_config": {"quant_method": "modelopt", "quant_algo": algorithm}}
    read = model_of(config, tensors={"model.layers.61.x": Tensor(bytes=8, dtype=dtype)})
    assert read.draft_weights is stored


@pytest.mark.parametrize(
    ("architecture", "prefix"),
    [
        ("DeepseekV3ForCausalLM", "model.layers.61."),
        ("GlmMoeDsaForCausalLM", "model.layers.61."),
        ("DeepseekV4ForCausalLM", "mtp."),
        ("Gemma4ForConditionalGeneration", None),
        (None, None),
    ],
)
def test_a_draft_inside_stands_after_the_last_layer_or_under_a_name_of_its_own(
    architecture: str | None, prefix: str | None
) -> None:
    assert draft_prefix(architecture, 61) == prefix


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
KEYS = ["architectures", "model_type", "text_config", "vision_config", "quantization_config", "hidden_size", "dtype"]


@given(st.dictionaries(st.sampled_from(KEYS), JSON), st.booleans())
def test_no_fragment_is_too_strange(config: dict[str, Any], whole: bool) -> None:
    read = model_of(config, whole=whole)
    assert read.hidden_size is None or read.hidden_size >= 0
