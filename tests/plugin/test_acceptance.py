"""Which values an accept threshold may be set to while the engine serves."""

import math

import pytest

from spec_toolkit.plugin.acceptance import changes_acceptance

IN_FORCE = {"threshold_single": 0.9, "threshold_acc": 1.0}


@pytest.mark.parametrize(
    "requested",
    [
        pytest.param({"threshold_single": 0.89}, id="looser"),
        pytest.param({"threshold_single": 0.95}, id="tighter-but-not-exact"),
        pytest.param({"threshold_acc": 0.9}, id="no-longer-exact"),
        pytest.param({"threshold_acc": 1.5}, id="above-one-is-not-exact-either"),
        pytest.param({"threshold_acc": math.nan}, id="no-number"),
        pytest.param({"threshold_acc": 0.0, "other": 1}, id="among-others"),
    ],
)
def test_the_rule_is_not_changed(requested):
    assert changes_acceptance(requested, IN_FORCE)


@pytest.mark.parametrize(
    "requested",
    [
        pytest.param({"threshold_single": 0.9}, id="what-it-is"),
        pytest.param({"threshold_single": 1, "threshold_acc": 1.0}, id="back-to-exact"),
        pytest.param({"other": 0.5}, id="another-key"),
        pytest.param({}, id="nothing"),
    ],
)
def test_near_misses_pass(requested):
    assert not changes_acceptance(requested, IN_FORCE)
