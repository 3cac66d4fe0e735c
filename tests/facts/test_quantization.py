from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.facts.config_json import config_json, hf_quant_config
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.model import Quantization, Weights
from spec_toolkit.facts.quantization import read_quantization, weights_of

TABLES = load_tables()
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}


def groups(bits: int, kind: str, activations: dict[str, Any] | None = None) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights, "input_activations": activations}},
    }


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        pytest.param({"torch_dtype": "bfloat16"}, Weights.BF16, id="none"),
        pytest.param({"text_config": {"dtype": "bfloat16"}}, Weights.BF16, id="none-in-a-wrapper"),
        pytest.param({"torch_dtype": "float32"}, None, id="near-miss-a-type-without-a-word"),
        pytest.param({"quantization_config": FP8}, Weights.FP8, id="fp8"),
        pytest.param({"quantization_config": FP8, "expert_dtype": "fp4"}, Weights.FP4_FP8, id="fp4-experts"),
        pytest.param({"quantization_config": FP8 | {"moe_quant_algo": "NVFP4"}}, Weights.NVFP4, id="nvfp4-experts"),
        pytest.param(
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, Weights.NVFP4, id="nvfp4"
        ),
        pytest.param(
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, Weights.FP8, id="modelopt-fp8"
        ),
        pytest.param({"quantization_config": {"quant_method": "mxfp4"}}, Weights.MXFP4, id="mxfp4"),
        pytest.param(
            {"quantization_config": {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}},
            Weights.MXFP4,
            id="quark-fp4",
        ),
        pytest.param({"quantization_config": {"quant_method": "w4afp8"}}, Weights.W4A8, id="w4afp8"),
        pytest.param({"quantization_config": groups(4, "int")}, Weights.W4A16, id="four-bit-weights"),
        pytest.param(
            {"quantization_config": groups(4, "int", {"num_bits": 8})}, Weights.W4A8, id="eight-bit-activations"
        ),
        pytest.param({"quantization_config": groups(8, "float", {"num_bits": 8})}, Weights.FP8, id="fp8-by-groups"),
        pytest.param({"quantization_config": {"quant_method": "compressed-tensors"}}, None, id="near-miss-no-bits"),
        pytest.param({"quantization_config": {"quant_method": "experts_int8"}}, None, id="near-miss-another-method"),
    ],
)
def test_how_weights_are_stored_is_read_from_what_is_said(config: dict[str, Any], weights: Weights | None) -> None:
    assert weights_of(read_quantization(config), config) is weights


def test_a_file_of_its_own_is_read_where_the_config_says_nothing() -> None:
    said = hf_quant_config("nvidia/DeepSeek-V3.1-NVFP4", TABLES)
    assert said is not None
    read = read_quantization({}, said["quantization"])
    assert (read.method, read.algorithm, read.kv_cache) == ("modelopt", "NVFP4", "FP8")
    assert "model.layers.61*" in read.ignored
    assert read_quantization({"quantization_config": FP8}, said["quantization"]).method == "fp8"


@pytest.mark.parametrize(
    ("scheme", "kv_cache"),
    [
        ({"num_bits": 8, "type": "float"}, "FP8"),
        ({"num_bits": 4, "type": "float"}, None),
        ({"num_bits": 8, "type": "int"}, None),
    ],
)
def test_a_scheme_of_eight_bit_floats_is_an_fp8_cache(scheme: dict[str, Any], kv_cache: str | None) -> None:
    assert read_quantization({"quantization_config": {"kv_cache_scheme": scheme}}).kv_cache == kv_cache


def test_nothing_said_is_known_to_be_none() -> None:
    assert read_quantization({}) == Quantization()


@pytest.mark.parametrize("repo", [repo for model in TABLES.models.values() for repo in model.checkpoints])
def test_the_tables_word_is_what_their_config_says(repo: str) -> None:
    config, said = config_json(repo, TABLES), hf_quant_config(repo, TABLES)
    checkpoint = TABLES.checkpoint(repo)
    assert config is not None
    assert checkpoint is not None
    read = weights_of(read_quantization(config, said["quantization"] if said else None), config)
    silent = {Weights.W4A16, Weights.MXFP4}  # their files were not seen; the word is of a page
    assert read is checkpoint.weights.v or checkpoint.weights.v in silent


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["weights", "num_bits", "type", "x"]), inner)
    ),
    max_leaves=6,
)
KEYS = [
    "quant_method",
    "quant_algo",
    "config_groups",
    "kv_cache_scheme",
    "ignore",
    "bits",
    "global_quant_config",
    "format",
]


@given(st.one_of(JSON, st.dictionaries(st.sampled_from(KEYS), JSON)), JSON)
def test_no_quantization_is_too_strange(said: Any, dtype: Any) -> None:
    config = {"quantization_config": said, "dtype": dtype}
    weights_of(read_quantization(config, said if isinstance(said, dict) else None), config)
