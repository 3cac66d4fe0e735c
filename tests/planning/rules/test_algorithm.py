import dataclasses
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spec_toolkit.facts.known import load_tables
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.planning.rules import algorithm
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import load_recipe
from tests.planning.rules.launches import ASSISTANT, GEMMA, V3, V4, launch, said

_CHAIN = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1}


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("EAGEL", "Did you mean EAGLE?"), ("mtp", "It knows EAGLE"), ("eagle3", None), ("NextN", None), (None, None)],
)
def test_an_unknown_algorithm_is_refused_with_the_nearest(name: str | None, remedy: str | None) -> None:
    found = list(algorithm.known_algorithm(launch(speculative_algorithm=name)))
    assert [f.rule for f in found] == (["algorithm.unknown"] if remedy else [])
    assert all(f.remedy.startswith(remedy or "") for f in found)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("NEXTN", "correct"),
        ("eagle", "correct"),
        ("dspark", "correct"),
        ("EAGLE3", "refuse"),
        ("NGRAM", "refuse"),
        ("EAGLE", None),
        ("DSPARK", None),
    ],
)
def test_v4_takes_two_names_spelled_so(name: str, verdict: str | None) -> None:  # C018
    expected = [("algorithm.v4", verdict, "speculative_algorithm")] if verdict else []
    assert said(algorithm.v4_algorithm(launch(V4, speculative_algorithm=name))) == expected
    assert not said(algorithm.v4_algorithm(launch(V3, speculative_algorithm=name)))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("EAGLE3", 1),
        ("STANDALONE", 1),
        ("DFLASH", 1),
        ("EAGLE", 0),
        ("NEXTN", 0),
        ("NGRAM", 0),
        ("DSPARK", 0),
        (None, 0),
    ],
)
def test_a_draft_that_is_a_model_of_its_own_is_named(name: str | None, found: int) -> None:
    where = ("features.draft-model", "refuse", "speculative_draft_model_path")
    assert said(algorithm.draft_model(launch(speculative_algorithm=name))) == [where] * found
    assert not said(algorithm.draft_model(launch(speculative_algorithm=name, speculative_draft_model_path="org/draft")))


def test_dspark_needs_its_stages_where_the_checkpoint_is_known() -> None:
    without, having = "deepseek-ai/DeepSeek-V4-Flash", "deepseek-ai/DeepSeek-V4-Flash-0731"
    assert said(algorithm.draft_model(launch(model=without, speculative_algorithm="DSPARK")))
    assert not said(algorithm.draft_model(launch(model=having, speculative_algorithm="DSPARK")))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({}, None, id="a-chain"),
        pytest.param({"speculative_algorithm": "eagle3"}, None, id="eagle3"),
        pytest.param({"speculative_algorithm": "STANDALONE"}, "STANDALONE", id="standalone"),
        pytest.param({"speculative_eagle_topk": 4}, "topk is 4", id="a-tree"),
        pytest.param({"tp_size": 8, "attn_dp_size": 8}, "8 ranks", id="attention-ranks"),
        pytest.param(
            {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, "8 ranks", id="attention-ranks-by-their-old-name"
        ),
        pytest.param({"dp_size": 8}, None, id="near-miss-copies"),
        pytest.param({"enable_multi_layer_eagle": True}, "one depth", id="several-layers"),
        pytest.param({"enable_two_batch_overlap": True}, "backend", id="two-batches"),
        pytest.param({"enable_pdmux": True}, "backends", id="multiplexed"),
    ],
)
def test_adaptive_speculation_that_is_dropped_is_said_with_its_reason(
    change: dict[str, Any], says: str | None
) -> None:  # C021, C031
    found = list(algorithm.adaptive(launch(**{**_CHAIN, **change}, speculative_adaptive=True)))
    assert [f.rule for f in found] == (["algorithm.adaptive-ignored"] if says else [])
    assert all((says or "") in f.why for f in found)
    assert not list(algorithm.adaptive(launch(**{**_CHAIN, **change})))


def test_before_an_assistant_adaptive_speculation_is_dropped() -> None:
    given = launch(GEMMA, **{**_CHAIN, "speculative_algorithm": "NEXTN"}, speculative_adaptive=True, draft=ASSISTANT)
    assert [f.rule for f in algorithm.adaptive(given)] == ["algorithm.adaptive-ignored"]


def test_our_knob_keeps_it_under_attention_data_parallelism() -> None:
    given = launch(**_CHAIN, tp_size=8, attn_dp_size=8, speculative_adaptive=True)
    assert list(algorithm.adaptive(given))
    assert not list(algorithm.adaptive(replace(given, loads_knob=True)))


@pytest.mark.parametrize(("steps", "found"), [(1, 0), (2, 1), (3, 0), (4, 1), (5, 0), (7, 0), (8, 1), (None, 0)])
def test_adaptive_steps_are_of_the_table(steps: int | None, found: int) -> None:
    given = launch(**{**_CHAIN, "speculative_num_steps": steps}, speculative_adaptive=True)
    assert (
        said(algorithm.adaptive_steps(given))
        == [("algorithm.adaptive-steps", "refuse", "speculative_num_steps")] * found
    )
    assert not said(algorithm.adaptive_steps(replace(given, loads_knob=True)))


def test_a_shape_without_an_algorithm_drafts_nothing() -> None:
    assert said(algorithm.without_algorithm(launch(speculative_num_steps=3, speculative_eagle_topk=1))) == [
        ("algorithm.missing", "warn", "speculative_num_steps")
    ]
    assert not said(algorithm.without_algorithm(launch(**_CHAIN)))
    assert not said(algorithm.without_algorithm(launch()))


@pytest.mark.parametrize(
    ("version", "found"),
    [("0.5.4", 0), ("0.5.5", 1), ("0.5.6", 1), ("0.5.9", 1), ("0.5.10", 0), ("0.5.23", 0), ("dev", 0)],
)
def test_a_tree_under_the_first_overlap_was_refused_by_the_releases_of_its_time(
    version: str, found: int
) -> None:  # C067
    tree = {**_CHAIN, "speculative_eagle_topk": 4}
    given = launch(**tree, pins={"sglang": version}, env={"SGLANG_ENABLE_SPEC_V2": "1"})
    refusals = [f for f in algorithm.tree_in_spec_v2(given) if f.rule == "algorithm.spec-v2-chain"]
    assert len(refusals) == found
    assert not said(
        algorithm.tree_in_spec_v2(launch(**tree, pins={"sglang": version}, env={"SGLANG_ENABLE_SPEC_V2": "0"}))
    )


def test_a_variable_that_nothing_reads_any_more_is_said() -> None:
    given = launch(**_CHAIN, env={"SGLANG_ENABLE_SPEC_V2": "1"})
    assert said(algorithm.tree_in_spec_v2(given)) == [("algorithm.spec-v2-unread", "note", "SGLANG_ENABLE_SPEC_V2")]
    assert not said(algorithm.tree_in_spec_v2(launch(**_CHAIN)))


@pytest.mark.parametrize(
    ("model", "name", "found"),
    [
        pytest.param("deepseek-ai/DeepSeek-V4-Flash-0731", "EAGLE", 1, id="stages-as-a-head"),
        pytest.param("deepseek-ai/DeepSeek-V4-Flash-0731", "DSPARK", 0, id="stages-as-stages"),
        pytest.param("deepseek-ai/DeepSeek-V4-Flash", "EAGLE", 0, id="near-miss-a-head"),
    ],
)
def test_stages_are_no_head(model: str, name: str, found: int) -> None:
    given = launch(model=model, **{**_CHAIN, "speculative_algorithm": name})
    assert (
        said(algorithm.stages_for_a_head(given))
        == [("algorithm.stages-for-a-head", "refuse", "speculative_algorithm")] * found
    )


@pytest.mark.parametrize(("name", "found"), [("DSPARK", 1), ("DFLASH", 1), ("EAGLE", 0), (None, 0)])
def test_blocks_are_drafted_on_gpus(name: str | None, found: int) -> None:
    expected = [("algorithm.device", "refuse", "speculative_algorithm")] * found
    assert said(algorithm.blocks_on_cpu(launch(speculative_algorithm=name, device="cpu"))) == expected
    assert said(algorithm.blocks_on_cpu(launch(speculative_algorithm=name, gpu="cpu"))) == expected
    assert not said(algorithm.blocks_on_cpu(launch(speculative_algorithm=name, gpu="h200")))


_ASSISTED = {**_CHAIN, "speculative_algorithm": "NEXTN", "draft": ASSISTANT}
_PLAIN = {"disable_overlap_schedule": True}


@pytest.mark.parametrize(
    ("architecture", "asked", "where"),
    [
        pytest.param(GEMMA, {**_ASSISTED, **_PLAIN, "gpu": "h200"}, "disable_overlap_schedule", id="an-assistant"),
        pytest.param(GEMMA, {**_ASSISTED, **_PLAIN}, "disable_overlap_schedule", id="on-a-gpu-that-nobody-named"),
        pytest.param(
            GEMMA,
            {**_ASSISTED, **_PLAIN, "speculative_algorithm": "frozen_kv_mtp"},
            "disable_overlap_schedule",
            id="by-its-own-name",
        ),
        pytest.param(
            GEMMA,
            {**_CHAIN, **_PLAIN, "speculative_draft_model_path": "google/gemma-4-31B-it-assistant"},
            "disable_overlap_schedule",
            id="told-by-its-path",
        ),
        pytest.param(
            GEMMA, {**_ASSISTED, **_PLAIN, "device": "cpu"}, "disable_overlap_schedule", id="a-cpu-without-our-patch"
        ),
        pytest.param(
            GEMMA,
            {**_ASSISTED, "env": {"SGLANG_EMBEDDINGS_SPARSE_HEAD": ""}},
            "SGLANG_EMBEDDINGS_SPARSE_HEAD",
            id="by-a-variable",
        ),
        pytest.param(GEMMA, {**_ASSISTED, "gpu": "h200"}, None, id="near-miss-overlap-on"),
        pytest.param(GEMMA, {**_ASSISTED, **_PLAIN, "gpu": "cpu"}, None, id="near-miss-a-rehearsal"),
        pytest.param(GEMMA, {**_PLAIN, "gpu": "h200"}, None, id="near-miss-no-draft"),
        pytest.param(GEMMA, {**_CHAIN, **_PLAIN, "gpu": "h200"}, None, id="near-miss-no-assistant"),
        pytest.param(
            GEMMA, {**_ASSISTED, **_PLAIN, "speculative_algorithm": "NGRAM"}, None, id="near-miss-another-drafter"
        ),
        pytest.param(V3, {**_CHAIN, **_PLAIN, "gpu": "h200"}, None, id="near-miss-a-head-of-deepseeks"),
    ],
)
def test_an_assistant_needs_the_overlap_schedule(architecture: str, asked: dict[str, Any], where: str | None) -> None:
    expected = [("algorithm.assistant-overlap", "refuse", where)] if where else []
    assert said(algorithm.assistant_without_overlap(launch(architecture, **asked))) == expected


@pytest.mark.parametrize(("multiplexed", "remedy"), [(True, "Leave it out, and multiplexing"), (None, "Leave it out.")])
def test_multiplexing_which_needs_the_schedule_off_is_to_go_as_well(multiplexed: bool | None, remedy: str) -> None:
    given = launch(GEMMA, **_ASSISTED, **_PLAIN, enable_pdmux=multiplexed)
    assert [f.remedy.startswith(remedy) for f in algorithm.assistant_without_overlap(given)] == [True]


@pytest.mark.parametrize(("name", "found"), [("gemma4_31b_h200", 1), ("gemma4_dense_cpu", 0), ("deepseek_v3_h200", 0)])
def test_a_recipe_without_overlap_is_refused_at_its_own_key(name: str, found: int) -> None:
    loaded = load_recipe(find_recipe(name))
    without = replace(loaded.recipe, engine=replace(loaded.recipe.engine, overlap=False))
    plan = make_plan(dataclasses.replace(loaded, recipe=without), load_tables())
    refused = [f for f in plan.findings if f.rule == "algorithm.assistant-overlap"]
    assert len(refused) == found
    assert all("engine.overlap" in f.where for f in refused)
    assert plan.may_launch is not bool(found)


@pytest.mark.engine
def test_the_engine_still_hands_over_what_the_assistants_worker_does_not_take() -> None:
    """The day this fails, the rule has to be read again, and the patch `cpu-frozen-kv-schedule` with it."""
    srt = Path(find_spec("sglang").origin).parent / "srt"
    worker = (srt / "speculative" / "frozen_kv_mtp_worker_v2.py").read_text("utf-8")
    scheduler = (srt / "managers" / "scheduler.py").read_text("utf-8")
    overrides = (srt / "arg_groups" / "overrides.py").read_text("utf-8")
    assert "pp_proxy_tensors" not in worker
    assert (
        "self.model_worker.forward_batch_generation(\n                            batch, pp_proxy_tensors" in scheduler
    )
    assert "if envs.SGLANG_EMBEDDINGS_SPARSE_HEAD.is_set():" in overrides
