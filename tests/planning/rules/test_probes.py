import pytest

from spec_toolkit.planning.rules import probes
from tests.planning.field_cases import build_deployed

HTTP = {"where": "pod.yaml:9", "kind": "http", "path": "/ready"}


def found(rule, estimate=None, env=None, **pod):
    deployed = build_deployed({"estimate": estimate or {}, "env": env or {}, "pod": pod})
    return [f"{f.rule}={f.verdict.value}" for f in rule(deployed)]


def lasting(seconds, **more):
    return HTTP | {"period_seconds": 10, "failure_threshold": seconds // 10} | more


@pytest.mark.parametrize(
    ("estimate", "startup", "liveness", "expected"),
    [
        (1500, None, lasting(30, initial_delay_seconds=300), "refuse"),
        (1500, None, lasting(30, initial_delay_seconds=1470), "warn"),
        (1500, None, lasting(30, initial_delay_seconds=2220), None),
        (1500, lasting(600), None, "refuse"),
        (1500, lasting(1500), None, "warn"),
        (1500, lasting(2240), None, "warn"),
        (1500, lasting(2250), lasting(30), None),
        (None, None, lasting(30), "warn"),
        (None, None, lasting(1800), None),
        (None, lasting(600), lasting(30), "note"),
        (None, lasting(1800), lasting(30), None),
        (1500, None, None, None),
    ],
)
def test_a_probe_waits_for_the_load(estimate, startup, liveness, expected):  # C107
    findings = found(probes.start, {"start_seconds": estimate}, startup=startup, liveness=liveness)
    assert findings == ([f"probes.start={expected}"] if expected else [])


@pytest.mark.parametrize(
    ("silence", "liveness", "expected"),
    [
        (70, lasting(10), "refuse"),
        (70, lasting(130), "refuse"),
        (70, lasting(140), None),
        (None, lasting(10), "warn"),  # one miss
        (None, lasting(30), None),
        (70, None, None),
    ],
)
def test_liveness_outlasts_a_stall(silence, liveness, expected):  # C108
    findings = found(probes.stall, {"stall_seconds": silence}, liveness=liveness)
    assert findings == ([f"probes.stall={expected}"] if expected else [])


@pytest.mark.parametrize(
    ("path", "env", "silence", "corrected"),
    [
        ("/health", {}, 90, True),
        ("/health_generate?x=1", {}, 90, True),
        ("/health", {}, 20, True),
        ("/health", {}, 19, False),
        ("/health", {"SGLANG_HEALTH_CHECK_TIMEOUT": "91"}, 90, False),
        ("/health", {"SGLANG_HEALTH_CHECK_TIMEOUT": "90"}, 90, True),
        ("/health", {"SGLANG_HEALTH_CHECK_TIMEOUT": "$(T)"}, 90, False),  # not known
        ("/health", {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}, 90, False),
        ("/health_generate", {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}, 90, True),
        ("/ready", {}, 90, False),
        ("/healthz", {}, 90, False),
        ("/health", {}, None, False),
    ],
)
def test_the_engines_own_patience_outlasts_a_stall(path, env, silence, corrected):  # C126
    expected = ["probes.health-timeout=correct"] if corrected else []
    liveness = HTTP | {"path": path}
    assert found(probes.health_timeout, {"stall_seconds": silence}, env, liveness=liveness) == expected
    assert found(probes.health_timeout, {"stall_seconds": silence}, environment=env, liveness=liveness) == expected


@pytest.mark.parametrize("which", ["startup", "liveness", "readiness"])
@pytest.mark.parametrize(
    ("probe", "refused"),
    [
        ({"path": "/health"}, True),
        ({"path": "/health", "timeout_seconds": 2}, False),
        ({"path": "/ready"}, False),
        ({"kind": "tcp", "path": None}, False),
    ],
)
def test_an_answer_that_takes_a_second_is_given_more(which, probe, refused):  # C126
    findings = found(probes.probe_timeout, **{which: HTTP | probe})
    assert findings == (["probes.timeout=refuse"] if refused else [])


def test_an_unknown_start_says_how_fast_weights_would_have_to_come():
    pod = {"liveness": lasting(30, initial_delay_seconds=300)}
    deployed = build_deployed({"target": {"weight_bytes": 660_000_000_000}, "pod": pod})
    (finding,) = probes.start(deployed)
    assert "660 GB of weights alone would have to come at 2 GB/s" in finding.sentence()
