import pytest

from spec_toolkit.planning.rules import group
from tests.planning.field_cases import build

CHAIN = {
    "model_path": "a/b",
    "tp_size": 16,
    "nnodes": 2,
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
}


def found(leader, worker):
    return list(group.same_launch(build({"server_args": leader}), build({"server_args": worker})))


def test_ranks_that_launch_alike_pass():
    assert not found(CHAIN, CHAIN)


@pytest.mark.parametrize(
    "own",
    [{"node_rank": 1}, {"host": "127.0.0.1"}, {"port": 30001}, {"dist_init_addr": "a:1"}, {"enable_metrics": True}],
)
def test_what_is_a_ranks_own_may_differ(own):
    assert not found(CHAIN, CHAIN | own)


@pytest.mark.parametrize(
    "other",
    [
        {"speculative_num_steps": 5},
        {"tp_size": 8},
        {"kv_cache_dtype": "fp8_e4m3"},
        {"max_running_requests": 64},
        {"model_path": "a/c"},
        {"speculative_algorithm": None},
    ],
)
def test_anything_else_may_not(other):
    [finding] = found(CHAIN, CHAIN | other)
    [name] = other
    assert (finding.rule, finding.verdict.value, finding.where) == ("cluster.group-differs", "refuse", name)


def test_many_differences_are_counted():
    other = {
        "tp_size": 1,
        "nnodes": 3,
        "dtype": "x",
        "page_size": 64,
        "ep_size": 2,
        "quantization": "fp8",
        "pp_size": 2,
    }
    [finding] = found(CHAIN, CHAIN | other)
    assert "and 1 more" in finding.found
