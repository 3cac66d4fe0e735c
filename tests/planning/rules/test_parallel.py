from typing import Any

import pytest

from spec_toolkit.planning.rules import parallel
from tests.planning.rules.launches import GLM, launch, said

_V3, _GEMMA = "deepseek-ai/DeepSeek-V3-0324", "google/gemma-4-E4B-it"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"tp_size": 8, "attn_dp_size": 8}, [], id="whole"),
        pytest.param({"tp_size": 8, "attn_dp_size": 2}, [], id="a-divisor"),
        pytest.param(
            {"tp_size": 8, "attn_dp_size": 3}, [("layout.dp-attention", "refuse", "attn_dp_size")], id="uneven"
        ),
        pytest.param(
            {"tp_size": 8, "dp_size": 16, "enable_dp_attention": True},
            [("layout.dp-attention", "refuse", "dp_size")],
            id="too-many",
        ),
        pytest.param({"tp_size": 8, "dp_size": 3}, [], id="near-miss-copies"),
        pytest.param(
            {"tp_size": 8, "dp_size": 2, "attn_dp_size": 8},
            [("layout.copies-and-ranks", "refuse", "dp_size")],
            id="both",
        ),
        pytest.param(
            {"tp_size": 8, "enable_dp_lm_head": True},
            [("layout.dp-lm-head", "correct", "enable_dp_lm_head")],
            id="a-head-for-nobody",
        ),
        pytest.param({"tp_size": 8, "attn_dp_size": 8, "enable_dp_lm_head": True}, [], id="near-miss-a-head"),
    ],
)
def test_attention_ranks_lie_inside_tp(asked: dict[str, Any], expected: list[Any]) -> None:
    assert said(parallel.attention_ranks(launch(**asked))) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"tp_size": 8, "attn_cp_size": 2}, [], id="cp"),
        pytest.param({"tp_size": 8, "attn_cp_size": 3}, ["layout.cp"], id="uneven"),
        pytest.param({"tp_size": 8, "attn_cp_size": 4, "attn_dp_size": 4}, ["layout.cp"], id="too-many-together"),
        pytest.param({"tp_size": 8, "moe_dp_size": 2, "attn_cp_size": 2}, [], id="moe-dp"),
        pytest.param({"tp_size": 8, "moe_dp_size": 2, "ep_size": 4, "attn_cp_size": 2}, [], id="moe-dp-and-ep"),
        pytest.param(
            {"tp_size": 8, "moe_dp_size": 2, "ep_size": 2, "attn_cp_size": 2},
            ["layout.moe-dp"],
            id="ep-does-not-fill-it",
        ),
        pytest.param({"tp_size": 8, "moe_dp_size": 3}, ["layout.moe-dp"], id="moe-dp-uneven"),
        pytest.param({"tp_size": 8, "moe_dp_size": 2}, ["layout.moe-dp"], id="moe-dp-without-cp"),
        pytest.param(
            {"tp_size": 8, "moe_dp_size": 2, "attn_cp_size": 2, "pp_size": 2},
            ["layout.moe-dp"],
            id="moe-dp-with-stages",
        ),
        pytest.param(
            {"tp_size": 8, "moe_dp_size": 2, "attn_cp_size": 2, "moe_a2a_backend": "deepep"},
            ["layout.moe-dp"],
            id="an-exchange-spans-tp",
        ),
    ],
)
def test_context_ranks_lie_inside_tp(asked: dict[str, Any], expected: list[str]) -> None:
    assert [rule for rule, _, _ in said(parallel.context_ranks(launch(**asked)))] == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"tp_size": 8, "ep_size": 8}, [], id="whole"),
        pytest.param({"tp_size": 8, "ep_size": 3}, [("layout.ep", "refuse")], id="uneven"),
        pytest.param(
            {"tp_size": 8, "ep_size": 4, "moe_a2a_backend": "deepep"},
            [("layout.ep", "correct")],
            id="an-exchange-spans-tp",
        ),
        pytest.param({"tp_size": 8, "moe_a2a_backend": "deepep"}, [], id="near-miss-left-out"),
        pytest.param({"tp_size": 8, "ep_size": 4, "moe_a2a_backend": "none"}, [], id="near-miss-no-exchange"),
        pytest.param({"tp_size": 12, "ep_size": 12}, [("layout.experts", "refuse")], id="256-experts-on-12"),
    ],
)
def test_experts_are_spread_inside_tp(asked: dict[str, Any], expected: list[Any]) -> None:
    assert [(rule, verdict) for rule, verdict, _ in said(parallel.experts(launch(model=_V3, **asked)))] == expected


@pytest.mark.parametrize(
    ("model", "asked", "found"),
    [
        pytest.param(_V3, {"tp_size": 16}, 0, id="128-heads-on-16"),
        pytest.param(_V3, {"tp_size": 12}, 1, id="128-heads-on-12"),
        pytest.param(_V3, {"tp_size": 12, "attn_dp_size": 12}, 0, id="near-miss-whole-on-each"),
        pytest.param("zai-org/GLM-5.1-FP8", {"tp_size": 128}, 1, id="64-heads-on-128"),
        pytest.param(_GEMMA, {"tp_size": 8}, 0, id="2-kv-heads-repeated-on-8"),
        pytest.param(_GEMMA, {"tp_size": 16}, 1, id="8-heads-on-16"),
        pytest.param("google/gemma-4-31B-it", {"tp_size": 3}, 1, id="32-heads-on-3"),
        pytest.param(_GEMMA, {}, 0, id="near-miss-one-rank"),
    ],
)
def test_ranks_share_heads_evenly(model: str, asked: dict[str, Any], found: int) -> None:
    assert [rule for rule, _, _ in said(parallel.heads(launch(model=model, **asked)))] == ["layout.heads"] * found


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"tp_size": 16, "nnodes": 2}, [], id="even"),
        pytest.param({"tp_size": 8, "nnodes": 3}, ["layout.nodes"], id="uneven"),
        pytest.param({"tp_size": 8, "pp_size": 3, "nnodes": 3}, [], id="near-miss-a-stage-on-each"),
        pytest.param({"tp_size": 8, "dp_size": 2, "nnodes": 2}, ["layout.copies-over-nodes"], id="copies"),
        pytest.param(
            {"tp_size": 16, "dp_size": 2, "nnodes": 2, "enable_dp_attention": True}, [], id="near-miss-attention-ranks"
        ),
        pytest.param({"tp_size": 16, "nnodes": 2, "node_rank": 2}, ["layout.node-rank"], id="third-of-two"),
        pytest.param({"tp_size": 16, "nnodes": 2, "node_rank": 1}, [], id="near-miss-second-of-two"),
        pytest.param({"node_rank": 1}, ["layout.node-rank"], id="second-of-one"),
    ],
)
def test_nodes_share_ranks_evenly(asked: dict[str, Any], expected: list[str]) -> None:
    assert [rule for rule, _, _ in said(parallel.nodes(launch(**asked)))] == expected


@pytest.mark.parametrize(
    ("asked", "site", "expected"),
    [
        pytest.param({"tp_size": 8}, {"gpu": "h200", "count": 8}, [], id="all"),
        pytest.param({"tp_size": 16}, {"gpu": "h200", "count": 8}, [("layout.count", "refuse")], id="too-many"),
        pytest.param({"tp_size": 4}, {"gpu": "h200", "count": 8}, [("layout.count", "warn")], id="too-few"),
        pytest.param({"tp_size": 4, "dp_size": 2}, {"gpu": "h200", "count": 8}, [], id="copies"),
        pytest.param(
            {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True},
            {"gpu": "h200", "count": 8},
            [],
            id="attention-ranks",
        ),
        pytest.param(
            {"tp_size": 8, "pp_size": 2}, {"gpu": "h200", "count": 8}, [("layout.count", "refuse")], id="stages"
        ),
        pytest.param({"tp_size": 16, "nnodes": 2}, {"gpu": "h200", "count": 8, "nodes": 2}, [], id="nodes"),
        pytest.param(
            {"tp_size": 16},
            {"gpu": "h200", "count": 8, "nodes": 2},
            [("layout.node-count", "refuse")],
            id="nodes-not-said",
        ),
        pytest.param({"tp_size": 16}, {}, [], id="near-miss-no-machine-said"),
        pytest.param({"tp_size": 2}, {"gpu": "cpu"}, [], id="near-miss-a-rehearsal"),
    ],
)
def test_ranks_have_gpus_under_them(asked: dict[str, Any], site: dict[str, Any], expected: list[Any]) -> None:
    assert [(rule, verdict) for rule, verdict, _ in said(parallel.gpus(launch(**asked, **site)))] == expected


@pytest.mark.parametrize(
    ("asked", "env", "expected"),
    [
        pytest.param({}, {}, [], id="near-miss-one-node"),
        pytest.param({"nnodes": 2}, {}, ["dist_init_addr", "NCCL_SOCKET_IFNAME"], id="not-a-word"),
        pytest.param(
            {"nnodes": 2, "dist_init_addr": "a:1"}, {"NCCL_SOCKET_IFNAME": "eth0"}, ["GLOO_SOCKET_IFNAME"], id="half"
        ),
        pytest.param(
            {"nnodes": 2, "dist_init_addr": "a:1"},
            {"NCCL_SOCKET_IFNAME": "b", "GLOO_SOCKET_IFNAME": "b"},
            [],
            id="near-miss-all",
        ),
    ],
)
def test_several_nodes_are_told_where_to_meet(
    asked: dict[str, Any], env: dict[str, str], expected: list[str]
) -> None:  # C103
    found = said(parallel.network(launch(tp_size=16, env=env, **asked)))
    assert [(verdict, where) for _, verdict, where in found] == [("warn", where) for where in expected]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param(launch(tp_size=8, enable_two_batch_overlap=True), 1, id="neither"),
        pytest.param(
            launch(tp_size=8, enable_two_batch_overlap=True, attn_dp_size=8), 0, id="near-miss-attention-ranks"
        ),
        pytest.param(
            launch(tp_size=8, enable_two_batch_overlap=True, moe_a2a_backend="deepep"), 0, id="near-miss-an-exchange"
        ),
        pytest.param(
            launch(model="zai-org/GLM-5.2-FP8", tp_size=8, enable_two_batch_overlap=True, moe_a2a_backend="deepep"),
            1,
            id="shared-indices",
        ),
        pytest.param(
            launch(model="zai-org/GLM-5.1-FP8", tp_size=8, enable_two_batch_overlap=True, moe_a2a_backend="deepep"),
            0,
            id="near-miss-own-indices",
        ),
        pytest.param(launch(GLM, tp_size=8), 0, id="near-miss-not-asked"),
    ],
)
def test_two_batches_overlap_where_something_is_exchanged(given: Any, found: int) -> None:
    assert [rule for rule, _, _ in said(parallel.two_batches(given))] == ["layout.overlap-two-batches"] * found


@pytest.mark.parametrize(
    "where", ["tp_size", "dp_size", "ep_size", "pp_size", "attn_dp_size", "attn_cp_size", "moe_dp_size", "nnodes"]
)
@pytest.mark.parametrize(("size", "found"), [(0, 1), (-1, 1), (1, 0), (None, 0)])
def test_a_layout_counts_from_one(where: str, size: int | None, found: int) -> None:
    given = launch(**{where: size})
    assert said(parallel.sizes(given)) == [("layout.size", "refuse", where)] * found
    assert not [f for rule in parallel.RULES[1:] for f in rule(given)]


_DP8 = {"tp_size": 8, "attn_dp_size": 8}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"tp_size": 8, "moe_a2a_backend": "flashinfer"}, ["moe_a2a_backend"], id="flashinfer-alone"),
        pytest.param({**_DP8, "moe_a2a_backend": "flashinfer"}, [], id="near-miss-flashinfer"),
        pytest.param(
            {"tp_size": 8, "attn_dp_size": 4, "moe_a2a_backend": "flashinfer_megamoe"}, ["moe_a2a_backend"], id="half"
        ),
        pytest.param(
            {**_DP8, "moe_a2a_backend": "flashinfer_megamoe", "gpu": "h200"}, ["moe_a2a_backend"], id="megamoe-hopper"
        ),
        pytest.param({**_DP8, "moe_a2a_backend": "flashinfer_megamoe", "gpu": "b200"}, [], id="near-miss-megamoe"),
        pytest.param({"tp_size": 8, "moe_a2a_backend": "pplx"}, ["moe_a2a_backend"], id="pplx-alone"),
        pytest.param({"tp_size": 8, "attn_dp_size": 2, "moe_a2a_backend": "pplx"}, [], id="near-miss-pplx"),
        pytest.param(
            {"moe_a2a_backend": "deepep_v2", "enable_two_batch_overlap": True}, ["moe_a2a_backend"], id="two-batches"
        ),
        pytest.param(
            {"moe_a2a_backend": "deepep_v2", "speculative_algorithm": "EAGLE"},
            ["speculative_moe_a2a_backend"],
            id="a-draft",
        ),
        pytest.param({"moe_a2a_backend": "deepep_v2", "speculative_algorithm": "NGRAM"}, [], id="near-miss-ngram"),
        pytest.param(
            {"moe_a2a_backend": "deepep_v2", "speculative_algorithm": "EAGLE", "speculative_moe_a2a_backend": "none"},
            [],
            id="near-miss-another",
        ),
        pytest.param({"moe_a2a_backend": "deepep", "speculative_algorithm": "EAGLE"}, [], id="near-miss-deepep"),
    ],
)
def test_an_exchange_asks_something_of_the_layout(asked: dict[str, Any], expected: list[str]) -> None:
    assert said(parallel.exchanges(launch(**asked))) == [("layout.exchange", "refuse", where) for where in expected]


@pytest.mark.parametrize(("mode", "found"), [("normal", 1), ("low_latency", 0), ("auto", 0), (None, 0)])
def test_deepeps_normal_mode_runs_without_graphs(mode: str | None, found: int) -> None:
    expected = [("layout.exchange-without-graphs", "warn", "deepep_mode")] * found
    assert said(parallel.exchanges(launch(moe_a2a_backend="deepep", deepep_mode=mode))) == expected
