import dataclasses
from typing import Any

import msgspec
import pytest

from spec_toolkit.errors import Verdict
from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.planning.rules import features
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.recipe.schema import Draft
from spec_toolkit.terms import Acceptance, Method


def rules(findings: Any) -> list[str]:
    return [finding.rule for finding in findings]


@pytest.mark.parametrize(
    ("method", "found"),
    [
        ("mtp", 0),
        ("eagle3", 0),
        ("frozen_kv_mtp", 0),
        ("standalone", 0),
        ("none", 0),
        ("ngram", 1),
        ("dflash", 1),
        ("dspark", 0),
    ],
)
def test_what_cannot_be_planned_is_refused(method: str, found: int) -> None:
    assert rules(features.method_planned(Draft(method=Method(method)))) == ["features.method-unplanned"] * found


@pytest.mark.parametrize(
    ("method", "model", "found"),
    [
        ("frozen_kv_mtp", "same", 1),
        ("frozen_kv_mtp", "org/draft", 0),
        ("eagle3", "same", 0),
        ("mtp", "same", 0),
        ("none", "same", 0),
    ],
)
def test_an_assistant_is_named(method: str, model: str, found: int) -> None:
    assert rules(features.draft_model(Draft(method=Method(method), model=model))) == ["features.draft-model"] * found


@pytest.mark.parametrize(
    ("method", "topk", "expected"),
    [
        pytest.param("mtp", 1, [], id="a-chain"),
        pytest.param("mtp", 4, ["features.rejection-needs-chain"], id="a-tree"),
        pytest.param("frozen_kv_mtp", 1, ["features.rejection-method"], id="gemma"),
        pytest.param("standalone", 2, ["features.rejection-needs-chain", "features.rejection-method"], id="both"),
    ],
)
def test_rejection_is_for_chains_of_mtp_and_eagle3(method: str, topk: int, expected: list[str]) -> None:
    draft = Draft(method=Method(method), topk=topk, acceptance=Acceptance.REJECTION)
    assert rules(features.rejection_needs_chain(draft)) == expected
    assert not rules(features.rejection_needs_chain(Draft(method=Method(method), topk=topk)))


@pytest.mark.parametrize(
    ("acceptance", "single", "accumulated", "expected"),
    [
        pytest.param("target_only", None, None, [], id="none-written"),
        pytest.param("target_only", 0.9, None, ["features.thresholds-need-relaxed"], id="loosens-target-only"),
        pytest.param("target_only", 1.0, None, ["features.thresholds-need-relaxed"], id="even-at-one"),
        pytest.param("rejection", 0.9, 0.9, ["features.thresholds-need-relaxed"] * 2, id="both-under-rejection"),
        pytest.param("relaxed", 0.9, None, [], id="relaxed"),
        pytest.param("relaxed", None, None, ["features.relaxed-without-threshold"], id="relaxed-without"),
        pytest.param("relaxed", 1.0, 1.0, ["features.relaxed-without-threshold"], id="relaxed-at-one"),
    ],
)
def test_thresholds_go_with_relaxed_alone(
    acceptance: str, single: float | None, accumulated: float | None, expected: list[str]
) -> None:
    draft = Draft(
        method=Method.MTP,
        acceptance=Acceptance(acceptance),
        accept_threshold_single=single,
        accept_threshold_accumulated=accumulated,
    )
    assert rules(features.thresholds(draft)) == expected


@pytest.mark.parametrize(("acceptance", "found"), [("relaxed", 1), ("rejection", 0), ("target_only", 0)])
def test_relaxed_is_called_lossy(acceptance: str, found: int) -> None:
    findings = list(features.relaxed_is_lossy(Draft(method=Method.MTP, acceptance=Acceptance(acceptance))))
    assert [(f.rule, f.verdict) for f in findings] == [("features.relaxed-is-lossy", Verdict.WARN)] * found


@pytest.mark.parametrize(
    ("flag", "rule"),
    [
        pytest.param("--log-requests-level", "features.extra-arg", id="one-of-the-engines"),
        pytest.param("--speculative-num-steps", "features.extra-arg-refused", id="the-plans-own"),
        pytest.param("--spec", "features.extra-arg-refused", id="its-beginning"),
        pytest.param("--tp-size", "features.extra-arg-refused", id="layout"),
        pytest.param("--tp", "features.extra-arg-refused", id="layout-short"),
        pytest.param("--tensor-parallel-size", "features.extra-arg-refused", id="layout-by-another-name"),
        pytest.param("--admin-api-key", "features.extra-arg-refused", id="a-secret"),
        pytest.param("--api-key", "features.extra-arg-refused", id="another-secret"),
        pytest.param("--host", "features.extra-arg-refused", id="address"),
        pytest.param("--port-is-something-else", "features.extra-arg", id="near-miss-a-longer-name"),
    ],
)
def test_an_extra_flag_is_warned_of_or_refused(change: Any, tables: Tables, flag: str, rule: str) -> None:
    recipe = change(engine__extra_args=[{"flag": flag, "value": 3, "why": "a try"}])
    said = rules(features.extra_args(recipe, tables.engine))
    assert [name for name in said if name.startswith("features.")] == [rule]


def test_simulated_acceptance_and_a_schedule_without_overlap_are_said(change: Any) -> None:
    assert rules(features.simulated(change(simulated=True))) == ["features.simulated"]
    assert rules(features.overlap(change(engine__overlap=False))) == ["features.overlap-off"]
    assert not [*features.simulated(change()), *features.overlap(change())]


@pytest.mark.parametrize(
    ("flag", "found"),
    [
        ("--tokenizer-worker-num", "features.extra-arg-refused"),
        ("--tokenizer-worker", "features.extra-arg-refused"),  # the engine takes a beginning for the whole
        ("--use-ray", "features.extra-arg-refused"),
        ("--weight-cache-mode", "features.extra-arg-refused"),
        ("--weight-cache-timeout", "features.extra-arg"),
        ("--schedule-policy", "features.extra-arg"),
    ],
)
def test_a_flag_whose_processes_load_no_patches_is_refused(change: Any, tables: Tables, flag: str, found: str) -> None:
    recipe = change(engine__extra_args=[{"flag": flag, "why": "x", "value": 2}])
    said = rules(features.extra_args(recipe, tables.engine))
    assert [name for name in said if name.startswith("features.")] == [found]


def test_a_key_nobody_acts_on_yet_is_said_to_be_one(change: Any) -> None:
    assert rules(features.not_enforced(change())) == []
    [finding] = features.not_enforced(change(engine__image="lmsysorg/sglang@sha256:" + "0" * 64))
    assert (finding.rule, finding.where) == ("features.not-enforced", "engine.image")
    assert finding.verdict is Verdict.NOTE


@pytest.mark.parametrize("name", ["gemma4_31b_h200", "gemma4_12b_h200"])
def test_a_head_that_is_an_assistant_is_planned_as_the_engine_takes_it(tables: Tables, name: str) -> None:
    """At one depth: nobody is told to leave out a flag that nobody wrote."""
    loaded = load_recipe(find_recipe(name))
    as_head = msgspec.structs.replace(loaded.recipe.draft, method=Method.MTP)
    written, right = (
        make_plan(dataclasses.replace(loaded, recipe=msgspec.structs.replace(loaded.recipe, draft=draft)), tables)
        for draft in (as_head, loaded.recipe.draft)
    )
    found = [f for f in written.findings if f not in right.findings]
    assert [(f.rule, f.verdict, f.where) for f in found] == [("features.assistant", Verdict.CORRECT, "draft.method")]
    assert (written.asked, written.steps) == (right.asked, right.steps)
