from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.engine.command_line.table import flag_table
from spec_toolkit.errors import RecipeError, Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.recipe.command import read_command
from spec_toolkit.recipe.from_command import Defaults, Drawn, Machines, to_recipe
from spec_toolkit.recipe.load import parse_recipe
from spec_toolkit.recipe.render import recipe_text
from spec_toolkit.terms import Acceptance, Method

EIGHT = Machines(gpu="h200", count=8)
KNOWN = Defaults(
    sglang="0.5.23",
    max_running_requests=48,
    context_tokens=4096,
    steps_topk_width=(3, 1, 4),
    refused_flags={flag.flag: flag.why for flag in load_tables().engine.refused_flags},
)


def drawn(flags: str, machines: Machines = EIGHT, defaults: Defaults = KNOWN, before: str = "") -> Drawn:
    return to_recipe(read_command(f"{before} sglang serve a/b {flags}"), machines, defaults)


def at(recipe: object, path: str) -> object:
    for name in path.split("."):
        recipe = getattr(recipe, name)
    return recipe


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        pytest.param("--tp 8 --ep 4", {"hardware.layout.tp": 8, "hardware.layout.ep": 4, "draft.method": Method.NONE}, id="layout"),
        pytest.param("--tp 8 --dp 8 --enable-dp-attention", {"hardware.layout.dp": 8, "hardware.layout.dp_attention": True}, id="attention-dp"),
        pytest.param("--tp 8 --attn-dp-size 4", {"hardware.layout.dp": 4, "hardware.layout.dp_attention": True}, id="attention-dp-as-it-is-written-now"),
        pytest.param("--tp 4 --dp 2", {"hardware.layout.dp": 2, "hardware.layout.dp_attention": False}, id="near-miss-whole-copies"),
        pytest.param("--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
                     {"draft.method": Method.MTP, "draft.num_steps": 3, "draft.num_draft_tokens": None}, id="a-chains-width-follows"),
        pytest.param("--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16",
                     {"draft.topk": 4, "draft.num_draft_tokens": 16}, id="a-trees-is-a-choice"),
        pytest.param("--speculative-algorithm NEXTN", {"draft.num_steps": 3, "draft.topk": 1}, id="the-engines-own-steps"),
        pytest.param("--speculative-algo NEXTN --speculative-draft-model-path g/gemma-assistant --speculative-num-steps 5",
                     {"draft.method": Method.FROZEN_KV_MTP, "draft.model": "g/gemma-assistant"}, id="assistant"),
        pytest.param("--speculative-algo EAGLE --speculative-draft-model-path a/b --speculative-num-steps 1", {"draft.model": "same"}, id="draft-inside"),
        pytest.param("--speculative-algo DSPARK --speculative-dspark-block-size 8 --speculative-num-steps 1", {"draft.method": Method.DSPARK, "draft.block_tokens": 8, "draft.num_steps": None}, id="a-block"),
        pytest.param("--speculative-algo EAGLE --speculative-num-steps 1 --speculative-use-rejection-sampling", {"draft.acceptance": Acceptance.REJECTION}, id="rejection"),
        pytest.param("--speculative-algo EAGLE --speculative-num-steps 1 --speculative-accept-threshold-single 0.9",
                     {"draft.acceptance": Acceptance.RELAXED, "draft.accept_threshold_single": 0.9}, id="relaxed"),
        pytest.param("--speculative-algo EAGLE --speculative-num-steps 1 --speculative-accept-threshold-single 1.0",
                     {"draft.acceptance": Acceptance.TARGET_ONLY}, id="near-miss-not-relaxed"),
        pytest.param("--max-running-requests 64 --context-length 32k", {"limits.max_running_requests": 64, "limits.context_tokens": 32_000}, id="limits"),
        pytest.param("--cuda-graph-max-bs 24", {"limits.max_running_requests": 24}, id="the-graphs-end"),
        pytest.param("--cuda-graph-bs 4 2 1 2", {"graphs.decode_batch_sizes": (1, 2, 4)}, id="graphs"),
        pytest.param("--kv-cache-dtype auto --moe-a2a-backend none", {"engine.kv_cache_dtype": None, "hardware.layout.moe_a2a_backend": None}, id="the-engine-may-choose"),
        pytest.param("--kv-cache-dtype fp8_e4m3 --moe-a2a-backend deepep", {"engine.kv_cache_dtype": "fp8_e4m3", "hardware.layout.moe_a2a_backend": "deepep"}, id="near-miss-chosen"),
        pytest.param("--quantization modelopt_fp4", {"target.quantization": "nvfp4"}, id="quantisation"),
        pytest.param("--revision " + "0" * 40, {"target.revision": "0" * 40}, id="commit"),
        pytest.param("--revision main", {"target.revision": None}, id="near-miss-a-branch"),
        pytest.param("--chunked-prefill-size 4096", {"engine.chunked_prefill_tokens": 4096, "engine.extra_args": ()}, id="chunk"),
        pytest.param("--disable-overlap-schedule --watchdog-timeout 120", {"engine.overlap": False, "policy.watchdog_seconds": 120}, id="others"),
    ],
)  # fmt: skip
def test_a_flag_becomes_the_key_it_has(flags, keys):
    recipe = drawn(flags).recipe
    assert {path: at(recipe, path) for path in keys} == keys
    assert recipe.engine.extra_args == ()


@pytest.mark.parametrize(
    ("flags", "extra"),
    [
        pytest.param("--trust-remote-code", [("--trust-remote-code", None)], id="switch"),
        pytest.param("--page-size 64", [("--page-size", 64)], id="number"),
        pytest.param("--mamba-track-interval -1", [("--mamba-track-interval", -1)], id="negative-number"),
        pytest.param(
            "--json-model-override-args '{\"a\": 1}'", [("--json-model-override-args", '{"a": 1}')], id="json"
        ),
        pytest.param("--no-dllm-fdfo", [("--no-dllm-fdfo", None)], id="switched-off"),
        pytest.param("--pipeline-parallel-size 2", [("--pp-size", 2)], id="full-name"),
    ],
)
def test_any_other_flag_becomes_an_extra_argument_with_a_reason(flags, extra):
    recipe = drawn(flags).recipe
    assert [(arg.flag, arg.value) for arg in recipe.engine.extra_args] == extra
    assert all("command" in arg.why for arg in recipe.engine.extra_args)


@pytest.mark.parametrize(
    ("flags", "rules"),
    [
        pytest.param("--host 0.0.0.0 --port 30000 --enable-metrics", ["init.cap", "init.seen-to"], id="seen-to"),
        pytest.param("--max-running-requests 8 --speculative-token-map x", ["init.left-out"], id="refused-in-a-recipe"),
        pytest.param(
            "--max-running-requests 8 --chunked-prefill-size -1", ["init.left-out"], id="what-the-key-cannot-say"
        ),
        pytest.param("--max-running-requests 8 --lora-paths a b", ["init.left-out"], id="several-values"),
        pytest.param("--max-running-requests 8 --revision main", ["init.revision"], id="branch"),
        pytest.param("--max-running-requests 8 --speculative-algo UNO", ["init.algorithm"], id="no-method"),
        pytest.param("--max-running-requests 8 --speculative-algo EAGLE", ["init.shape"], id="steps-of-the-engine"),
        pytest.param("--max-running-requests 8", [], id="near-miss-nothing-to-say"),
    ],
)
def test_what_is_lost_or_added_is_said(flags, rules):
    assert [finding.rule for finding in drawn(flags).findings] == rules


def test_variables_and_another_engines_image_are_said():
    text = "docker run -e SGLANG_X=1 lmsysorg/sglang:v0.5.10 sglang serve a/b --max-running-requests 8"
    found = to_recipe(read_command(text), EIGHT, KNOWN)
    assert [finding.rule for finding in found.findings] == ["init.image", "init.environment"]
    assert found.recipe.engine.image is None
    same = to_recipe(read_command(text.replace("0.5.10", "0.5.23")), EIGHT, KNOWN)
    assert same.recipe.engine.image == "lmsysorg/sglang:v0.5.23"


@pytest.mark.parametrize(
    ("text", "defaults", "rule"),
    [
        pytest.param("sglang serve $M", KNOWN, "init.no-model", id="model"),
        pytest.param(
            "sglang serve a/b", Defaults(sglang="0.5.23", max_running_requests=48), "init.context", id="context"
        ),
    ],
)
def test_what_nobody_can_fill_in_is_refused(text, defaults, rule):
    with pytest.raises(RecipeError) as caught:
        to_recipe(read_command(text), EIGHT, defaults)
    assert [finding.rule for finding in caught.value.findings] == [rule]


def test_the_text_has_the_houses_form():
    text = recipe_text(drawn("--tp 8 --speculative-algo EAGLE --page-size 64 --cuda-graph-bs 1 2").recipe, ["Why."])
    assert (
        text
        == """\
# Why.
summary: b on 8 H200, from a launch command; nothing was measured.

target:
  model: a/b

draft:
  method: mtp
  num_steps: 3
  topk: 1
  acceptance: target_only

hardware:
  gpu: h200
  count: 8
  layout:
    tp: 8

engine:
  sglang: 0.5.23
  extra_args:
    - {flag: --page-size, value: 64, why: it stands in the launch command that this recipe was written from}

limits:
  max_running_requests: 48
  context_tokens: 4096

graphs:
  decode_batch_sizes: [1, 2]
"""
    )


NUMBERS = st.integers(1, 64).map(str)
ROWS = sorted(
    {row for row in flag_table().by_name.values() if row.dest not in {"help", "config"}}, key=lambda row: row.names
)


@st.composite
def flags(draw):
    row = draw(st.sampled_from(ROWS))
    name = draw(st.sampled_from(row.names))
    if row.takes == "none":
        return name
    text = st.sampled_from(["x", "a/b", "é", "yes", "1:30", "null", "a b", ": ", "#"]).map(lambda value: f"'{value}'")
    of_type = {
        "text": text,
        "json": st.just("'{}'"),
        "float": st.sampled_from(["0.5", "1", "3"]),
        "int": NUMBERS,
        "size": NUMBERS,
    }
    value = draw(st.sampled_from(row.choices) if row.choices else of_type[row.type])
    return f"{name}={value}"


@given(st.lists(flags(), max_size=6).map(" ".join))
def test_what_is_written_is_read_as_it_was(line):
    launch = read_command(f"sglang serve a/b {line}")
    assert not [finding for finding in launch.findings if finding.verdict is Verdict.REFUSE]
    recipe = to_recipe(launch, EIGHT, KNOWN).recipe
    try:
        read = parse_recipe(recipe_text(recipe).encode(), Path("x.yaml")).recipe
    except RecipeError as error:  # a number that no recipe may hold
        rules = {finding.rule for finding in error.findings}
        assert rules <= {"recipe.range", "recipe.text"}, error  # noqa: PT017 - most lines end in the other branch
    else:
        assert read == recipe
