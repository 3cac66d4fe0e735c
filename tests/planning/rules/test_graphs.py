from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.errors import Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.rules import graphs

LADDER = load_tables().engine.decode_graphs_speculating.v


@given(st.integers(1, 65_536))
def test_a_derived_list_climbs_to_the_cap_and_ends_there(cap: int) -> None:
    sizes = graphs.climb(LADDER, cap)
    assert sizes[-1] == cap
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] == 1
    assert max((later - size for size, later in pairwise(sizes)), default=0) <= 16


@pytest.mark.parametrize(
    ("keys", "cap"),
    [
        pytest.param({}, 64, id="one-rank-group"),
        pytest.param(
            {"hardware__layout__dp": 8, "hardware__layout__dp_attention": True}, 8, id="attention-ranks-share"
        ),
        pytest.param({"hardware__layout__dp": 8}, 64, id="near-miss-copies-do-not-share-a-batch"),
        pytest.param({"hardware__layout__dp": 100, "hardware__layout__dp_attention": True}, 1, id="at-least-one"),
    ],
)
def test_the_cap_is_of_one_ranks_batch(change: Any, keys: dict[str, Any], cap: int) -> None:
    assert graphs.batch_cap(change(**keys)) == cap


GROUPS_OF_FOUR = {"hardware__layout__dp": 2, "hardware__layout__dp_attention": True}


@pytest.mark.parametrize(
    ("keys", "cap", "end"),
    [
        pytest.param(GROUPS_OF_FOUR, 66, 36, id="four-ranks-share-33"),
        pytest.param(GROUPS_OF_FOUR, 64, 32, id="near-miss-32-divides"),
        pytest.param({"hardware__layout__moe_a2a_backend": "deepep"}, 33, 40, id="all-eight-share"),
        pytest.param({}, 33, 33, id="near-miss-nothing-is-gathered"),
    ],
)
def test_a_list_ends_where_the_ranks_of_a_request_can_share_it(
    change: Any, tables: Tables, keys: dict[str, Any], cap: int, end: int
) -> None:
    recipe = change(limits__max_running_requests=cap, graphs__decode_batch_sizes=None, **keys)
    assert graphs.derive_graph_list(recipe, tables.engine)[-1] == end


def test_a_list_out_of_order_is_planned_in_order(change: Any, tables: Tables) -> None:
    recipe = change(graphs__decode_batch_sizes=[8, 1, 8, 64])
    (finding,) = graphs.order(recipe)
    assert (finding.rule, finding.verdict) == ("graphs.order", Verdict.CORRECT)
    assert graphs.derive_graph_list(recipe, tables.engine) == (1, 8, 64)


def test_an_empty_list_is_refused(change: Any) -> None:
    (finding,) = graphs.order(change(graphs__decode_batch_sizes=[]))
    assert (finding.rule, finding.verdict) == ("graphs.empty", Verdict.REFUSE)


def test_a_list_left_open_is_the_engines_ladder_for_the_method(change: Any, tables: Tables) -> None:
    open_ = change(graphs__decode_batch_sizes=None)
    assert graphs.derive_graph_list(open_, tables.engine)[:4] == (1, 2, 3, 4)
    autoregressive = change(graphs__decode_batch_sizes=None, draft__method="none")
    assert graphs.derive_graph_list(autoregressive, tables.engine)[:4] == (1, 2, 4, 8)


def test_a_cpu_has_no_graphs(change: Any, tables: Tables) -> None:
    recipe = change(hardware__gpu="cpu")
    assert graphs.derive_graph_list(recipe, tables.engine) == ()
    assert [finding.rule for finding in graphs.graphs_on_cpu(recipe)] == ["graphs.cpu"]
    assert not list(graphs.graphs_on_cpu(change()))


@pytest.mark.parametrize(("cap", "method", "found"), [(48, "mtp", 0), (49, "mtp", 1), (64, "none", 0)], ids=str)
def test_above_48_requests_the_engine_would_not_admit_by_itself(
    change: Any, tables: Tables, cap: int, method: str, found: int
) -> None:
    recipe = change(limits__max_running_requests=cap, draft__method=method)
    assert [f.rule for f in graphs.request_cap(recipe, tables.engine)] == ["capacity.request-cap"] * found


@pytest.mark.parametrize(("cap", "found"), [(256, 0), (257, 1)], ids=str)
def test_of_deepseek_v4_the_engine_admits_256_by_itself(change: Any, tables: Tables, cap: int, found: int) -> None:
    recipe = change(limits__max_running_requests=cap)
    model = tables.model("deepseek-ai/DeepSeek-V4-Flash")
    assert len(list(graphs.request_cap(recipe, tables.engine, model))) == found
