from typing import Any

import pytest

from spec_toolkit.planning.rules import prefill
from tests.planning.rules.launches import ASSISTANT, GEMMA, GLM, V3, V4, launch, said


@pytest.mark.parametrize(
    ("algorithm", "found"),
    [
        ("EAGLE", 0),
        ("NEXTN", 0),
        ("EAGLE3", 0),
        ("DSPARK", 0),
        ("DFLASH", 0),
        ("NGRAM", 1),
        ("STANDALONE", 1),
        (None, 0),
    ],
)
def test_a_mixed_step_wants_a_draft_that_can_go_on_from_it(algorithm: str | None, found: int) -> None:  # C099
    expected = [("prefill.mixed-ignored", "warn", "enable_mixed_chunk")] * found
    assert said(prefill.mixed(launch(speculative_algorithm=algorithm, enable_mixed_chunk=True))) == expected
    assert not said(prefill.mixed(launch(speculative_algorithm=algorithm)))


def test_an_assistant_cannot() -> None:  # C099
    assert said(prefill.mixed(launch(GEMMA, draft=ASSISTANT, speculative_algorithm="NEXTN", enable_mixed_chunk=True)))


@pytest.mark.parametrize(
    ("architecture", "asked", "found"),
    [
        pytest.param(GLM, {"chunked_prefill_size": 8192}, 0, id="whole"),
        pytest.param(GLM, {"chunked_prefill_size": 8200}, 1, id="not-whole"),
        pytest.param(V4, {"chunked_prefill_size": 4096, "tp_size": 8, "attn_dp_size": 8}, 0, id="whole-on-each-rank"),
        pytest.param(
            V4, {"chunked_prefill_size": 1024, "tp_size": 8, "attn_dp_size": 8}, 1, id="half-a-page-on-each-rank"
        ),
        pytest.param(V3, {"chunked_prefill_size": 8200}, 0, id="near-miss-page-not-known"),
        pytest.param(GLM, {"chunked_prefill_size": -1}, 0, id="near-miss-no-chunks"),
        pytest.param(
            GLM, {"chunked_prefill_size": 8200, "disaggregation_mode": "decode"}, 0, id="near-miss-a-decode-role"
        ),
        pytest.param(GLM, {}, 0, id="near-miss-left-out"),
    ],
)
def test_a_chunk_is_whole_pages_on_every_rank(architecture: str, asked: dict[str, Any], found: int) -> None:
    assert (
        said(prefill.chunk_of_pages(launch(architecture, **asked)))
        == [("prefill.chunk-pages", "refuse", "chunked_prefill_size")] * found
    )


@pytest.mark.parametrize(
    ("context", "tried", "found"),
    [
        (1_048_576, 1000, 1),
        (1_048_576, 65_535, 1),
        (1_048_576, 65_536, 0),
        (262_144, 1000, 1),
        (131_072, 1000, 0),
        (1_048_576, None, 0),
        (None, 1000, 0),
    ],
)
def test_a_long_context_is_tried_with_a_long_prompt(context: int | None, tried: int | None, found: int) -> None:  # C097
    workload = {"canary_prompt_tokens": tried} if tried else {}
    asked = launch(V4, context_length=context, speculative_algorithm="DSPARK", workload=workload)
    assert said(prefill.canary(asked)) == [("prefill.canary", "warn", "workload.canary_prompt_tokens")] * found
    assert not said(prefill.canary(launch(V4, context_length=context, workload=workload)))


_MULTIPLEXED = {"enable_pdmux": True, "chunked_prefill_size": -1, "disable_overlap_schedule": True}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        pytest.param({"enable_pdmux": True}, "chunks of a prompt or with the overlap schedule", id="bare"),
        pytest.param({**_MULTIPLEXED, "chunked_prefill_size": 8192}, "chunks of a prompt", id="chunks"),
        pytest.param({**_MULTIPLEXED, "disable_overlap_schedule": None}, "the overlap schedule", id="overlap"),
        pytest.param({**_MULTIPLEXED, "pp_size": 2}, "pipeline stages", id="stages"),
        pytest.param({**_MULTIPLEXED, "disaggregation_mode": "prefill"}, "a role of its own", id="role"),
        pytest.param(_MULTIPLEXED, None, id="near-miss-alone"),
        pytest.param({"enable_pdmux": False}, None, id="near-miss-off"),
    ],
)
def test_prefill_and_decode_on_one_gpu_go_with_little_else(asked: dict[str, Any], says: str | None) -> None:
    found = [finding.sentence() for finding in prefill.multiplexed(launch(**asked))]
    assert [says in sentence for sentence in found] == ([True] if says else [])
