import pytest

from spec_toolkit.errors import Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.read_model import known_model
from spec_toolkit.planning.rules import precision
from spec_toolkit.recipe.schema import Target
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
        pytest.param(V3, "b200", "bfloat16", ("precision.kv-trtllm", "correct"), id="blackwells-mla-long-spelling"),
        pytest.param(V3, "b200", "bf16", None, id="near-miss-blackwells-mla-short-spelling"),
        pytest.param(V3, "h200", "bfloat16", None, id="near-miss-hopper-long-spelling"),
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


@pytest.mark.parametrize(
    ("model", "word", "says"),
    [
        pytest.param(_FP8, "nvfp4", "is nvfp4; deepseek-ai/DeepSeek-V3-0324 is stored in fp8", id="another-format"),
        pytest.param(_PLAIN, "fp8", "is stored in bf16", id="not-quantised"),
        pytest.param(_FP8, "fp8", None, id="near-miss-as-stored"),
        pytest.param(_FP8, None, None, id="near-miss-left-to-the-checkpoint"),
        pytest.param("somebody/else", "nvfp4", None, id="near-miss-a-checkpoint-that-nobody-read"),
    ],
)
def test_a_recipes_word_for_its_checkpoint_is_compared_with_it(model: str, word: str | None, says: str | None) -> None:
    found = list(precision.stored(Target(model=model, quantization=word), known_model(model, load_tables())))
    assert [(f.rule, f.verdict, f.where) for f in found] == (
        [("precision.not-as-stored", Verdict.WARN, "target.quantization")] if says else []
    )
    assert all(says in finding.sentence() for finding in found)


@pytest.mark.parametrize(
    ("architecture", "gpu", "asked", "rule"),
    [
        pytest.param(V3, "h200", {"kv_cache_dtype": "mxfp8"}, "precision.kv-gpu", id="mxfp8-hopper"),
        pytest.param(GEMMA, "h200", {"kv_cache_dtype": "nvfp4"}, "precision.kv-gpu", id="nvfp4-hopper"),
        pytest.param(GEMMA, "b200", {"kv_cache_dtype": "mxfp8"}, None, id="near-miss-mxfp8-blackwell"),
        pytest.param(GEMMA, "b200", {"kv_cache_dtype": "nvfp4"}, None, id="near-miss-nvfp4-blackwell"),
        pytest.param(GEMMA, None, {"kv_cache_dtype": "nvfp4"}, None, id="near-miss-no-gpu-known"),
        pytest.param(
            GEMMA,
            "b200",
            {"kv_cache_dtype": "nvfp4", "attention_backend": "triton"},
            "precision.kv-nvfp4",
            id="nvfp4-on-triton",
        ),
        pytest.param(GEMMA, "rtx_pro_6000", {"kv_cache_dtype": "nvfp4"}, "precision.kv-nvfp4", id="gemmas-triton"),
        pytest.param(
            GEMMA,
            "b200",
            {"kv_cache_dtype": "nvfp4", "decode_attention_backend": "triton"},
            "precision.kv-nvfp4",
            id="nvfp4-decoded-elsewhere",
        ),
        pytest.param(V3, "b200", {"kv_cache_dtype": "nvfp4"}, "precision.kv-nvfp4", id="nvfp4-mla-default"),
        pytest.param(
            V3, "b200", {"kv_cache_dtype": "nvfp4", "attention_backend": "flashinfer"}, None, id="near-miss-mla"
        ),
        pytest.param(
            V3,
            "b200",
            {"kv_cache_dtype": "nvfp4", "attention_backend": "flashinfer", "speculative_algorithm": "NGRAM"},
            "precision.kv-nvfp4",
            id="nvfp4-broad-ngram",
        ),
        pytest.param(V3, "h200", {"kv_cache_dtype": "fp4_mx_block16"}, "precision.kv-fp4", id="fp4-on-fa3"),
        pytest.param(
            V3,
            "h200",
            {"kv_cache_dtype": "fp4_mx_block16", "attention_backend": "flashinfer"},
            None,
            id="near-miss-fp4",
        ),
        pytest.param(GEMMA, "h200", {"kv_cache_dtype": "fp4_mx_block16"}, None, id="near-miss-fp4-gemma"),
        pytest.param(
            GEMMA,
            "h200",
            {"kv_cache_dtype": "fp4_mx_block16", "attention_backend": "fa4"},
            "precision.kv-fp4",
            id="fp4-gemma-fa4",
        ),
    ],
)
def test_small_formats_need_their_gpu_and_kernels(
    architecture: str, gpu: str | None, asked: dict[str, str], rule: str | None
) -> None:
    given = launch(architecture, **asked, **({"gpu": gpu} if gpu else {}))
    found = [f.rule for rule in (precision.blackwells_formats, precision.fp4_blocks) for f in rule(given)]
    assert found == ([rule] if rule else [])
