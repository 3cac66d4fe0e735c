from typing import Any

import pytest

from spec_toolkit.planning.rules import draft_parallel as rules
from tests.planning.rules.launches import V3, V4, launch, said

_DP8 = {"tp_size": 8, "attn_dp_size": 8}
_OLD = {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({**_DP8, "speculative_algorithm": "EAGLE"}, [], id="eagle"),
        pytest.param(
            {**_OLD, "speculative_algorithm": "NGRAM"},
            [("draft-parallel.dp-algorithm", "refuse", "dp_size")],
            id="ngram",
        ),
        pytest.param(
            {**_DP8, "speculative_algorithm": "STANDALONE"},
            [("draft-parallel.dp-algorithm", "refuse", "attn_dp_size")],
            id="standalone",
        ),
        pytest.param({"tp_size": 8, "dp_size": 2, "speculative_algorithm": "NGRAM"}, [], id="near-miss-copies"),
        pytest.param(
            {"tp_size": 16, "attn_dp_size": 2, "speculative_algorithm": "EAGLE"},
            [("draft-parallel.partial-dp", "warn", "attn_dp_size")],
            id="groups",
        ),
        pytest.param({"tp_size": 16, "attn_dp_size": 2}, [], id="near-miss-groups-without-speculation"),
        pytest.param(
            {**_DP8, "speculative_algorithm": "EAGLE", "pins": {"sglang": "0.4.6"}},
            [("draft-parallel.version", "refuse", "attn_dp_size")],
            id="too-old",
        ),
        pytest.param(
            {**_DP8, "speculative_algorithm": "EAGLE", "pins": {"sglang": "0.4.7"}}, [], id="near-miss-old-enough"
        ),
        pytest.param({**_DP8, "pins": {"sglang": "0.4.6"}}, [], id="near-miss-too-old-without-speculation"),
    ],
)
def test_drafts_under_attention_data_parallelism(asked: dict[str, Any], expected: list[Any]) -> None:  # C029, C034
    assert said(rules.attention_data_parallel(launch(**asked))) == expected


_BLOCK = {"speculative_algorithm": "DSPARK", "enable_dp_lm_head": True}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({**_DP8, "speculative_algorithm": "DSPARK"}, [("draft-parallel.lm-head", "correct")], id="dspark"),
        pytest.param({**_OLD, "speculative_algorithm": "DFLASH"}, [("draft-parallel.lm-head", "correct")], id="dflash"),
        pytest.param({**_DP8, **_BLOCK}, [], id="near-miss-with-it"),
        pytest.param({"tp_size": 8, "speculative_algorithm": "DSPARK"}, [], id="near-miss-no-attention-ranks"),
        pytest.param({**_DP8, **_BLOCK, "attn_cp_size": 2}, [("draft-parallel.cp", "refuse")], id="context-parallel"),
        pytest.param(
            {**_DP8, **_BLOCK, "moe_a2a_backend": "deepep"}, [("draft-parallel.exchange", "refuse")], id="deepep"
        ),
        pytest.param({**_DP8, **_BLOCK, "moe_a2a_backend": "megamoe"}, [], id="near-miss-megamoe"),
        pytest.param(
            {**_DP8, **_BLOCK, "moe_a2a_backend": "mori", "env": {"SGLANG_RAGGED_VERIFY_MODE": "cap-accept"}},
            [("draft-parallel.ragged", "refuse")],
            id="ragged",
        ),
        pytest.param(
            {**_DP8, **_BLOCK, "env": {"SGLANG_RAGGED_VERIFY_MODE": "compact"}},
            [],
            id="near-miss-ragged-without-exchange",
        ),
        pytest.param(
            {**_DP8, **_BLOCK, "speculative_moe_a2a_backend": "deepep"},
            [("draft-parallel.exchange", "refuse")],
            id="anothers-exchange",
        ),
        pytest.param({**_DP8, **_BLOCK, "speculative_moe_a2a_backend": "none"}, [], id="near-miss-the-targets"),
        pytest.param(
            {**_DP8, "speculative_algorithm": "DFLASH", "enable_dp_lm_head": True, "moe_a2a_backend": "deepep"},
            [],
            id="near-miss-dflash",
        ),
    ],
)
def test_a_block_draft_samples_inside_its_attention_rank(asked: dict[str, Any], expected: list[Any]) -> None:  # C033
    assert [(rule, verdict) for rule, verdict, _ in said(rules.blocks_under_dp(launch(V4, **asked)))] == expected


_ON = {"SGLANG_ENABLE_PP_SPEC": "1"}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        pytest.param({"speculative_algorithm": "EAGLE"}, 1, id="one-server"),
        pytest.param(
            {"speculative_algorithm": "EAGLE", "disaggregation_mode": "prefill"}, 0, id="near-miss-a-prefill-role"
        ),
        pytest.param({"speculative_algorithm": "EAGLE", "disaggregation_mode": "decode"}, 1, id="a-decode-role"),
        pytest.param({"speculative_algorithm": "EAGLE", "env": _ON}, 0, id="near-miss-switched-on"),
        pytest.param(
            {"speculative_algorithm": "EAGLE", "env": _ON, "disaggregation_mode": "prefill"},
            1,
            id="switched-on-in-a-role",
        ),
        pytest.param(
            {"speculative_algorithm": "EAGLE", "env": _ON, "attn_dp_size": 8}, 1, id="switched-on-with-attention-ranks"
        ),
        pytest.param(
            {"speculative_algorithm": "EAGLE", "env": _ON, "speculative_adaptive": True},
            1,
            id="switched-on-and-adaptive",
        ),
        pytest.param(
            {"speculative_algorithm": "EAGLE", "enable_multi_layer_eagle": True, "disaggregation_mode": "prefill"},
            1,
            id="several-layers",
        ),
        pytest.param({"speculative_algorithm": "EAGLE3", "disaggregation_mode": "prefill"}, 1, id="eagle3"),
        pytest.param(
            {"speculative_algorithm": "DSPARK", "disaggregation_mode": "prefill"}, 0, id="near-miss-dspark-prefill"
        ),
        pytest.param({"speculative_algorithm": "DSPARK"}, 1, id="dspark"),
        pytest.param({}, 0, id="near-miss-no-speculation"),
        pytest.param({"speculative_algorithm": "EAGLE", "pp_size": 1}, 0, id="near-miss-one-stage"),
    ],
)
def test_a_draft_lies_on_the_last_stage(asked: dict[str, Any], found: int) -> None:  # C101
    given = launch(V3, **{"tp_size": 8, "pp_size": 2, **asked})
    assert said(rules.pipeline(given)) == [("draft-parallel.pipeline", "refuse", "pp_size")] * found
