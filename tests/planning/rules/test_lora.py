from dataclasses import replace
from typing import Any

import pytest

from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.planning.rules import lora
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import load_recipe
from tests.planning.rules.launches import ASSISTANT, GEMMA, launch

_DRAFT = "lora.draft-unadapted"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"enable_lora": True, "speculative_algorithm": "EAGLE"}, [_DRAFT], id="eagle"),
        pytest.param({"lora_paths": ["a=b/c"], "speculative_algorithm": "NEXTN"}, [_DRAFT], id="paths-switch-it-on"),
        pytest.param(
            {"enable_lora": False, "lora_paths": ["a=b/c"], "speculative_algorithm": "EAGLE"}, [], id="switched-off"
        ),
        pytest.param({"enable_lora": True, "speculative_algorithm": "NGRAM"}, [], id="near-miss-ngram"),
        pytest.param({"enable_lora": True, "speculative_algorithm": "STANDALONE"}, ["lora.algorithm"], id="standalone"),
        pytest.param({"enable_lora": True}, [], id="near-miss-no-speculation"),
        pytest.param({"speculative_algorithm": "EAGLE"}, [], id="near-miss-no-adapters"),
        pytest.param(
            {"enable_lora": True, "speculative_algorithm": "EAGLE", "speculative_adaptive": True},
            ["lora.adaptive", _DRAFT],
            id="adaptive",
        ),
        pytest.param(
            {
                "enable_lora": True,
                "speculative_algorithm": "EAGLE",
                "speculative_adaptive": True,
                "speculative_eagle_topk": 2,
            },
            [_DRAFT],
            id="near-miss-adaptive-dropped",
        ),
        pytest.param(
            {"enable_lora": True, "speculative_algorithm": "DSPARK", "env": {"SGLANG_RAGGED_VERIFY_MODE": "compact"}},
            ["lora.ragged", _DRAFT],
            id="ragged",
        ),
        pytest.param({"enable_lora": True, "speculative_algorithm": "DSPARK"}, [_DRAFT], id="near-miss-static"),
    ],
)
def test_adapters_go_with_drafts_of_one_width(asked: dict[str, Any], expected: list[str]) -> None:  # C043
    assert [finding.rule for finding in lora.with_speculation(launch(**asked))] == expected


def test_an_assistant_has_no_layout_for_adapters() -> None:  # C043
    given = launch(GEMMA, enable_lora=True, speculative_algorithm="EAGLE", draft=ASSISTANT)
    assert [finding.rule for finding in lora.with_speculation(given)] == ["lora.algorithm"]


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("0.5.4.post3", "refuse"),
        ("0.5.9", "refuse"),
        ("0.5.10", "warn"),
        ("0.5.19", "warn"),
        ("0.5.20", None),
        ("0.5.23", None),
        ("dev", None),
    ],
)
def test_older_releases_combine_adapters_with_ngram_alone(version: str, verdict: str | None) -> None:  # C045
    given = launch(enable_lora=True, speculative_algorithm="EAGLE", pins={"sglang": version})
    found = [finding.verdict.value for finding in lora.with_speculation(given) if finding.rule == "lora.version"]
    assert found == ([verdict] if verdict else [])


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        pytest.param({}, "max_lora_rank and lora_target_modules", id="bare"),
        pytest.param({"max_lora_rank": 16}, "lora_target_modules", id="rank-alone"),
        pytest.param({"lora_target_modules": ["all"]}, "max_lora_rank", id="modules-alone"),
        pytest.param({"max_lora_rank": 16, "lora_target_modules": ["all"]}, None, id="near-miss-both"),
        pytest.param({"lora_paths": ["a=org/a"]}, None, id="near-miss-an-adapter"),
        pytest.param({"enable_lora": False}, None, id="near-miss-switched-off"),
    ],
)
def test_without_an_adapter_the_engine_is_told_its_size(asked: dict[str, Any], missing: str | None) -> None:
    found = list(lora.named_or_sized(launch(**{"enable_lora": True, **asked})))
    assert [f.rule for f in found] == (["lora.size"] if missing else [])
    assert all(f"Write {missing}, or lora_paths." in finding.sentence() for finding in found)


def test_a_recipe_with_adapters_is_planned_at_one_depth(tables: Tables, change: Any) -> None:  # C043
    extra = [
        {"flag": "--enable-lora", "why": "x"},
        {"flag": "--max-lora-rank", "value": 16, "why": "x"},
        {"flag": "--lora-target-modules", "value": "all", "why": "x"},
    ]
    loaded = load_recipe(find_recipe("deepseek_v3_h200"))
    plan = make_plan(replace(loaded, recipe=change(engine__extra_args=extra)), tables)
    assert plan.may_launch
    assert plan.asked.speculative_adaptive is None
    assert {"lora.draft-unadapted", "policy.one-depth"} <= {finding.rule for finding in plan.findings}
