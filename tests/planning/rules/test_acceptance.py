from typing import Any

import pytest

from spec_toolkit.planning.rules import acceptance
from tests.planning.rules.launches import ASSISTANT, GEMMA, launch, said

_SWITCH = "speculative_use_rejection_sampling"
_CHAIN, _METHOD = "features.rejection-needs-chain", "features.rejection-method"


@pytest.mark.parametrize(
    ("algorithm", "topk", "expected"),
    [
        pytest.param("EAGLE", 1, [], id="a-chain"),
        pytest.param("NEXTN", 1, [], id="its-alias"),
        pytest.param("EAGLE3", None, [], id="eagle3"),
        pytest.param("EAGLE", 4, [_CHAIN], id="a-tree"),
        pytest.param("STANDALONE", 1, [_METHOD], id="standalone"),
        pytest.param("STANDALONE", 2, [_CHAIN, _METHOD], id="both"),
        pytest.param("NGRAM", 1, [_METHOD], id="ngram"),
        pytest.param("DFLASH", 1, [_METHOD], id="dflash"),
        pytest.param("DSPARK", 1, [_METHOD], id="dspark"),
        pytest.param(None, None, [], id="near-miss-no-speculation"),
    ],
)
def test_rejection_is_for_chains_of_eagle_and_eagle3(
    algorithm: str | None, topk: int | None, expected: list[str]
) -> None:
    asked = {"speculative_algorithm": algorithm, "speculative_eagle_topk": topk}
    assert said(acceptance.rejection(launch(**asked, **{_SWITCH: True}))) == [
        (rule, "refuse", _SWITCH) for rule in expected
    ]
    assert not said(acceptance.rejection(launch(**asked)))


def test_before_an_assistant_it_starts_and_fails_when_a_request_samples() -> None:
    given = launch(GEMMA, speculative_algorithm="NEXTN", draft=ASSISTANT, **{_SWITCH: True})
    (finding,) = acceptance.rejection(given)
    assert finding.rule == _METHOD
    assert "first request that samples" in finding.why


def test_a_token_map_leaves_no_whole_vocabulary_to_reject_over() -> None:
    asked = {"speculative_algorithm": "EAGLE", "speculative_token_map": "org/map"}
    assert [f.rule for f in acceptance.rejection(launch(**asked, **{_SWITCH: True}))] == ["acceptance.token-map"]
    assert not said(acceptance.rejection(launch(**asked)))


@pytest.mark.parametrize(
    ("value", "rejection", "expected"),
    [
        pytest.param(None, False, None, id="none"),
        pytest.param(1.0, False, None, id="one-is-the-default"),
        pytest.param(1.0, True, None, id="one-under-rejection"),
        pytest.param(0.9, False, ("features.relaxed-is-lossy", "warn"), id="below-one"),
        pytest.param(0.9, True, ("acceptance.thresholds-with-rejection", "refuse"), id="below-one-under-rejection"),
        pytest.param(0.0, False, ("acceptance.threshold", "refuse"), id="nothing"),
        pytest.param(1.5, False, ("acceptance.threshold", "refuse"), id="no-probability"),
    ],
)
@pytest.mark.parametrize("where", ["speculative_accept_threshold_single", "speculative_accept_threshold_acc"])
def test_a_threshold_below_one_is_called_lossy(
    where: str, value: float | None, rejection: bool, expected: tuple[str, str] | None
) -> None:
    asked: dict[str, Any] = {"speculative_algorithm": "EAGLE", where: value, _SWITCH: rejection or None}
    assert said(acceptance.thresholds(launch(**asked))) == ([(*expected, where)] if expected else [])
    assert not said(acceptance.thresholds(launch(**{**asked, "speculative_algorithm": None})))
