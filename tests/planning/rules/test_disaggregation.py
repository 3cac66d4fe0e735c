import pytest

from spec_toolkit.planning.rules import disaggregation
from tests.planning.field_cases import build

CHAIN = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1}
V3 = {"architectures": ["DeepseekV3ForCausalLM"]}
V32 = {"architectures": ["DeepseekV32ForCausalLM"]}
V4 = {"architectures": ["DeepseekV4ForCausalLM"]}
GEMMA = {"architectures": ["Gemma4ForConditionalGeneration"]}


def found(prefill=None, decode=None, target=V3, **parts):
    """`parts`: of a situation, a pair each: prefill's and decode's."""
    sides = []
    for side, server_args in enumerate((prefill or {}, decode or {})):
        own = {key: pair[side] for key, pair in parts.items() if pair[side] is not None}
        sides.append(build({"server_args": server_args, "target": target} | own))
    return [f"{f.rule}={f.verdict.value}" for rule in disaggregation.PAIR_RULES for f in rule(*sides)]


@pytest.mark.parametrize("target", [V3, V32, V4, GEMMA, {}])
@pytest.mark.parametrize("server_args", [{}, CHAIN, CHAIN | {"tp_size": 8}])
def test_equal_sides_pass(target, server_args):
    assert found(server_args, server_args, target) == []


@pytest.mark.parametrize(
    ("argument", "here", "there"),
    [
        ("speculative_eagle_topk", 1, 2),
        ("speculative_num_steps", 3, 5),
        ("speculative_num_draft_tokens", 4, 8),
        ("speculative_algorithm", "EAGLE", "EAGLE3"),
        ("speculative_draft_model_path", None, "org/draft"),
        ("speculative_draft_model_path", "org/draft", "org/other"),
        ("speculative_draft_model_revision", "0a1b2c3d", "4d5e6f70"),
        ("speculative_draft_model_quantization", None, "fp8"),
        ("speculative_token_map", None, "map.pt"),
        ("enable_multi_layer_eagle", None, True),
    ],
)
def test_both_draft_alike(argument, here, there):  # C061
    for pair in ((here, there), (there, here)):
        prefill, decode = (CHAIN | {argument: value} for value in pair)
        assert found(prefill, decode) == ["disaggregation.draft=refuse"]


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [
        pytest.param({"speculative_algorithm": "NEXTN"}, {"speculative_algorithm": "eagle"}, id="aliases"),
        pytest.param({"speculative_num_draft_tokens": 4}, {}, id="a-width-that-follows"),
        pytest.param(
            {"model_path": "org/model"},
            {"model_path": "org/model", "speculative_draft_model_path": "org/model"},
            id="the-head-by-path",
        ),
    ],
)
def test_what_means_the_same_is_the_same(prefill, decode):
    assert found(CHAIN | prefill, CHAIN | decode) == []


@pytest.mark.parametrize(
    ("topk", "target", "expected"),
    [
        (1, V3, []),
        (4, V3, ["disaggregation.tree=warn"]),
        (4, {"architectures": ["LlamaForCausalLM"]}, []),
        (16, {"architectures": ["LlamaForCausalLM"]}, []),
        (17, {"architectures": ["LlamaForCausalLM"]}, ["disaggregation.draft=refuse"]),
    ],
)
def test_a_request_carries_sixteen_branches(topk, target, expected):
    tree = CHAIN | {"speculative_eagle_topk": topk, "attention_backend": "triton"}
    assert found(tree, tree, target) == expected


def test_one_side_alone():  # C062
    assert found({}, CHAIN) == ["disaggregation.decode-only=warn"]
    assert found(CHAIN, {}) == ["disaggregation.prefill-only=refuse"]
    assert found({}, {}) == []


FP8_V3, NVFP4_V3 = {"model": "deepseek-ai/DeepSeek-V3-0324"}, {"model": "nvidia/DeepSeek-V3-0324-NVFP4"}


@pytest.mark.parametrize(
    ("target", "dtypes", "gpus", "refused"),
    [
        (FP8_V3, ("fp8_e4m3", None), (None, None), True),
        (FP8_V3, ("fp8_e4m3", "fp8_e4m3"), (None, None), False),
        (FP8_V3, ("auto", None), (None, None), False),
        (FP8_V3, ("auto", "bf16"), (None, None), True),  # the same numbers, but it is the words that are compared
        (FP8_V3, ("bfloat16", "bf16"), (None, None), True),
        (FP8_V3, ("fp8_e5m2", "fp8_e4m3"), (None, None), True),
        (NVFP4_V3, (None, "fp8_e4m3"), (None, None), False),  # the checkpoint's own
        (NVFP4_V3, (None, "bfloat16"), (None, None), True),
        (NVFP4_V3, (None, None), (None, None), False),
        ({"model": "nvidia/Gemma-4-31B-IT-NVFP4"}, ("fp8_e4m3", None), (None, None), False),
        (V32, (None, None), ("h200", "b200"), True),  # each GPU's own default
        (V32, ("bf16", "bf16"), ("h200", "b200"), False),
        (V32, ("bf16", "bfloat16"), ("h200", "b200"), False),
        (V32, (None, None), ("h200", None), False),  # not known
        (FP8_V3, (None, None), ("h200", "b200"), False),
        (V3, ("fp8_e4m3", None), (None, None), False),  # a checkpoint that nobody read
    ],
)
def test_kv_is_of_one_word(target, dtypes, gpus, refused):
    backend = {} if target is V32 else {"attention_backend": "flashinfer"}
    prefill, decode = ({"kv_cache_dtype": dtype} | backend for dtype in dtypes)
    assert found(prefill, decode, target, gpu=gpus) == (["disaggregation.kv-dtype=refuse"] if refused else [])


@pytest.mark.parametrize(
    ("prefill", "decode", "target", "refused"),
    [
        ({"page_size": 32}, {"page_size": 64}, V3, True),
        ({"page_size": 64}, {"page_size": 64}, V3, False),
        ({"attention_backend": "flashmla"}, {"attention_backend": "flashinfer"}, V3, True),  # 64 and 1
        ({"page_size": 1}, {}, V32, False),  # 64 whatever is asked
        ({"page_size": 64}, {}, V3, False),  # of a GPU that nobody named: not known
    ],
)
def test_pages_are_of_one_size(prefill, decode, target, refused):
    assert found(prefill, decode, target) == (["disaggregation.page-size=refuse"] if refused else [])


@pytest.mark.parametrize(
    ("prefill", "decode", "target", "expected"),
    [
        ({"tp_size": 8}, {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, V3, []),
        ({"tp_size": 4}, {"tp_size": 8}, V3, []),
        ({"tp_size": 6}, {"tp_size": 4}, V3, ["disaggregation.ranks=refuse"]),
        ({"tp_size": 2}, {"tp_size": 4}, GEMMA, ["disaggregation.ranks=warn"]),
        ({"tp_size": 2, "pp_size": 4}, {"tp_size": 2}, V3, []),
        ({"tp_size": 2, "pp_size": 4}, {"tp_size": 2, "pp_size": 4}, V3, []),
        ({"tp_size": 2, "pp_size": 4}, {"tp_size": 2, "pp_size": 2}, V3, ["disaggregation.stages=refuse"]),
        ({"tp_size": 8, "attn_cp_size": 8}, {"tp_size": 8}, V3, []),
        ({"tp_size": 8}, {"tp_size": 8, "attn_cp_size": 8}, V3, ["disaggregation.context=refuse"]),
        (
            {"disaggregation_transfer_backend": "nixl"},
            {"disaggregation_transfer_backend": "mooncake"},
            V3,
            ["disaggregation.transfer=refuse"],
        ),
        ({"disaggregation_mode": "decode"}, {"disaggregation_mode": "decode"}, V3, ["disaggregation.roles=refuse"]),
    ],
)
def test_ranks_of_one_side_map_onto_the_other(prefill, decode, target, expected):
    assert found(prefill, decode, target) == expected


def test_a_layout_by_environment_is_the_same_on_both():
    layouts = ({"SGLANG_DSV4_KV_LAYOUT": "a"}, {})
    assert found(target=V4, env=layouts) == ["disaggregation.kv-layout=refuse"]
    assert found(target=V3, env=layouts) == []


def test_one_model_serves_on_both():
    pinned = [{"model_path": "org/model", "revision": revision} for revision in ("0a1b2c3d", "4d5e6f70")]
    assert found(*pinned) == ["disaggregation.model=refuse"]
    assert found({"model_path": "org/a"}, {"model_path": "org/b"}) == []  # FP8 and NVFP4 copies of one model


@pytest.mark.parametrize(("there", "refused"), [("zai-org/GLM-5.2-FP8", False), ("deepseek-ai/DeepSeek-V3.2", True)])
def test_quantised_copies_are_one_model_and_others_are_not(there, refused):
    sides = build({"target": {"model": "nvidia/GLM-5.2-NVFP4"}}), build({"target": {"model": there}})
    assert [f.rule for f in disaggregation.one_model(*sides)] == (["disaggregation.model"] if refused else [])
