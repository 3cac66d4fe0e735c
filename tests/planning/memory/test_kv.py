import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spec_toolkit.facts.model import DsaAttention, MlaAttention, ModelShape
from spec_toolkit.planning.memory.kv import KvDtype, Storage, dtype_of, kv_bytes_per_token, stores_raw_rows
from tests.planning.memory.launches import TARGETS, launch

BF16, FP8 = Storage(dtype=KvDtype.BF16), Storage(dtype=KvDtype.FP8)
FP8_RAW = Storage(dtype=KvDtype.FP8, raw_rows=True)


def shape_of(name: str) -> ModelShape:
    shape = launch(TARGETS[name], "h200", speculates=False).situation.target.shape
    assert shape is not None
    return shape


# As SGLang 0.5.23's own configurator printed them: model facts, section 3. test_pools_on_the_engine runs it.
@pytest.mark.parametrize(
    ("name", "storage", "draft_layers", "target", "draft"),
    [
        pytest.param("deepseek-v3-0324", BF16, 1, 70_272, 1_152, id="mla"),
        pytest.param("deepseek-v3-0324", FP8, 1, 35_136, 576, id="mla-fp8"),
        pytest.param("deepseek-v3-0324", BF16, 0, 70_272, 0, id="mla-no-draft"),
        pytest.param("deepseek-v3.2", BF16, 1, 78_324, 1_284, id="dsa"),
        pytest.param("deepseek-v3.2", FP8, 1, 48_068, 788, id="dsa-fp8-with-scales-in-its-rows"),
        pytest.param("deepseek-v3.2", FP8_RAW, 1, 43_188, 708, id="dsa-fp8-raw-rows"),
        pytest.param("glm-5", BF16, 1, 100_152, 1_284, id="every-layer-owns-an-indexer"),
        pytest.param("glm-5.2", BF16, 1, 92_628, 1_284, id="a-quarter-of-the-layers-own-one"),
        pytest.param("glm-5.2", FP8, 1, 53_940, 788, id="shared-indexers-fp8"),
        pytest.param("glm-5.2", FP8_RAW, 1, 47_700, 708, id="shared-indexers-fp8-raw"),
        pytest.param("deepseek-v4-flash", FP8, 0, 7_086.75, 0, id="v4"),
        pytest.param("gemma-4-e2b", BF16, 4, 37_273.6, 8_192, id="layers-that-share-kv-are-allocated"),
        pytest.param("gemma-4-31b", BF16, 4, 737_280, 32_768, id="windows"),
    ],
)
def test_bytes_per_token(name, storage, draft_layers, target, draft):
    counted = kv_bytes_per_token(shape_of(name), storage, draft_layers=draft_layers)
    assert (counted.target, counted.draft) == pytest.approx((target, draft))


@pytest.mark.parametrize(
    ("name", "draft_layers", "total", "window_token", "fixed_of_48", "fixed_of_256"),
    [
        pytest.param("deepseek-v4-flash", 0, 7_086.75, 31_875.0, 534_773_760, 2_715_811_840, id="flash"),
        pytest.param("deepseek-v4-flash", 1, 7_939.186, 39_492.558, 1_059_061_760, 5_421_137_920, id="flash-drafting"),
        pytest.param("deepseek-v4-pro", 0, 10_115.25, 45_285.0, 828_899_328, 4_209_508_352, id="pro"),
        pytest.param("deepseek-v4-pro", 1, 11_256.811, 55_784.754, 1_641_545_728, 8_402_763_776, id="pro-drafting"),
    ],
)
def test_v4_keeps_state_for_requests_beside_what_tokens_cost(
    name, draft_layers, total, window_token, fixed_of_48, fixed_of_256
):
    counted = kv_bytes_per_token(shape_of(name), FP8, draft_layers=draft_layers)
    assert counted.total == pytest.approx(total, abs=1e-3)
    assert counted.window_token == pytest.approx(window_token, abs=1e-3)
    assert (counted.fixed(48), counted.fixed(256)) == (fixed_of_48, fixed_of_256)


def test_only_heads_are_divided_among_ranks():
    gemma, v3 = shape_of("gemma-4-31b"), shape_of("deepseek-v3-0324")
    assert kv_bytes_per_token(gemma, BF16, attention_tp=2, draft_layers=4).total == pytest.approx(385_024)
    assert kv_bytes_per_token(v3, BF16, attention_tp=8) == kv_bytes_per_token(v3, BF16)


def test_a_head_is_not_cut():
    few = shape_of("gemma-4-12b")  # one KV head in its full layers
    assert kv_bytes_per_token(few, BF16, attention_tp=8, draft_layers=4).draft == 8_192


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("auto", KvDtype.BF16),
        ("bfloat16", KvDtype.BF16),
        ("fp8_e5m2", KvDtype.FP8),
        pytest.param("nvfp4", None, id="not-one-that-is-counted"),
    ],
)
def test_what_a_word_of_the_engine_takes(word, expected):
    assert dtype_of(word) is expected


@pytest.mark.parametrize(
    ("dtype", "backends", "major", "expected"),
    [
        pytest.param(KvDtype.BF16, (None, None), 9, True, id="bf16-has-no-scales"),
        pytest.param(KvDtype.FP8, (None, None), 9, False, id="hopper"),
        pytest.param(KvDtype.FP8, (None, None), 10, True, id="blackwell"),
        pytest.param(KvDtype.FP8, (None, None), None, None, id="unknown-gpu"),
        pytest.param(KvDtype.FP8, ("flashmla_kv", "trtllm"), None, True, id="one-of-the-two-is-enough"),
        pytest.param(KvDtype.FP8, ("tilelang", "tilelang"), 9, True, id="tilelang-for-both"),
        pytest.param(KvDtype.FP8, ("tilelang", None), 9, False, id="tilelang-for-one"),
    ],
)
def test_which_backends_store_scales(dtype, backends, major, expected):
    assert stores_raw_rows(dtype, backends=backends, capability_major=major) is expected


@given(
    rank=st.integers(1, 16).map(lambda n: n * 128),
    rope=st.integers(1, 256),
    layers=st.integers(1, 200),
    owned=st.integers(0, 200),
)
def test_an_indexer_costs_where_it_is_owned_and_a_draft_always_owns_one(rank, rope, layers, owned):
    mla = MlaAttention(
        kv_lora_rank=rank, qk_rope_head_dim=rope, qk_nope_head_dim=1, v_head_dim=1, q_lora_rank=1, num_heads=1
    )
    plain = ModelShape(layers=layers, hidden_size=1, intermediate_size=1, vocab_size=1, attention=mla)
    dsa = DsaAttention(
        mla=mla,
        index_heads=1,
        index_head_dim=128,
        index_topk=1,
        indexer_layers=min(owned, layers),
        shared_in_draft=True,
    )
    with_indexers = replace(plain, attention=dsa)
    without, beside = (kv_bytes_per_token(shape, BF16, draft_layers=1) for shape in (plain, with_indexers))
    assert beside.target - without.target == 132 * min(owned, layers)
    assert beside.draft - without.draft == 132


@given(requests=st.integers(1, 4096))
def test_state_grows_with_requests(requests):
    counted = kv_bytes_per_token(shape_of("deepseek-v4-flash"), FP8, draft_layers=1)
    assert counted.fixed(requests) <= counted.fixed(requests + 1)
