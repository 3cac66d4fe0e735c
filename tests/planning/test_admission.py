from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.planning.admission import Admission, derive_admission, dispatch_of
from spec_toolkit.planning.chosen import cap_of
from spec_toolkit.planning.memory.ledger import Room
from spec_toolkit.planning.memory.rounds import widths_of
from tests.planning.launches import launch

MTP = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1}
DP8 = {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}
DEEPEP = {**DP8, "moe_a2a_backend": "deepep", "deepep_mode": "low_latency"}
VARIABLE = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"


def admission(**arguments: Any) -> Admission:
    found = derive_admission(launch(**arguments))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("arguments", "cap"),
    [
        pytest.param(MTP, 48, id="a-draft-and-nothing-said"),
        pytest.param({**MTP, "architecture": "DeepseekV4ForCausalLM"}, 256, id="deepseek-v4"),
        pytest.param({"architecture": "DeepseekV4ForCausalLM"}, 256, id="deepseek-v4-without-a-draft"),
        pytest.param({"speculative_algorithm": "NGRAM"}, 48, id="any-draft"),
        pytest.param({**MTP, "max_running_requests": 96}, 96, id="written"),
        pytest.param({}, None, id="without-a-draft-it-is-what-memory-leaves"),
    ],
)
def test_nobody_says_a_cap_and_the_engine_has_one(arguments: dict[str, Any], cap: int | None) -> None:
    assert cap_of(launch(**arguments)) == cap
    assert (derive_admission(launch(**arguments)) is None) is (cap is None)


@pytest.mark.parametrize(
    ("cap", "layout", "per_rank", "admitted"),
    [
        pytest.param(64, {"tp_size": 8}, 64, 64, id="one-group"),
        pytest.param(2048, {"tp_size": 16, "dp_size": 16, "enable_dp_attention": True}, 128, 2048, id="C005"),
        pytest.param(1536, DP8, 192, 1536, id="C006"),
        pytest.param(100, DP8, 12, 96, id="what-is-left-over-never-runs"),
        pytest.param(4, DP8, 1, 8, id="at-least-one-each"),
        pytest.param(64, {"tp_size": 8, "dp_size": 8}, 64, 64, id="near-miss-copies"),
    ],
)
def test_attention_ranks_share_the_cap(cap: int, layout: dict[str, Any], per_rank: int, admitted: int) -> None:
    found = admission(max_running_requests=cap, **layout, **MTP)
    assert (found.per_rank, found.admitted) == (per_rank, admitted)
    assert found.graphs[0].verify_tokens == 4 * per_rank
    assert found.in_order[0].requests == per_rank


@pytest.mark.parametrize(
    ("arguments", "width"),
    [
        pytest.param({}, 1, id="no-draft"),
        pytest.param(MTP, 4, id="a-chain"),
        pytest.param({**MTP, "speculative_num_draft_tokens": 16}, 4, id="a-chain-has-its-own-width"),
        pytest.param({"speculative_algorithm": "EAGLE"}, 4, id="the-engines-steps"),
        pytest.param({**MTP, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8}, 8, id="a-tree"),
        pytest.param({"speculative_algorithm": "DSPARK", "dspark_block": 5}, 6, id="the-checkpoints-block"),
        pytest.param(
            {"speculative_algorithm": "DSPARK", "speculative_dspark_block_size": 3, "dspark_block": 5}, 4, id="a-block"
        ),
        pytest.param({"speculative_algorithm": "DSPARK"}, None, id="a-block-nobody-read"),
    ],
)
def test_a_verify_pass_is_as_wide_as_what_is_drafted(arguments: dict[str, Any], width: int | None) -> None:
    assert widths_of(launch(**arguments)) == (() if width is None else (width,))


def test_every_step_count_the_policy_may_use_has_graphs_that_end_with_the_cap() -> None:
    """Of 4 ranks that share a request, an odd cap is no size of theirs."""
    situation = launch(
        tp_size=8,
        dp_size=2,
        enable_dp_attention=True,
        max_running_requests=66,
        cuda_graph_max_bs_decode=36,
        steps=(0, 1, 3),
        **MTP,
    )
    found = derive_admission(situation)
    assert found is not None
    assert [(graphs.width, graphs.verify_tokens) for graphs in found.graphs] == [(1, 33), (2, 66), (4, 132)]
    assert all(graphs.sizes[-1] >= 33 for graphs in found.graphs)
    assert [graphs.sizes[:3] for graphs in found.graphs] == [(4, 8, 12), (2, 4, 6), (1, 2, 3)]


def test_where_graphs_are_switched_off_there_is_none_to_end() -> None:
    found = admission(max_running_requests=64, disable_cuda_graph=True, **MTP)
    assert [graphs.sizes for graphs in found.graphs] == [()]
    assert [one.name for one in found.inequalities] == ["request-cap"]


def test_one_set_of_inequalities_says_what_binds_and_what_is_behind_it() -> None:
    """64 requests on each of 8 ranks, four positions each: C105, with 65,536 tokens of KV and 1,024 of context."""
    situation = launch(max_running_requests=512, cuda_graph_max_bs_decode=64, context_length=1024, **DEEPEP, **MTP)
    found = derive_admission(situation, Room(kv=65_536))
    assert found is not None
    told = {one.name: (one.left, one.limit, one.unit, one.holds) for one in found.inequalities}
    assert told == {
        "request-cap": (512, 512, "requests", True),
        "graphs.width-4": (64, 64, "requests", True),
        "graphs.draft": (64, 64, "requests", True),
        "dispatch": (256, 128, "tokens", False),
        "dispatch-ceiling": (128, 1024, "tokens", True),
        "kv": (65_536, 65_536, "tokens", True),
        "prefill-graphs": (1024, 1024, "tokens", True),
    }
    assert found.binding is not None
    assert (found.binding.name, found.binding.requests) == ("dispatch", 32)
    assert found.behind is not None
    assert (found.behind.name, found.behind.requests) == ("request-cap", 64)
    assert [one.name for one in found.inequalities if not one.holds] == ["dispatch"]


def test_memory_may_bind_first() -> None:
    found = derive_admission(launch(max_running_requests=64, context=4096, **MTP), Room(kv=100_000))
    assert found is not None
    assert found.binding is not None
    assert (found.binding.name, found.binding.requests) == ("kv", 24)
    assert found.behind is not None
    assert found.behind.name == "request-cap"


def test_a_request_takes_its_reserve_of_the_pool_too() -> None:
    situation = launch(max_running_requests=64, context=4096, **MTP)
    found = derive_admission(situation, Room(kv=100_000, of_request=4096 + 64))
    assert found is not None
    assert found.binding is not None
    assert (found.binding.left, found.binding.requests) == (64 * 4160, 24)


def test_a_pool_that_the_launch_limits_is_no_larger_than_that() -> None:
    found = derive_admission(launch(max_running_requests=64, max_total_tokens=8192, context=4096), Room(kv=100_000))
    assert found is not None
    assert [(one.name, one.requests) for one in found.in_order[:2]] == [("written-pool", 2), ("kv", 24)]


def test_a_windows_pool_may_bind_before_all_others() -> None:
    found = derive_admission(
        launch(max_running_requests=48, context=4096), Room(kv=10**6, windows=4145, of_request_windows=1037)
    )
    assert found is not None
    assert found.binding is not None
    assert (found.binding.name, found.binding.requests, found.binding.holds) == ("window-pool", 3, False)
    assert found.behind is not None
    assert found.behind.name == "request-cap"


def test_an_adaptive_launch_has_graphs_of_every_step_count_it_may_choose() -> None:
    found = admission(max_running_requests=64, cuda_graph_max_bs_decode=64, speculative_adaptive=True, **MTP)
    assert [graphs.width for graphs in found.graphs] == [1, 2, 4, 6, 8]


def test_who_wants_more_than_is_admitted_is_told_by_how_much() -> None:
    (cap,) = [
        one for one in admission(peak=8192, max_running_requests=1536, **DP8).inequalities if one.unit == "requests"
    ][:1]
    assert (cap.left, cap.limit, cap.holds) == (8192, 1536, False)
    assert "192 on each of 8 ranks" in cap.says


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        pytest.param(DEEPEP, {}, (128, False, 1), id="the-engines-own"),
        pytest.param(DEEPEP, {VARIABLE: "256"}, (256, True, 1), id="set"),
        pytest.param({**DEEPEP, "dp_size": 2}, {}, (128, False, 4), id="a-group-shares-its-tokens-out"),
        pytest.param({**DEEPEP, "deepep_mode": "auto"}, {}, (128, False, 1), id="auto-decodes-in-low-latency"),
        pytest.param({**DEEPEP, "deepep_mode": "normal"}, {}, None, id="near-miss-normal-mode"),
        pytest.param({**DEEPEP, "disaggregation_mode": "prefill"}, {}, None, id="near-miss-who-only-prefills"),
        pytest.param({**DEEPEP, "moe_a2a_backend": "flashinfer"}, {}, None, id="near-miss-another-exchange"),
        pytest.param({**DEEPEP, "moe_a2a_backend": None}, {}, None, id="near-miss-no-exchange"),
        pytest.param(DEEPEP, {VARIABLE: "many"}, None, id="no-number"),
    ],
)
def test_an_exchange_of_experts_has_a_buffer_on_each_rank(
    arguments: dict[str, Any], environment: dict[str, str], expected: Any
) -> None:
    found = dispatch_of(launch(environment=environment, **arguments))
    assert (None if found is None else (found.tokens, found.is_set, found.sharing)) == expected


@given(
    cap=st.integers(1, 4096),
    dp=st.sampled_from([1, 2, 8]),
    steps=st.integers(1, 7),
    kv=st.none() | st.integers(1, 10_000_000),
    exchange=st.sampled_from([None, "deepep"]),
)
def test_a_rank_may_run_exactly_what_every_inequality_allows(
    cap: int, dp: int, steps: int, kv: int | None, exchange: str | None
) -> None:
    arguments = {"tp_size": 8, "attn_dp_size": dp, "moe_a2a_backend": exchange, "context_length": 4096}
    arguments |= {"speculative_algorithm": "EAGLE", "speculative_num_steps": steps, "speculative_eagle_topk": 1}
    found = derive_admission(launch(max_running_requests=cap, **arguments), Room(kv=kv))
    assert found is not None
    requests = [one.requests for one in found.in_order]
    assert requests == sorted(requests)
    assert found.binding is found.in_order[0]
    for one in found.in_order if found.ranks == 1 else ():
        if one.name != "dispatch-ceiling":
            assert one.holds is (found.per_rank <= (one.requests or 0))
