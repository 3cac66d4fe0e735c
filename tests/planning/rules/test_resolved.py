from typing import Any

import pytest
from msgspec.structs import replace

from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.resolved import Backends, Family, Generation
from tests.planning.rules.launches import ASSISTANT, GEMMA, GLM, V3, V4, V32, launch


@pytest.mark.parametrize(
    ("asked", "draft", "expected"),
    [
        pytest.param("EAGLE", None, "EAGLE", id="as-written"),
        pytest.param("nextn", None, "EAGLE", id="an-alias-in-lower-case"),
        pytest.param("NEXTN", ASSISTANT, "FROZEN_KV_MTP", id="before-an-assistant"),
        pytest.param("EAGLE3", ASSISTANT, "EAGLE3", id="near-miss-no-alias"),
        pytest.param("NEXTN", {"architectures": ["LlamaForCausalLMEagle"]}, "EAGLE", id="near-miss-another-draft"),
        pytest.param(None, None, None, id="none"),
    ],
)
def test_a_name_becomes_an_algorithm(asked: str | None, draft: dict[str, Any] | None, expected: str | None) -> None:
    given = launch(GEMMA, speculative_algorithm=asked, **({"draft": draft} if draft else {}))
    assert resolved.algorithm_of(given) == expected


@pytest.mark.parametrize(
    ("path", "promoted"), [("google/gemma-4-E4B-it-assistant", True), ("org/eagle-for-gemma", False), (None, False)]
)
def test_an_assistant_that_nobody_read_is_known_by_its_name(path: str | None, promoted: bool) -> None:
    given = launch(GEMMA, speculative_algorithm="NEXTN", speculative_draft_model_path=path)
    assert (resolved.algorithm_of(given) == "FROZEN_KV_MTP") is promoted


def test_the_heads_own_path_is_no_draft_of_its_own() -> None:
    assert not resolved.has_draft_of_its_own(launch(model_path="a/b", speculative_draft_model_path="a/b"))
    assert resolved.has_draft_of_its_own(launch(model_path="a/b", speculative_draft_model_path="a/c"))


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("h20", Generation.HOPPER),
        ("h200", Generation.HOPPER),
        ("b200", Generation.BLACKWELL),
        ("b300", Generation.BLACKWELL),
        ("cpu", None),
        (None, None),
    ],
)
def test_a_gpus_generation_follows_from_its_compute_capability(gpu: str | None, expected: Generation | None) -> None:
    assert resolved.generation_of(launch(**({"gpu": gpu} if gpu else {})).site) is expected


@pytest.mark.parametrize(
    ("architecture", "gpu", "asked", "expected"),
    [
        pytest.param(V3, "h200", {}, Backends("fa3", "fa3", "fa3", asked=False), id="mla-hopper"),
        pytest.param(V3, "b200", {}, Backends("trtllm_mla", "trtllm_mla", "trtllm_mla", asked=False), id="mla-b200"),
        pytest.param(
            V3, "h200", {"kv_cache_dtype": "fp8_e5m2"}, Backends("triton", "triton", "triton", asked=False), id="e5m2"
        ),
        pytest.param(V32, "h200", {}, Backends("dsa", "dsa", "dsa", asked=False), id="sparse"),
        pytest.param(
            V4, "h200", {"attention_backend": "fa3"}, Backends("dsv4", "dsv4", "dsv4", asked=True), id="v4-overrides"
        ),
        pytest.param(GEMMA, "h200", {}, Backends("triton", "triton", "triton", asked=False), id="gemma"),
        pytest.param(
            V3,
            "b200",
            {"decode_attention_backend": "fa3"},
            Backends("flashinfer", "fa3", "flashinfer", asked=True),
            id="half-asked",
        ),
        pytest.param(
            V3,
            "b200",
            {"attention_backend": "cutedsl_mla"},
            Backends("trtllm_mla", "cutedsl_mla", "cutedsl_mla", asked=True),
            id="decodes-alone",
        ),
        pytest.param(V3, None, {}, Backends(None, None, None, asked=False), id="no-gpu-said"),
        pytest.param(None, "h200", {}, Backends(None, None, None, asked=False), id="no-model-known"),
    ],
)
def test_the_attention_backend_is_the_engines(
    architecture: str | None, gpu: str | None, asked: dict[str, Any], expected: Backends
) -> None:
    assert resolved.backends_of(launch(architecture, **({"gpu": gpu} if gpu else {}), **asked)) == expected


@pytest.mark.parametrize(
    ("architecture", "asked", "expected"),
    [
        pytest.param(V4, {"page_size": 64}, 256, id="v4-overrides"),
        pytest.param(GLM, {}, 64, id="sparse"),
        pytest.param(V3, {}, None, id="backend-not-known"),
        pytest.param(V3, {"attention_backend": "fa3"}, 1, id="fa3"),
        pytest.param(V3, {"attention_backend": "flashmla", "page_size": 1}, 64, id="flashmla"),
        pytest.param(
            V3, {"prefill_attention_backend": "flashmla", "attention_backend": "fa3"}, 1, id="flashmla-prefill-alone"
        ),
        pytest.param(V3, {"attention_backend": "trtllm_mla", "page_size": 32}, 32, id="one-of-two"),
        pytest.param(GEMMA, {"attention_backend": "trtllm_mha", "page_size": 16}, 16, id="one-of-four"),
        pytest.param(GEMMA, {"attention_backend": "fa4", "gpu": "b200"}, 128, id="fa4-b200"),
        pytest.param(V3, {"attention_backend": "fa4", "gpu": "b200"}, 1, id="fa4-mla"),
    ],
)
def test_a_page_is_as_large_as_the_backend_takes_it(
    architecture: str, asked: dict[str, Any], expected: int | None
) -> None:
    assert resolved.page_tokens(launch(architecture, **asked)) == expected


NVFP4 = "nvidia/DeepSeek-V3-0324-NVFP4"


@pytest.mark.parametrize(
    ("model", "gpu", "dtype", "expected"),
    [
        ("deepseek-ai/DeepSeek-V3.2", "h200", None, "bfloat16"),
        ("deepseek-ai/DeepSeek-V3.2", "b200", None, "fp8_e4m3"),
        ("deepseek-ai/DeepSeek-V3.2", None, None, None),
        ("deepseek-ai/DeepSeek-V3.2", None, "fp8_e4m3", "fp8_e4m3"),
        ("deepseek-ai/DeepSeek-V3.2", "b200", "bf16", "bfloat16"),  # the engine spells it out for these models alone
        ("nvidia/DeepSeek-V3.2-NVFP4", "h200", None, "bfloat16"),  # whatever the checkpoint says
        ("deepseek-ai/DeepSeek-V4-Flash", None, "auto", "fp8_e4m3"),
        ("deepseek-ai/DeepSeek-V3-0324", "b200", None, "auto"),
        ("deepseek-ai/DeepSeek-V3-0324", "b200", "bf16", "bf16"),
        ("deepseek-ai/DeepSeek-V3-0324", "h200", "fp8_e5m2", "fp8_e5m2"),
        (NVFP4, "b200", None, "fp8_e4m3"),  # the checkpoint says so
        (NVFP4, None, "auto", "fp8_e4m3"),
        (NVFP4, "b200", "bfloat16", "bfloat16"),  # written goes first
        ("nvidia/Gemma-4-31B-IT-NVFP4", "b200", None, "fp8_e4m3"),
        ("google/gemma-4-31B-it", "b200", None, "auto"),
        ("somebody/else", "b200", None, None),
    ],
)
def test_kv_is_stored_as_written_or_as_family_and_checkpoint_have_it(
    model: str, gpu: str | None, dtype: str | None, expected: str | None
) -> None:
    given = launch(model=model, kv_cache_dtype=dtype, **({"gpu": gpu} if gpu else {}))
    assert resolved.kv_word(given) == expected
    assert resolved.kv_is_fp8(given) is (None if expected is None else expected.startswith("fp8"))


def test_a_model_of_the_tables_is_known_by_its_attention() -> None:
    assert resolved.family_of(launch(model="zai-org/GLM-5.1-FP8").target) is Family.DSA


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"speculative_algorithm": "EAGLE"}, 1),
        ({"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 4}, 4),
        ({"speculative_algorithm": "NGRAM", "speculative_eagle_topk": 4}, 1),
        ({"speculative_eagle_topk": 4}, 1),
    ],
)
def test_branches_are_of_algorithms_that_step(asked: dict[str, Any], expected: int) -> None:
    assert resolved.branches_of(launch(**asked)) == expected


def test_adaptive_speculation_is_kept_under_attention_data_parallelism_by_our_knob_alone() -> None:
    given = launch(speculative_algorithm="EAGLE", speculative_adaptive=True, tp_size=8, attn_dp_size=8)
    assert not resolved.is_adaptive(given)
    assert resolved.is_adaptive(replace(given, loads_knob=True))
    assert not resolved.is_adaptive(launch(speculative_algorithm="EAGLE"))
