import pytest

from spec_toolkit.planning.rules import precision
from tests.planning.rules.launches import GEMMA, GLM, V3, V4, V32, launch, said

_FP8, _PLAIN = "deepseek-ai/DeepSeek-V3-0324", "google/gemma-4-E4B-it"


@pytest.mark.parametrize(
    ("architecture", "gpu", "dtype", "expected"),
    [
        pytest.param(V32, None, "fp8_e5m2", ("precision.kv-sparse", "refuse"), id="sparse"),
        pytest.param(GLM, None, "nvfp4", ("precision.kv-sparse", "refuse"), id="sparse-fp4"),
        pytest.param(V32, None, "bf16", None, id="near-miss-sparse-short-spelling"),
        pytest.param(V4, None, "bf16", ("precision.kv-v4", "correct"), id="v4-short-spelling"),
        pytest.param(V4, None, "fp8_e5m2", ("precision.kv-v4", "refuse"), id="v4"),
        pytest.param(V4, None, "bfloat16", None, id="near-miss-v4"),
        pytest.param(V3, "b200", "fp8_e5m2", ("precision.kv-trtllm", "refuse"), id="blackwells-mla-kernels"),
        pytest.param(V3, "h200", "fp8_e5m2", ("precision.kv-e5m2", "warn"), id="where-it-runs"),  # C084
        pytest.param(GEMMA, "h200", "fp8_e5m2", ("precision.kv-e5m2", "warn"), id="gemma"),
        pytest.param(V3, "b200", "fp8_e4m3", None, id="near-miss-the-usual-kind"),
        pytest.param(V3, "b200", "auto", None, id="near-miss-open"),
        pytest.param(V3, "b200", None, None, id="near-miss-left-out"),
    ],
)
def test_a_cache_is_kept_in_a_format_its_kernels_read(
    architecture: str, gpu: str | None, dtype: str | None, expected: tuple[str, str] | None
) -> None:
    given = launch(architecture, kv_cache_dtype=dtype, **({"gpu": gpu} if gpu else {}))
    assert said(precision.kv_cache(given)) == ([(*expected, "kv_cache_dtype")] if expected else [])


@pytest.mark.parametrize(
    ("model", "quantization", "found"), [(_FP8, "fp8", 1), (_FP8, None, 0), (_PLAIN, "fp8", 0), (_FP8, "w4afp8", 0)]
)
def test_what_the_checkpoint_says_need_not_be_asked_for(
    model: str, quantization: str | None, found: int
) -> None:  # C084
    given = launch(model=model, quantization=quantization)
    assert said(precision.redundant(given)) == [("precision.redundant", "warn", "quantization")] * found
