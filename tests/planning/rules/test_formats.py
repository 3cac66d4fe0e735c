import pytest
from msgspec.structs import replace

from spec_toolkit.facts.model import Experts, ModelShape, Weights, WindowedAttention
from spec_toolkit.planning.rules import formats
from tests.planning.field_cases import build

NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
FP8 = {"quant_method": "modelopt", "quant_algo": "FP8"}
PACKED = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
}
ATTENTION = WindowedAttention(
    num_heads=16,
    window_layers=25,
    full_layers=5,
    window_kv_heads=8,
    full_kv_heads=2,
    window_head_dim=256,
    full_head_dim=512,
    window_tokens=1024,
    keys_are_values=True,
    kv_shared_layers=0,
)
SHAPE = ModelShape(layers=30, hidden_size=2816, intermediate_size=2112, vocab_size=262144, attention=ATTENTION)
EXPERTS = Experts(routed=128, per_token=8, shared=0, intermediate_size=704, dense_layers=0)


def found(situation):
    return [f"{f.rule}={f.verdict.value}" for rule in formats.RULES for f in rule(situation)]


@pytest.mark.parametrize(
    ("flag", "stored", "refused"),
    [
        *(
            ("modelopt_fp4", stored, False)
            for stored in (NVFP4, {"quant_method": "modelopt_fp4"}, {"quant_method": "fp8"})
        ),
        *(
            ("modelopt_fp4", stored, True)
            for stored in ({}, {"quant_method": "awq"}, {"quant_method": "compressed-tensors"})
        ),
        *(("modelopt_fp8", stored, False) for stored in (FP8, {"quant_method": "modelopt"})),
        *(("modelopt_fp8", stored, True) for stored in ({}, {"quant_method": "fp8"})),
        *(("fp8", stored, False) for stored in ({"quant_method": "fp8"}, {})),
        *(
            ("fp8", stored, True)
            for stored in ({"quant_method": "mxfp4"}, {"quant_method": "gptq"}, {"quant_method": "compressed_tensors"})
        ),
        *(("gptq", stored, True) for stored in ({}, {"quant_method": "awq"})),
        *(("MODELOPT_FP4", stored, False) for stored in (NVFP4,)),
        *(("awq_marlin", stored, False) for stored in ({"quant_method": "awq"},)),
        *((flag, {"quant_method": "awq"}, False) for flag in ("moe_wna16", "humming", None)),
    ],
)
def test_a_flag_reads_its_own_format(flag, stored, refused):  # C078
    situation = build({"server_args": {"quantization": flag}, "target": {"quantization_config": stored}})
    assert found(situation) == (["formats.quantization-flag=refuse"] if refused else [])


@pytest.mark.parametrize("flag", ["fp8", "awq", "modelopt_fp8", "compressed-tensors"])
def test_a_modelopt_checkpoint_is_read_as_it_is(flag):
    """The engine's own answer: see test_engine_agrees_on_drafts."""
    situation = build({"server_args": {"quantization": flag}, "target": {"quantization_config": NVFP4}})
    assert found(situation) == ["formats.quantization-flag=warn"]


def test_experts_are_converted_while_they_load():
    situation = build({"server_args": {"quantization": "modelopt_fp4"}, "target": {"quantization_config": None}})
    mixture = replace(situation, target=replace(situation.target, shape=replace(SHAPE, experts=EXPERTS)))
    assert found(mixture) == ["formats.quantization-flag=warn"]
    assert found(replace(situation, target=replace(situation.target, shape=SHAPE))) == [
        "formats.quantization-flag=refuse"
    ]


@pytest.mark.parametrize(("tp", "refused"), [(1, False), (2, False), (3, False), (4, True), (8, True)])
def test_marlin_takes_64_columns_of_a_ranks_part(tp, refused):  # C125: 2 x 2,112 columns of gate and up
    situation = build({"server_args": {"tp_size": tp}, "target": {"weights": "w4a16"}})
    situation = replace(situation, target=replace(situation.target, shape=SHAPE))
    assert found(situation) == (["formats.kernel-tile=refuse"] if refused else [])
    other = replace(situation, target=replace(situation.target, weights=Weights.BF16))
    assert found(other) == []


@pytest.mark.parametrize("columns", range(8512, 8705, 32))
def test_a_rest_is_a_refusal(columns):
    matrix = {"model.layers.0.mlp.down_proj.weight_packed": {"dtype": "I32", "shape": [columns, 672]}}
    target = {"quantization_config": PACKED, "tensors": matrix}
    assert bool(found(build({"target": target}))) is bool(columns % 64)
