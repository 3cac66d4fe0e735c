from typing import Any

import pytest

from spec_toolkit.planning.rules import draft_moe
from tests.planning.rules.launches import V4, launch, said

_ASKED = {"gpu": "b200", "quantization": "modelopt_fp4", "speculative_algorithm": "EAGLE"}
_RUNNER, _A2A = "speculative_moe_runner_backend", "speculative_moe_a2a_backend"
_KERNELS, _EXCHANGE = ("draft-moe.kernels", "correct", _RUNNER), ("draft-moe.exchange", "correct", _A2A)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, [_KERNELS, _EXCHANGE], id="nothing-said"),
        pytest.param({"moe_runner_backend": "flashinfer_trtllm"}, [_KERNELS, _EXCHANGE], id="the-targets-said"),
        pytest.param(
            {"speculative_draft_model_path": "org/m", "model_path": "org/m"}, [_KERNELS, _EXCHANGE], id="its-own-path"
        ),
        pytest.param({_RUNNER: "triton"}, [_EXCHANGE], id="half-said"),
        pytest.param({_RUNNER: "triton", _A2A: "none"}, [], id="near-miss-both-said"),
        pytest.param({_RUNNER: "flashinfer_trtllm"}, [("draft-moe.kernels", "warn", _RUNNER)], id="by-hand"),
        pytest.param({_RUNNER: "deep_gemm", _A2A: "deepep"}, [], id="near-miss-others-by-hand"),
        pytest.param({"gpu": "h200"}, [], id="near-miss-hopper"),
        pytest.param({"quantization": "fp8"}, [], id="near-miss-fp8"),
        pytest.param({"speculative_algorithm": None}, [], id="near-miss-no-speculation"),
        pytest.param({"speculative_draft_model_path": "org/draft"}, [], id="near-miss-a-draft-of-its-own"),
    ],
)
def test_a_bf16_draft_of_an_fp4_target_gets_tritons_kernels(
    change: dict[str, Any], expected: list[Any]
) -> None:  # C070
    assert said(draft_moe.inherited_kernels(launch(**{**_ASKED, **change}))) == expected


def test_v4_is_another_matter() -> None:
    assert not said(draft_moe.inherited_kernels(launch(V4, **_ASKED)))
