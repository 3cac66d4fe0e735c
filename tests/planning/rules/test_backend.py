from typing import Any

import pytest

from spec_toolkit.planning.rules import backend
from tests.planning.rules.launches import ASSISTANT, GEMMA, GLM, V3, V4, V32, launch, said

_TOPK = "speculative_eagle_topk"
_TREE = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    _TOPK: 2,
    "speculative_num_draft_tokens": 4,
}
_CHAIN_ONLY, _PAGE_TREE = [("backend.chain-only", "refuse", _TOPK)], [("backend.page-tree", "refuse", _TOPK)]


@pytest.mark.parametrize(
    ("architecture", "asked", "expected"),
    [
        pytest.param(V3, {"attention_backend": "flashinfer"}, _CHAIN_ONLY, id="flashinfer-mla"),
        pytest.param(V3, {"attention_backend": "flashmla"}, _CHAIN_ONLY, id="flashmla"),
        pytest.param(V3, {"attention_backend": "trtllm_mla", "gpu": "b200"}, _CHAIN_ONLY, id="trtllm-mla"),
        pytest.param(V3, {"attention_backend": "tokenspeed_mla", "gpu": "b200"}, _CHAIN_ONLY, id="by-its-old-name"),
        pytest.param(
            V3, {"attention_backend": "fa3", "decode_attention_backend": "flashmla"}, _CHAIN_ONLY, id="one-phase"
        ),
        pytest.param(V3, {"gpu": "b200"}, _CHAIN_ONLY, id="the-engines-choice-on-b200"),
        pytest.param(V32, {}, _CHAIN_ONLY, id="sparse"),
        pytest.param(V3, {"attention_backend": "fa4", "page_size": 64}, _PAGE_TREE, id="fa4-over-pages"),
        pytest.param(V3, {"attention_backend": "fa4", "page_size": 1}, [], id="near-miss-fa4-without-pages"),
        pytest.param(V3, {"attention_backend": "fa3", "page_size": 64}, [], id="near-miss-fa3-over-pages"),
        pytest.param(V3, {"attention_backend": "triton", "page_size": 64}, [], id="near-miss-triton-over-pages"),
        pytest.param(V3, {"gpu": "h200"}, [], id="near-miss-the-engines-choice-on-h200"),
        pytest.param(V3, {}, [], id="near-miss-no-gpu-said"),
        pytest.param(None, {"attention_backend": "flashinfer"}, [], id="near-miss-flashinfer-without-mla"),
        pytest.param(V4, {_TOPK: 2}, [], id="v4-has-its-own"),
        pytest.param(V3, {"attention_backend": "flashmla", _TOPK: 1}, [], id="near-miss-a-chain"),
        pytest.param(
            V3, {"attention_backend": "flashmla", "speculative_algorithm": None}, [], id="near-miss-no-speculation"
        ),
    ],
)
def test_a_tree_wants_a_backend_that_verifies_one(
    architecture: str | None, asked: dict[str, Any], expected: list[Any]
) -> None:  # C024
    assert said(backend.chain_only(launch(architecture, **{**_TREE, **asked}))) == expected


def test_a_backend_that_the_engine_chose_is_called_its_choice() -> None:
    (finding,) = backend.chain_only(launch(V3, gpu="b200", **_TREE))
    assert "which the engine takes here" in finding.found


@pytest.mark.parametrize(
    ("name", "verdict"), [("triton", None), ("trtllm_mha", "warn"), ("fa4", "refuse"), (None, None)], ids=str
)
def test_an_assistant_drafts_trees_on_two_backends(name: str | None, verdict: str | None) -> None:
    asked = {**_TREE, "speculative_algorithm": "NEXTN", "attention_backend": name}
    expected = [("backend.chain-only", verdict, _TOPK)] if verdict else []
    assert said(backend.assistant_tree(launch(GEMMA, draft=ASSISTANT, gpu="h200", **asked))) == expected
    assert not said(backend.assistant_tree(launch(GEMMA, draft=ASSISTANT, **{**asked, _TOPK: 1})))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"attention_backend": "fa3", "page_size": 64}, 1),
        ({"attention_backend": "flashmla"}, 1),
        ({"attention_backend": "flashinfer", "page_size": 64}, 0),
        ({"attention_backend": "fa3"}, 0),
        ({}, 0),
    ],
)
def test_ngram_verifies_a_tree_whatever_topk_says(asked: dict[str, Any], found: int) -> None:
    given = launch(V3, speculative_algorithm="NGRAM", **asked)
    assert said(backend.ngram_pages(given)) == [("backend.page-tree", "refuse", "speculative_algorithm")] * found


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"attention_backend": "flex_attention"}, [("backend.flex", "refuse", "attention_backend")]),
        ({"attention_backend": "torch_native"}, [("backend.cannot-draft", "refuse", "attention_backend")]),
        ({"decode_attention_backend": "wave"}, [("backend.cannot-draft", "refuse", "decode_attention_backend")]),
        ({"attention_backend": "fa3"}, []),
        ({"attention_backend": "tokenspeed_mla"}, []),
        ({}, []),
    ],
)
def test_some_backends_cannot_draft(asked: dict[str, Any], expected: list[Any]) -> None:
    assert said(backend.can_draft(launch(V3, speculative_algorithm="EAGLE", **asked))) == expected
    assert not said(backend.can_draft(launch(V3, **asked)))


@pytest.mark.parametrize("architecture", [V32, GLM])
@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        ({"speculative_algorithm": "EAGLE", "attention_backend": "flashinfer"}, "refuse"),  # C027
        ({"kv_cache_dtype": "fp8_e4m3", "attention_backend": "flashmla"}, "refuse"),  # C083
        ({"attention_backend": "flashmla", "gpu": "b200"}, "refuse"),
        ({"kv_cache_dtype": "bfloat16", "attention_backend": "flashmla"}, "warn"),
        ({"speculative_algorithm": "EAGLE", "attention_backend": "dsa"}, None),
        ({"speculative_algorithm": "EAGLE", "attention_backend": "nsa"}, None),
        ({"speculative_algorithm": "EAGLE", "attention_backend": "intel_amx", "gpu": "cpu"}, None),  # a rehearsal
        ({"speculative_algorithm": "EAGLE", "attention_backend": "intel_amx"}, "refuse"),
        ({"speculative_algorithm": "EAGLE", "attention_backend": "torch_native", "gpu": "cpu"}, "refuse"),
        ({"speculative_algorithm": "EAGLE"}, None),
    ],
)
def test_sparse_attention_has_one_backend(architecture: str, asked: dict[str, Any], verdict: str | None) -> None:
    expected = [("backend.sparse", verdict, "attention_backend")] if verdict else []
    assert said(backend.sparse_attention(launch(architecture, **asked))) == expected
    assert not said(backend.sparse_attention(launch(V3, **asked)))


@pytest.mark.parametrize(
    ("name", "found"),
    [("fa3", 1), ("flashinfer", 1), ("flashmla", 1), ("triton", 0), ("trtllm_mha", 0), ("fa4", 0), (None, 0)],
)
@pytest.mark.parametrize("field", ["attention_backend", "prefill_attention_backend", "decode_attention_backend"])
def test_gemma_runs_on_three_of_nvidias(field: str, name: str | None, found: int) -> None:  # C028
    assert said(backend.gemma(launch(GEMMA, **{field: name}))) == [("backend.gemma", "refuse", field)] * found
    assert not said(backend.gemma(launch(V3, **{field: name})))


@pytest.mark.parametrize(("name", "found"), [("fa3", 1), ("dsv4", 0), ("compressed", 0), (None, 0)])
def test_v4_has_its_own_backend_whatever_is_written(name: str | None, found: int) -> None:
    assert (
        said(backend.v4(launch(V4, attention_backend=name))) == [("backend.v4", "correct", "attention_backend")] * found
    )


@pytest.mark.parametrize(
    ("name", "gpu", "found"),
    [
        ("trtllm_mla", "h200", 1),
        ("trtllm_mla", "b200", 0),
        ("cutedsl_mla", "h200", 1),
        ("cutedsl_mla", "b300", 0),
        ("fa3", "b200", 1),
        ("fa3", "h20", 0),
        ("triton", "h200", 0),
        ("fa3", None, 0),
    ],
)
def test_kernels_are_of_one_generation_of_gpus(name: str, gpu: str | None, found: int) -> None:
    given = launch(V3, attention_backend=name, **({"gpu": gpu} if gpu else {}))
    assert said(backend.on_this_gpu(given)) == [("backend.gpu", "refuse", "attention_backend")] * found


def test_cutedsl_decodes_alone() -> None:
    given = launch(V3, gpu="b200", prefill_attention_backend="cutedsl_mla")
    assert said(backend.on_this_gpu(given)) == [("backend.gpu", "refuse", "prefill_attention_backend")]


@pytest.mark.parametrize(("name", "found"), [("trtllm_mha", 1), ("hpc_ops", 1), ("trtllm_mla", 0), (None, 0)])
def test_some_backends_are_for_models_without_mla(name: str | None, found: int) -> None:
    assert (
        said(backend.of_its_kind(launch(V3, attention_backend=name)))
        == [("backend.kind", "refuse", "attention_backend")] * found
    )


_FP8 = {"kv_cache_dtype": "fp8_e4m3"}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"dsa_decode_backend": "triton"}, ["dsa_decode_backend"], id="rocms"),
        pytest.param({"dsa_prefill_backend": "tilelang", **_FP8}, ["dsa_prefill_backend"], id="tilelang-in-one-phase"),
        pytest.param(
            {"dsa_prefill_backend": "tilelang", "dsa_decode_backend": "tilelang", **_FP8}, [], id="near-miss-both"
        ),
        pytest.param({"dsa_prefill_backend": "tilelang", "kv_cache_dtype": "bfloat16"}, [], id="near-miss-bfloat16"),
        pytest.param({"dsa_decode_backend": "flashmla_kv", **_FP8}, [], id="near-miss-another"),
    ],
)
def test_sparse_attentions_two_kernels_read_one_cache(asked: dict[str, Any], expected: list[str]) -> None:
    assert said(backend.sparse_kernels(launch(GLM, **asked))) == [
        ("backend.sparse-kernels", "refuse", where) for where in expected
    ]
    assert not said(backend.sparse_kernels(launch(V3, **asked)))
