from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.engine.command_line.table import flag_table
from spec_toolkit.errors import RecipeError, Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.recipe.from_command import Defaults, Drawn, Machines, to_recipe
from spec_toolkit.recipe.keys_of_flags import KEYS
from spec_toolkit.recipe.load import parse_recipe
from spec_toolkit.recipe.render import recipe_text
from spec_toolkit.recipe.schema import Policy
from spec_toolkit.terms import Acceptance, Method, Mode
from tests.recipe.reading import read_command

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


# Of each flag that a key says: a value that is not the engine's own, and what the key then holds.
EAGLE = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1"
KEYED = {
    "model_path": ("--model-path c/d", "c/d"),
    "revision": (f"--revision {'1' * 40}", "1" * 40),
    "quantization": ("--quantization modelopt_fp4", "nvfp4"),
    "tp_size": ("--tp-size 4", 4),
    "dp_size": ("--dp-size 2", 2),
    "attn_dp_size": ("--attn-dp-size 2", 2),
    "ep_size": ("--ep-size 4", 4),
    "enable_dp_attention": ("--dp-size 2 --enable-dp-attention", True),
    "enable_dp_lm_head": ("--enable-dp-lm-head", True),
    "moe_a2a_backend": ("--moe-a2a-backend deepep", "deepep"),
    "nnodes": ("--nnodes 1", 1),
    "dtype": ("--dtype bfloat16", "bfloat16"),
    "attention_backend": ("--attention-backend fa3", "fa3"),
    "moe_runner_backend": ("--moe-runner-backend triton", "triton"),
    "flashinfer_mxfp4_moe_precision": ("--flashinfer-mxfp4-moe-precision bf16", "bf16"),
    "kv_cache_dtype": ("--kv-cache-dtype fp8_e4m3", "fp8_e4m3"),
    "chunked_prefill_size": ("--chunked-prefill-size 4096", 4096),
    "disable_overlap_schedule": ("--disable-overlap-schedule", False),
    "context_length": ("--context-length 2048", 2048),
    "max_running_requests": ("--max-running-requests 7", 7),
    "max_total_tokens": ("--max-total-tokens 9999", 9999),
    "mem_fraction_static": ("--mem-fraction-static 0.77", 0.77),
    "swa_full_tokens_ratio": ("--swa-full-tokens-ratio 0.3", 0.3),
    "watchdog_timeout": ("--watchdog-timeout 77", 77),
    "cuda_graph_bs_decode": ("--cuda-graph-bs-decode 2 1", (1, 2)),
    "cuda_graph_max_bs_decode": ("--cuda-graph-max-bs-decode 24", None),  # the cap says where the graphs end
    "speculative_algorithm": ("--speculative-algorithm NGRAM", Method.NGRAM),
    "speculative_draft_model_path": (f"{EAGLE} --speculative-draft-model-path c/d", "c/d"),
    "speculative_draft_model_revision": (f"{EAGLE} --speculative-draft-model-path c/d --speculative-draft-model-revision {'1' * 40}", "1" * 40),
    "speculative_num_steps": ("--speculative-algorithm EAGLE --speculative-num-steps 2", 2),
    "speculative_eagle_topk": ("--speculative-algorithm EAGLE --speculative-num-steps 2 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8", 4),
    "speculative_num_draft_tokens": ("--speculative-algorithm EAGLE --speculative-num-steps 2 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8", 8),
    "speculative_dspark_block_size": ("--speculative-algorithm DSPARK --speculative-dspark-block-size 8", 8),
    "speculative_use_rejection_sampling": (f"{EAGLE} --speculative-use-rejection-sampling", Acceptance.REJECTION),
    "speculative_accept_threshold_single": (f"{EAGLE} --speculative-accept-threshold-single 0.9", 0.9),
    "speculative_accept_threshold_acc": (f"{EAGLE} --speculative-accept-threshold-acc 0.9", 0.9),
    "speculative_moe_runner_backend": (f"{EAGLE} --speculative-moe-runner-backend auto", "auto"),
    "speculative_moe_a2a_backend": (f"{EAGLE} --speculative-moe-a2a-backend none", "none"),
}  # fmt: skip


@pytest.mark.parametrize("destination", KEYS)
def test_each_flag_with_a_key_reaches_it(destination):
    flags, value = KEYED[destination]
    recipe, plain = drawn(flags).recipe, drawn("").recipe
    assert at(recipe, KEYS[destination].path) == value
    assert recipe != plain or destination == "nnodes"  # of which the machines say as much
    assert recipe.engine.extra_args == ()
    assert "init.left-out" not in [finding.rule for finding in drawn(flags).findings]


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        pytest.param("--cuda-graph-max-bs-decode 64 --max-running-requests 256", "--cuda-graph-max-bs-decode", id="graphs-end-below-the-cap"),
        pytest.param(f"{EAGLE} --speculative-accept-threshold-single 1.5", "--speculative-accept-threshold-single", id="no-threshold"),
        pytest.param(f"{EAGLE} --speculative-num-draft-tokens 16", "--speculative-num-draft-tokens", id="not-the-chains-width"),
        pytest.param("--speculative-num-steps 3", "--speculative-num-steps", id="steps-of-nothing"),
        pytest.param(f"{EAGLE} --speculative-draft-model-revision {'1' * 40}", "--speculative-draft-model-revision", id="a-commit-of-nothing"),
        pytest.param("--tp 4 --dp 4 --attn-dp-size 2", "--dp-size", id="two-words-for-one-key"),
        pytest.param("--nnodes 2", "--nnodes", id="other-machines-were-named"),
        pytest.param("--speculative-algorithm DSPARK --speculative-dspark-block-size 8 --speculative-num-steps 1", "--speculative-num-steps", id="a-block-has-none"),
    ],
)  # fmt: skip
def test_a_value_that_no_key_took_is_said(flags, flag):
    assert [finding.where for finding in drawn(flags).findings if finding.rule == "init.left-out"] == [flag]


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param("--cuda-graph-max-bs-decode 64 --max-running-requests 64", id="the-cap"),
        pytest.param("--cuda-graph-max-bs-decode 8 --max-running-requests 64 --dp 8 --enable-dp-attention", id="each-ranks-share"),
        pytest.param("--cuda-graph-bs-decode 1 2 4 --cuda-graph-max-bs-decode 4 --max-running-requests 64", id="the-written-end"),
        pytest.param(f"{EAGLE} --speculative-num-draft-tokens 4 --max-running-requests 64", id="the-chains-width"),
        pytest.param(f"{EAGLE} --speculative-accept-threshold-single 1 --max-running-requests 64", id="the-engines-own"),
        pytest.param("--kv-cache-dtype auto --moe-a2a-backend none --max-running-requests 64", id="the-engine-chooses"),
        pytest.param(f"{EAGLE} --speculative-draft-model-path a/b --max-running-requests 64", id="the-draft-inside"),
    ],
)  # fmt: skip
def test_what_follows_from_the_keys_is_not_said_to_be_lost(flags):
    assert drawn(flags).findings == ()


def test_without_speculation_only_that_mode_is_allowed():
    assert drawn("--tp 8").recipe.policy.allow == (Mode.AUTOREGRESSIVE,)
    assert drawn("--speculative-algorithm UNO").recipe.policy.allow == (Mode.AUTOREGRESSIVE,)
    assert drawn(EAGLE).recipe.policy.allow == Policy().allow


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        pytest.param("--watermark-config", "hunter2hunter2", id="the-engine-hides-it"),
        pytest.param("--model-loader-extra-config", '{"a": {"db_password": "hunter2hunter2"}}', id="a-member"),
        pytest.param("--hicache-storage-backend-extra-config", '{"accessKey": "hunter2hunter2", "n": 1}', id="in-camels-case"),
        pytest.param("--model-loader-extra-config", '{"password": "hunter2hunter2', id="cut-off"),
        pytest.param("--kv-events-config", '{"endpoint": "tcp://me:hunter2hunter2@h:1"}', id="a-login"),
    ],
)  # fmt: skip
def test_a_secret_stays_out_of_the_recipe_and_is_not_said(flag, text):
    launch = read_command(f"sglang serve a/b --max-running-requests 8 {flag} '{text}'")
    found = to_recipe(launch, EIGHT, KNOWN)
    assert [(finding.rule, finding.where) for finding in found.findings] == [("init.left-out", flag)]
    assert "hunter2" not in repr((launch, found)) + recipe_text(found.recipe)


def test_an_object_without_secrets_is_carried_as_it_was():
    text = '{"max_tokens": 5000, "eos_token": "<end>", "num_key_value_heads": 8}'
    (extra,) = drawn(f"--json-model-override-args '{text}'").recipe.engine.extra_args
    assert extra.value == text


@pytest.mark.parametrize(
    ("tag", "kept"),
    [
        (":v0.5.18@sha256:" + "0" * 64, False),
        (":v0.5.23@sha256:" + "0" * 64, True),
        ("@sha256:" + "0" * 64, True),
        (":v0.5.18", False),
        (":nightly", False),
    ],
)
def test_an_image_of_another_version_is_left_out_digest_or_not(tag, kept):
    found = to_recipe(read_command(f"docker run lmsysorg/sglang{tag} sglang serve a/b"), EIGHT, KNOWN)
    assert (found.recipe.engine.image is not None) is kept
    assert ("init.image" in [finding.rule for finding in found.findings]) is not kept


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
