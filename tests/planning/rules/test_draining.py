import pytest

from spec_toolkit.planning.rules import draining
from tests.planning.field_cases import build_deployed


def found(rule, longest=None, **pod):
    workload = {"longest_request_seconds": longest}
    return [f"{f.rule}={f.verdict.value}" for f in rule(build_deployed({"workload": workload, "pod": pod}))]


def stop(seconds):
    return {"where": "pod.yaml:9", "kind": "sleep", "seconds": seconds}


@pytest.mark.parametrize(
    ("pre_stop", "corrected"), [(None, True), (stop(0), True), (stop(4), True), (stop(5), False), (stop(None), False)]
)
def test_a_pod_leaves_the_endpoints_before_it_ends(pre_stop, corrected):  # C117
    assert found(draining.pre_stop, pre_stop=pre_stop) == (["cluster.pre-stop=correct"] if corrected else [])


@pytest.mark.parametrize(
    ("longest", "grace", "pre_stop", "warned"),
    [
        (120, 30, None, True),  # C117
        (120, 124, None, True),
        (120, 125, None, False),
        (120, 125, stop(10), True),
        (120, 130, stop(10), False),
        (150, 60, stop(5), True),  # C118
        (40, 60, stop(5), False),
        (None, 1, None, False),
        (None, 30, stop(29), False),
    ],
)
def test_grace_covers_the_longest_request(longest, grace, pre_stop, warned):
    findings = found(draining.grace, longest, grace_seconds=grace, pre_stop=pre_stop)
    assert findings == (["cluster.grace=warn"] if warned else [])


@pytest.mark.parametrize("longest", [None, 5])
@pytest.mark.parametrize("seconds", [20, 30])
def test_a_grace_that_ends_before_its_pre_stop_is_none(longest, seconds):
    assert found(draining.grace, longest, grace_seconds=20, pre_stop=stop(seconds)) == ["cluster.grace=refuse"]
