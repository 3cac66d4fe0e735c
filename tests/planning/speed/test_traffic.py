import pytest

from spec_toolkit.facts.model import Experts, MlaAttention, ModelShape
from spec_toolkit.planning.speed.traffic import Layout, rejected_share, verify_traffic

MLA = MlaAttention(
    kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, q_lora_rank=1536, num_heads=128
)
# DeepSeek V3
SHAPE = ModelShape(
    layers=61,
    hidden_size=7168,
    intermediate_size=18_432,
    vocab_size=129_280,
    attention=MLA,
    experts=Experts(routed=256, per_token=8, shared=1, intermediate_size=2048, dense_layers=3),
)
ROW = 7168 * 2  # bytes of one token's activations


@pytest.mark.parametrize(
    ("layout", "reduced", "gathered", "all_to_all"),
    [
        pytest.param(Layout(tp=1), 0, 0, 0, id="one-rank-sends-nothing"),
        pytest.param(Layout(tp=8), 61 * 2 * 1.75 * 32 * ROW, 0, 0, id="tp-two-all-reduces-a-layer"),
        pytest.param(
            Layout(tp=8, attention_dp=8), 0, 61 * 1.75 * 8 * 32 * ROW, 0, id="dp-attention-gathers-everybodys-tokens"
        ),
        pytest.param(
            Layout(tp=8, attention_dp=2),
            61 * 1.5 * 32 * ROW,
            61 * 1.75 * 2 * 32 * ROW,
            0,
            id="groups-of-four-reduce-among-themselves",
        ),
        pytest.param(
            Layout(tp=8, attention_dp=8, all_to_all=True),
            0,
            3 * 1.75 * 8 * 32 * ROW,
            58 * 32 * 8 * 7 / 8 * 7168 * 4,
            id="ep-sends-each-token-to-its-experts",
        ),
        pytest.param(
            Layout(tp=8, attention_dp=8, all_to_all=True, dispatch_bytes=1 + 4 / 128),
            0,
            3 * 1.75 * 8 * 32 * ROW,
            58 * 32 * 8 * 7 / 8 * 7168 * (3 + 4 / 128),
            id="fp8-on-the-way-there",
        ),
        pytest.param(
            Layout(tp=8, all_to_all=True),
            61 * 1.75 * 32 * ROW + 3 * 1.75 * 32 * ROW,
            0,
            58 * 4 * 8 * 7 / 8 * 7168 * 4,
            id="a-group-of-all-shares-its-tokens-out",
        ),
    ],
)
def test_a_layout_sends_in_its_own_way(layout: Layout, reduced: float, gathered: float, all_to_all: float) -> None:
    """Batch 8 of each group, 3 drafts and the root: 32 tokens."""
    found = verify_traffic(SHAPE, layout, batch=8, width=4, emitted_length=2.5)
    assert (found.reduced, found.gathered, found.all_to_all) == pytest.approx((reduced, gathered, all_to_all))
    assert found.rejected == pytest.approx(0.375 * (reduced + gathered + all_to_all))


def test_a_dense_model_exchanges_nothing() -> None:
    dense = ModelShape(layers=2, hidden_size=8, intermediate_size=8, vocab_size=8, attention=MLA)
    found = verify_traffic(dense, Layout(tp=2, attention_dp=2, all_to_all=True), batch=1, width=2, emitted_length=1.5)
    assert found.all_to_all == 0
    assert found.gathered == 2 * 1.0 * 2 * 2 * 8 * 2


@pytest.mark.parametrize(
    ("width", "length", "share"), [(4, 4.0, 0.0), (4, 1.0, 0.75), (8, 2.0, 0.75), (1, 1.0, 0.0)], ids=str
)
def test_what_is_rejected_was_sent_for_nothing(width: int, length: float, share: float) -> None:
    assert rejected_share(width, length) == pytest.approx(share)


def test_where_acceptance_is_not_known_neither_is_what_was_sent_for_nothing() -> None:
    found = verify_traffic(SHAPE, Layout(tp=8), batch=8, width=4, emitted_length=None)
    assert found.total > 0
    assert (found.rejected_share, found.rejected) == (None, None)
