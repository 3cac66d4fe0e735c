import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spec_toolkit.planning.rules import cluster
from tests.planning.field_cases import build, build_deployed

MIB = 2**20
SHM = "/dev/shm"  # noqa: S108 - the path in a container
MEMORY = {"where": "pod.yaml:9", "path": SHM, "volume": "shm", "kind": "emptyDir", "medium": "Memory"}


def found(rule, server_args=None, **pod):
    deployed = build_deployed({"server_args": server_args or {}, "pod": pod})
    return [f"{f.rule}={f.verdict.value}" for f in rule(deployed)]


@pytest.mark.parametrize(
    ("tp", "mounts", "limit", "expected"),
    [
        pytest.param(8, [], None, "correct", id="none"),
        pytest.param(2, [], None, "correct", id="two-ranks"),
        pytest.param(1, [], None, None, id="near-miss-one-rank"),
        pytest.param(8, [MEMORY], None, None, id="near-miss-mounted"),
        pytest.param(8, [MEMORY | {"path": f"{SHM}/"}], None, None, id="near-miss-with-a-slash"),
        pytest.param(8, [MEMORY | {"path": f"{SHM}em"}], None, "correct", id="another-path"),
        pytest.param(8, [MEMORY | {"kind": "missing"}], None, "correct", id="no-such-volume"),
        pytest.param(8, [MEMORY | {"size_limit_bytes": 64 * MIB}], None, "correct", id="as-small-as-without"),
        pytest.param(8, [MEMORY | {"medium": None}], None, "warn", id="on-disk"),
        pytest.param(8, [MEMORY | {"size_limit_bytes": 2048 * MIB}], 1024 * MIB, "warn", id="above-the-memory-limit"),
        pytest.param(8, [MEMORY | {"size_limit_bytes": 1024 * MIB}], 1024 * MIB, None, id="near-miss-as-the-limit"),
        pytest.param(8, [MEMORY | {"kind": "hostPath", "medium": None}], None, None, id="near-miss-the-nodes"),
    ],
)
def test_ranks_of_a_pod_need_shared_memory(tp, mounts, limit, expected):  # C115
    findings = found(cluster.shared_memory, {"tp_size": tp}, mounts=mounts, memory_limit_bytes=limit)
    assert findings == ([f"cluster.shared-memory={expected}"] if expected else [])


@pytest.mark.parametrize(
    ("server_args", "ranks"),
    [
        ({}, 1),
        ({"tp_size": 8}, 8),
        ({"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 8),
        ({"tp_size": 8, "dp_size": 1, "enable_dp_attention": True}, 8),
        ({"tp_size": 8, "attn_dp_size": 8}, 8),
        ({"tp_size": 4, "dp_size": 2}, 8),
        ({"tp_size": 16, "nnodes": 2}, 8),
        ({"tp_size": 8, "pp_size": 2, "nnodes": 2}, 8),
        ({"tp_size": 8, "ep_size": 8}, 8),
    ],
)
def test_a_layout_takes_so_many_gpus_of_each_node(server_args, ranks):
    assert cluster.ranks_per_node(build({"server_args": server_args})) == ranks
    assert found(cluster.gpus, server_args, gpus=ranks) == []
    assert found(cluster.gpus, server_args, gpus=ranks + 1) == ["cluster.gpus=warn"]
    assert found(cluster.gpus, server_args, gpus=ranks - 1) == ["cluster.gpus=refuse"]
    assert found(cluster.gpus, server_args) == ["cluster.gpus=warn"]
    assert found(cluster.gpus, server_args | {"device": "cpu"}) == []


@pytest.mark.parametrize(
    ("nnodes", "size", "refused"), [(None, 2, False), (2, 2, False), (2, 1, True), (1, 2, True), (1, 1, False)]
)
def test_a_group_has_as_many_pods_as_the_launch_has_nodes(nnodes, size, refused):
    findings = found(cluster.nodes, {"nnodes": nnodes}, group_size=size)
    assert findings == (["cluster.nodes=refuse"] if refused else [])


@pytest.mark.parametrize(
    ("budget", "replicas", "group", "refused"),
    [
        ({"min_available": 1}, 1, 1, True),
        ({"min_available": 1}, 2, 1, False),
        ({"min_available": 2}, 2, 1, True),
        ({"min_available": 1}, 1, 2, False),  # a group of two pods: one may go
        ({"min_available": 1}, None, 1, False),  # an autoscaler may have set it
        ({"min_available": "50%"}, 1, 1, True),  # half of one, rounded up, is all
        ({"min_available": "50%"}, 2, 1, False),
        ({"min_available": "100%"}, None, 1, True),
        ({"max_unavailable": 0}, None, 1, True),
        ({"max_unavailable": "0%"}, 4, 1, True),
        ({"max_unavailable": "1%"}, 1, 1, False),  # rounded up, too
        ({"max_unavailable": 1}, 1, 1, False),
        ({"min_available": "most"}, 1, 1, False),  # Kubernetes refuses that by itself
        ({}, 1, 1, False),
    ],
)
def test_a_budget_lets_a_pod_go(budget, replicas, group, refused):  # C110
    budgets = [{"where": "pdb.yaml:7", "name": "engine"} | budget]
    findings = found(cluster.budgets, replicas=replicas, group_size=group, budgets=budgets)
    assert findings == (["cluster.budget=refuse"] if refused else [])


@pytest.mark.parametrize(
    ("skew", "replicas", "refused"),
    [
        ("10%", 1, True),
        ("99%", 1, True),
        ("100%", 1, False),
        ("25%", 4, False),
        ("24%", 4, True),
        (1, 1, False),
        (0, 4, True),
        ("25%", None, False),
        ("some", 1, False),
        (None, 1, False),
    ],
)
def test_a_rollout_moves_at_least_one_replica(skew, replicas, refused):  # C114
    findings = found(cluster.max_skew, replicas=replicas, rollout={"where": "rbg.yaml:20", "max_skew": skew})
    assert findings == (["cluster.max-skew=refuse"] if refused else [])


@given(
    st.one_of(st.integers(0, 100), st.text(max_size=5), st.integers(0, 200).map("{}%".format)),
    st.one_of(st.none(), st.integers(0, 1000)),
)
def test_no_share_is_a_traceback(share, replicas):
    for key in ("min_available", "max_unavailable"):
        found(cluster.budgets, replicas=replicas, budgets=[{"where": "x:1", "name": "x", key: share}])
    found(cluster.max_skew, replicas=replicas, rollout={"where": "x:1", "max_skew": share})


@pytest.mark.parametrize(("minimum", "refused"), [(1, False), (2, True)])
def test_a_budget_counts_the_pods_of_every_role_under_it(minimum, refused):
    budget = {"where": "pdb.yaml:7", "name": "engine", "min_available": minimum}
    roles = [
        build_deployed({"pod": {"role": role, "replicas": 1, "budgets": [budget]}}) for role in ("prefill", "decode")
    ]
    pods = tuple(deployed.pod for deployed in roles)
    findings = [list(cluster.budgets(replace(deployed, beside=pods))) for deployed in roles]
    assert [len(of_one) for of_one in findings] == ([1, 0] if refused else [0, 0])
