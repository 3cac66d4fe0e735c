"""What rules about drafts, revisions and formats say of the engine, against its own resolver."""

from typing import Any

import msgspec
import pytest

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.launch.resolving.records import Outcome
from tests.launch.engine_says import engine_answers, engine_is_asked
from tests.planning.field_cases import build, of_launch

pytestmark = pytest.mark.engine

V3, V3_FP4, GEMMA = "deepseek-ai/DeepSeek-V3-0324", "nvidia/DeepSeek-V3-0324-NVFP4", "google/gemma-4-E4B-it"
ASSISTANT, COMMIT = f"{GEMMA}-assistant", "a" * 40
CHAIN = {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}


def question(gpu: str = "h200", **asked: Any):
    return engine_is_asked(msgspec.convert(asked, Arguments), gpu=gpu)


def refusals(gpu: str = "h200", **asked: Any) -> set[str]:
    draft = asked.get("speculative_draft_model_path")
    models = {"target": {"model": asked["model_path"]}, **({"draft": {"model": draft}} if draft else {})}
    findings = of_launch(build({"server_args": asked, "gpu": gpu, "count": 8, **models}))
    return {finding.rule for finding in findings if finding.verdict.value == "refuse"}


def assisted(algorithm: str) -> dict[str, Any]:
    return {"model_path": GEMMA, "speculative_algorithm": algorithm, "speculative_draft_model_path": ASSISTANT, **CHAIN}


FLAGS = {
    "fp8 of fp8": {"model_path": V3, "quantization": "fp8"},
    "fp4 of fp8, which it converts": {"model_path": V3, "quantization": "modelopt_fp4", "gpu": "b200"},
    "awq of fp8": {"model_path": V3, "quantization": "awq"},
    "gptq of fp8": {"model_path": V3, "quantization": "gptq"},
    "modelopt_fp8 of fp8": {"model_path": V3, "quantization": "modelopt_fp8"},
    "fp4 of fp4": {"model_path": V3_FP4, "quantization": "modelopt_fp4", "gpu": "b200"},
    "modelopt of fp4": {"model_path": V3_FP4, "quantization": "modelopt", "gpu": "b200"},
    "fp8 of fp4": {"model_path": V3_FP4, "quantization": "fp8", "gpu": "b200"},
    "awq of fp4": {"model_path": V3_FP4, "quantization": "awq", "gpu": "b200"},
    "modelopt_fp8 of fp4": {"model_path": V3_FP4, "quantization": "modelopt_fp8", "gpu": "b200"},
    "compressed-tensors of fp4": {"model_path": V3_FP4, "quantization": "compressed-tensors", "gpu": "b200"},
}
ASKED_FLAGS = {name: question(**asked) for name, asked in FLAGS.items()}
ALGORITHMS = {name: question(**assisted(name)) for name in ("NEXTN", "EAGLE", "nextn", "EAGLE3", "eagle3")}
REVISIONS = {
    "the head inside": {"revision": COMMIT},
    "a draft path": {"revision": COMMIT, "speculative_draft_model_path": V3},
    "a draft path and its revision": {
        "revision": COMMIT,
        "speculative_draft_model_path": V3,
        "speculative_draft_model_revision": "b" * 40,
    },
}
ASKED_REVISIONS = {
    name: question(model_path=V3, speculative_algorithm="EAGLE", **CHAIN, **asked) for name, asked in REVISIONS.items()
}
UNASSISTED = question(model_path=GEMMA, speculative_algorithm="NEXTN", **CHAIN)


@pytest.mark.parametrize("name", FLAGS)
def test_a_quantisation_flag_is_taken_where_we_say_so(name):  # C078
    refused = engine_answers(ASKED_FLAGS[name]).outcome is Outcome.REFUSED
    assert ("formats.quantization-flag" in refusals(**FLAGS[name])) is refused


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_assistants_algorithm(algorithm):  # C040
    answer = engine_answers(ALGORITHMS[algorithm])
    ours = "pairing.assistant-algorithm" in refusals(**assisted(algorithm))
    assert ours is (answer.outcome is Outcome.REFUSED)
    assert ours or answer.arguments["speculative_algorithm"] == "FROZEN_KV_MTP"


@pytest.mark.parametrize(
    ("name", "followed"),
    [("the head inside", COMMIT), ("a draft path", "main"), ("a draft path and its revision", "b" * 40)],
)
def test_which_revision_a_draft_follows(name, followed):  # C035
    answer = engine_answers(ASKED_REVISIONS[name])
    assert answer.arguments["speculative_draft_model_revision"] == followed
    floats = "pins.draft-revision" in refusals(model_path=V3, speculative_algorithm="EAGLE", **CHAIN, **REVISIONS[name])
    assert floats is (followed == "main")


def test_gemma_without_an_assistant_is_taken_in_silence():
    """The engine's checks do not see it, so the rule says what nobody else does."""
    answer = engine_answers(UNASSISTED)
    assert answer.outcome is Outcome.RESOLVED
    assert answer.arguments["speculative_draft_model_path"] is None
    assert "pairing.assistant-missing" in refusals(model_path=GEMMA, speculative_algorithm="NEXTN", **CHAIN)
