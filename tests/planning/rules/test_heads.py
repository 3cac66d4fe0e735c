import pytest

from spec_toolkit.planning.rules import heads
from tests.planning.field_cases import build

LAYERED = ["DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM", "Glm4MoeForCausalLM"]
OWN = ["eh_proj", "enorm", "hnorm", "shared_head.norm"]


def found(server_args=None, draft=None, **target):
    situation = {"server_args": {"speculative_algorithm": "EAGLE"} | (server_args or {}), "target": target}
    built = build(situation | ({"draft": draft} if draft else {}))
    return [f"{f.rule}={f.verdict.value}" for rule in heads.RULES for f in rule(built)]


def layer(number, parts=OWN, prefix="model.", **tensor):
    return {f"{prefix}layers.{number}.{part}.weight": dict(tensor) for part in parts}


@pytest.mark.parametrize("architecture", LAYERED)
@pytest.mark.parametrize("prefix", ["model.", "model.language_model."])
def test_the_layer_after_the_last_is_the_draft(architecture, prefix):  # C079
    model = {"architectures": [architecture], "num_hidden_layers": 61, "num_nextn_predict_layers": 1}
    assert found(**model, tensors=layer(61, prefix=prefix)) == []
    assert found(**model, tensors=layer(60, prefix=prefix)) == ["features.mtp-layer=refuse"]
    assert found(**model, tensors=layer(610, prefix=prefix)) == ["features.mtp-layer=refuse"]


@pytest.mark.parametrize("missing", OWN)
def test_what_is_the_heads_alone_must_be_there(missing):  # C081
    model = {"architectures": ["Glm4MoeForCausalLM"], "num_hidden_layers": 92, "num_nextn_predict_layers": 1}
    without = layer(92, [part for part in OWN if part != missing])
    assert found(**model, tensors=without) == ["features.mtp-incomplete=refuse"]


def test_deepseek_v4_has_other_names():
    model = {"architectures": ["DeepseekV4ForCausalLM"], "num_hidden_layers": 43, "num_nextn_predict_layers": 1}
    names = {f"mtp.0.{part}.weight": {} for part in ("e_proj", "h_proj")}
    assert found(**model, tensors=names) == []
    assert found(**model, tensors={"mtp.0.e_proj.weight": {}}) == ["features.mtp-incomplete=refuse"]
    assert found(**model, tensors={"mtp.1.e_proj.weight": {}}) == ["features.mtp-layer=refuse"]


@pytest.mark.parametrize(
    ("server_args", "draft"),
    [
        pytest.param({"speculative_algorithm": None}, None, id="no-speculation"),
        pytest.param({"speculative_algorithm": "EAGLE3"}, None, id="eagle3-has-a-model-of-its-own"),
        pytest.param({"speculative_draft_model_path": "org/draft"}, None, id="a-draft-path"),
        pytest.param({}, {"architectures": ["DeepseekV3ForCausalLMNextN"]}, id="a-draft"),
    ],
)
def test_nobody_asks_for_the_head_where_it_is_not_the_draft(server_args, draft):
    model = {"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 61, "num_nextn_predict_layers": 0}
    assert found(server_args, draft, **model, tensors=layer(60)) == []


@pytest.mark.parametrize(
    ("flags", "quantization", "weights", "refused"),
    [
        pytest.param({"quantization": "modelopt_fp4"}, None, "nvfp4", True, id="flag"),
        pytest.param({}, {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", True, id="configuration"),
        pytest.param(
            {}, {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "bf16", False, id="near-miss-a-bf16-layer"
        ),
        pytest.param({}, {"quant_method": "fp8"}, "fp8", False, id="near-miss-fp8"),
        pytest.param({}, {"quant_method": "modelopt", "quant_algo": "NVFP4"}, None, False, id="near-miss-not-known"),
    ],
)
def test_the_table_alone_tells_a_quantised_head(flags, quantization, weights, refused):  # C072
    model = {"architectures": ["DeepseekV3ForCausalLM"], "quantization_config": quantization, "num_hidden_layers": 61}
    findings = found(flags, **model, **({"draft_weights": weights} if weights else {}))
    assert findings == (["features.mtp-quantised=refuse"] if refused else [])


@pytest.mark.parametrize(
    ("promised", "tensors", "expected"),
    [
        pytest.param(1, layer(61), [], id="has-it"),
        pytest.param(0, layer(61), ["features.mtp-layer=refuse"], id="says-none"),
        pytest.param(None, layer(61), ["features.mtp-layer=refuse"], id="says-nothing"),
        pytest.param(None, None, [], id="near-miss-nobody-looked"),
    ],
)
def test_a_configuration_says_that_there_is_one(promised, tensors, expected):
    says = {} if promised is None else {"num_nextn_predict_layers": promised}
    looked = {} if tensors is None else {"tensors": tensors}
    assert found(architectures=["DeepseekV3ForCausalLM"], num_hidden_layers=61, **says, **looked) == expected
