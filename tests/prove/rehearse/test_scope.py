"""The list of what was not exercised speaks of the recipe at hand."""

import re
from pathlib import Path

import pytest

from spec_toolkit.launch.planned import plan_recipe
from spec_toolkit.prove.rehearse.scope import not_exercised
from spec_toolkit.prove.rehearse.tiny import Tiny
from spec_toolkit.recipe.catalogue import find_recipe

TINY = Tiny(target="rehearsal:deepseek_v3_tiny", draft="same", architecture="DeepseekV3ForCausalLM")


def listed(name: str) -> str:
    _, plan = plan_recipe(find_recipe(name))
    return "\n".join(not_exercised(plan, None if name.startswith("rehearsal/") else TINY, samples=True))


@pytest.mark.parametrize(
    ("name", "says", "is_silent_about"),
    [
        pytest.param(
            "deepseek_v3_h200",
            ("kernels of H200", "27 decode batches up to 64", "fp8 weights", "8 ranks and their links", "64 requests of up to 32,768", "fewer steps on several ranks"),
            ("sparse", "all-to-all", "attention DP", "nodes"),
            id="fp8-and-a-graph-list",
        ),
        pytest.param(
            "glm52_fp8_h200_balanced",
            ("8 ranks with attention DP 8", "deepep: all-to-all", "Hadamard", "order among equal scores"),
            ("nvfp4",),
            id="attention-dp-and-deepep-and-sparse",
        ),
        pytest.param(
            "glm52_nvfp4_b200",
            ("kernels of B200 (the recipe names: the draft's experts triton)", "nvfp4 weights (the draft's layer: bf16)"),
            ("fp8 weights", "deepep"),
            id="nvfp4",
        ),
        pytest.param(
            "gemma4_31b_h200",
            ("arithmetic in bf16, and bf16 KV",),
            ("sparse", "scales", "2 ranks"),
            id="bf16-on-two-ranks",
        ),
        pytest.param(
            "rehearsal/deepseek_v3_cpu",
            ("kernels of a GPU", "speed of any real model"),
            ("ranks", "tokenizer", "intel_amx"),
            id="a-rehearsal",
        ),
    ],
)  # fmt: skip
def test_it_names_what_the_recipe_has_and_nothing_else(name, says, is_silent_about) -> None:
    text = listed(name)
    assert [words for words in says if words not in text] == []
    assert [words for words in is_silent_about if words in text] == []


def test_acceptance_and_graphs_are_never_left_out() -> None:
    for name in ("deepseek_v3_h200", "gemma4_e2b_h200", "rehearsal/deepseek_v3_cpu"):
        assert "acceptance, break-even and speed" in listed(name)
        assert "CUDA graphs" in listed(name)


def test_of_sampling_only_a_temperature_ran_and_only_where_anything_was_sampled() -> None:
    sentence = "top-k, top-p, min-p, penalties and seeds"
    _, plan = plan_recipe(find_recipe("deepseek_v3_h200"))
    assert any(sentence in each for each in not_exercised(plan, TINY, samples=True))
    assert not any(sentence in each for each in not_exercised(plan, TINY, samples=False))


def test_what_a_request_can_do_besides_is_listed() -> None:
    assert "cancelled or retracted, prompts that come in chunks" in listed("deepseek_v3_h200")
    assert "images (and sound, where the model takes it)" in listed("gemma4_31b_h200")
    assert "images" not in listed("deepseek_v3_h200")


def test_of_a_recipe_that_never_drafts_nothing_is_said_about_its_drafts(tmp_path: Path) -> None:
    text = find_recipe("glm52_fp8_h200_throughput").read_text()
    (tmp_path / "recipe.yaml").write_text(re.sub(r"(?m)^(\s+dp:) 8$", r"\1 4", text))
    _, plan = plan_recipe(tmp_path / "recipe.yaml")
    assert plan.recipe.hardware.layout.dp == 4
    said = "\n".join(not_exercised(plan, TINY, samples=False))
    assert "8 ranks" in said
    assert "fewer steps" not in said
    assert "sampled" not in said
    assert "share one request's attention" in said
    assert "drafts" not in said


@pytest.mark.parametrize(("dp", "is_said"), [(4, True), (8, False)])
def test_ranks_that_share_a_requests_attention_did_not_run(tmp_path: Path, dp: int, is_said: bool) -> None:
    text = find_recipe("deepseek_v3_h200_throughput").read_text()
    (tmp_path / "recipe.yaml").write_text(re.sub(r"(?m)^(\s+dp:) 8$", rf"\1 {dp}", text))
    _, plan = plan_recipe(tmp_path / "recipe.yaml")
    assert plan.recipe.hardware.layout.dp == dp
    assert ("share one request's attention" in "\n".join(not_exercised(plan, TINY, samples=True))) is is_said


def test_the_arithmetic_of_a_rehearsals_own_recipe_is_told(tmp_path: Path) -> None:
    text = find_recipe("rehearsal/deepseek_v3_cpu").read_text()
    (tmp_path / "recipe.yaml").write_text(text.replace("dtype: float32", "dtype: bfloat16"))
    _, plan = plan_recipe(tmp_path / "recipe.yaml")
    assert "kernels in PyTorch, in bfloat16" in "\n".join(not_exercised(plan, None, samples=True))


def test_who_would_move_the_engine_did_not_run() -> None:
    assert "supervisor, gateway and sidecar" in listed("deepseek_v3_h200")


def test_the_ranks_of_a_rehearsal_are_its_own_number() -> None:
    """Taken as it is, however many it has: not two for many."""
    _, plan = plan_recipe(find_recipe("deepseek_v3_h200"))
    assert "two ran, over gloo" in "".join(not_exercised(plan, TINY, samples=True))
    assert "two ran, over gloo" not in "".join(not_exercised(plan, None, samples=True))
