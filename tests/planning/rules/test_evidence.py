from typing import Any

import pytest

from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.facts.evidence import DraftMeasured, Evidence, LayoutMeasured, Prompts, TargetMeasured, Workload
from spec_toolkit.planning.rules import evidence as rules
from spec_toolkit.planning.rules.shape import derive_shape
from spec_toolkit.planning.runtime import derive_limits
from spec_toolkit.terms import Acceptance, Method
from tests.planning.speed.measured import REVISION, drafting, evidence, plain

ROWS = (plain(1, 50.0), drafting(1, 3, 90.0, 2.9), plain(64, 900.0), drafting(64, 3, 1200.0, 2.9))
CURVE = (0.92, 0.78, 0.67, 0.57, 0.38, 0.33, 0.30)
TARGET = TargetMeasured(model="deepseek-ai/DeepSeek-V3-0324", revision=REVISION, quantization="fp8")


@pytest.fixture
def recipe(change: Any) -> Any:
    return change(target__revision=REVISION)


def said(recipe: Any, measured: Evidence, block: int | None = None) -> list[Finding]:
    return list(rules.measured(recipe, measured, derive_shape(recipe.draft, block)))


def named(recipe: Any, measured: Evidence, block: int | None = None) -> list[str]:
    return [finding.rule for finding in said(recipe, measured, block)]


def is_proven(recipe: Any, measured: Evidence | None, block: int | None = None) -> bool:
    return rules.is_proven(recipe, measured, derive_shape(recipe.draft, block))


def test_evidence_of_this_recipe_is_believed_without_a_word(recipe: Any) -> None:
    assert named(recipe, evidence(*ROWS)) == []
    assert is_proven(recipe, evidence(*ROWS))


def test_a_recipe_without_evidence_is_unproven(recipe: Any) -> None:
    assert not is_proven(recipe, None)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param(
            {"target": TargetMeasured(model=TARGET.model, revision="f" * 40, quantization="fp8")},
            f"target.revision {'f' * 40} (here {REVISION})",
            id="another-revision",
        ),
        pytest.param(
            {"target": TargetMeasured(model="google/gemma-4-31B-it", revision=REVISION, quantization="fp8")},
            "target.model google/gemma-4-31B-it (here deepseek-ai/DeepSeek-V3-0324)",
            id="a-dense-model",
        ),
        pytest.param(
            {"target": TargetMeasured(model=TARGET.model, revision=REVISION, quantization=None)},
            "target.quantization open (here fp8)",
            id="another-quantisation",
        ),
        pytest.param({"gpu": "b200"}, "hardware.gpu b200 (here h200)", id="another-gpu"),
        pytest.param({"count": 4}, "hardware.count 4 (here 8)", id="fewer-gpus"),
        pytest.param({"layout": LayoutMeasured(tp=4)}, "hardware.layout.tp 4 (here 8)", id="another-layout"),
        pytest.param(
            {"layout": LayoutMeasured(tp=8, moe_a2a_backend="deepep")},
            "hardware.layout.moe_a2a_backend deepep (here open)",
            id="another-exchange",
        ),
        pytest.param(
            {"acceptance": Acceptance.REJECTION}, "draft.acceptance rejection (here target_only)", id="another-rule"
        ),
        pytest.param(
            {"draft": DraftMeasured(method=Method.EAGLE3, model="same")},
            "draft.method eagle3 (here mtp)",
            id="another-draft",
        ),
        pytest.param(
            {"draft": DraftMeasured(method=Method.MTP, model="same", topk=4)}, "draft.topk 4 (here 1)", id="a-tree"
        ),
        pytest.param({"nodes": 2}, "hardware.nodes 2 (here 1)", id="more-nodes"),
        pytest.param({"sglang": "0.5.22"}, "engine.sglang 0.5.22 (here 0.5.23)", id="another-engine"),
    ],
)
def test_evidence_of_something_else_is_ignored_and_the_recipe_unproven(
    recipe: Any, changed: dict[str, Any], says: str
) -> None:
    foreign = evidence(*ROWS, **changed)
    (finding,) = said(recipe, foreign)
    assert (finding.rule, finding.verdict) == ("evidence.foreign", Verdict.WARN)
    assert says in finding.sentence()
    assert finding.sentence().count("(here ") == 1
    assert not is_proven(recipe, foreign)
    assert derive_limits(recipe, (0, 1, 3), sha256="x", evidence=foreign).break_even == ()


RELAXED = {
    "draft__acceptance": "relaxed",
    "draft__accept_threshold_single": 0.1,
    "draft__accept_threshold_accumulated": 0.5,
}
TREE = {"draft__topk": 4, "draft__num_draft_tokens": 32}


@pytest.mark.parametrize(
    ("recipe_has", "measured_with", "says"),
    [
        pytest.param(
            RELAXED,
            {"acceptance": Acceptance.RELAXED, "accept_threshold_single": 0.9, "accept_threshold_accumulated": 0.5},
            ["draft.accept_threshold_single 0.9 (here 0.1)"],
            id="stricter",
        ),
        pytest.param(
            RELAXED,
            {"acceptance": Acceptance.RELAXED},
            ["draft.accept_threshold_single 1.0 (here 0.1)", "draft.accept_threshold_accumulated 1.0 (here 0.5)"],
            id="thresholds-left-out",
        ),
        pytest.param(
            RELAXED,
            {"acceptance": Acceptance.RELAXED, "accept_threshold_single": 0.1, "accept_threshold_accumulated": 0.5},
            [],
            id="near-miss-the-same-thresholds",
        ),
        pytest.param(
            TREE,
            {"draft": DraftMeasured(method=Method.MTP, model="same", topk=4, num_draft_tokens=8)},
            ["draft.num_draft_tokens 8 (here 32)"],
            id="a-narrower-tree",
        ),
        pytest.param(
            TREE,
            {"draft": DraftMeasured(method=Method.MTP, model="same", topk=4, num_draft_tokens=32)},
            [],
            id="near-miss-the-same-tree",
        ),
        pytest.param(
            {"draft__num_draft_tokens": 4},
            {"draft": DraftMeasured(method=Method.MTP, model="same")},
            [],
            id="near-miss-a-chains-width-follows",
        ),
    ],
)
def test_the_whole_rule_of_acceptance_is_the_evidences(
    change: Any, recipe_has: dict[str, Any], measured_with: dict[str, Any], says: list[str]
) -> None:
    recipe = change(target__revision=REVISION, **recipe_has)
    found = evidence(*ROWS, **measured_with)
    assert [str(difference) for difference in rules.differences(recipe, found)] == says
    assert is_proven(recipe, found) is not bool(says)


def test_a_block_left_open_is_proven_by_the_block_that_the_checkpoint_drafts(change: Any) -> None:
    block = DraftMeasured(method=Method.DSPARK, model="same")
    recipe = change(target__revision=REVISION, draft={"method": "dspark"})
    rows = (plain(1, 50.0), drafting(1, 5, 90.0, 2.9))
    assert is_proven(recipe, evidence(*rows, draft=block), 5)
    assert named(recipe, evidence(*rows, draft=block), 5) == []
    assert named(recipe, evidence(*rows, draft=block), 7) == ["evidence.other-depth"]
    assert not is_proven(recipe, evidence(*rows, draft=block), 7)
    assert not is_proven(recipe, evidence(*rows, draft=block), None)  # a checkpoint that nobody read
    (slow,) = said(recipe, evidence(rows[0], drafting(1, 5, 40.0, 2.9), draft=block), 5)
    assert "block_tokens 5 is slower" in slow.sentence()


def test_every_difference_is_listed(recipe: Any) -> None:
    (finding,) = said(recipe, evidence(*ROWS, gpu="b200", acceptance=Acceptance.REJECTION))
    assert "draft.acceptance rejection (here target_only); hardware.gpu b200 (here h200)" in finding.sentence()


def test_a_revision_left_open_is_not_known_to_be_the_measured_one(change: Any) -> None:
    (finding,) = said(change(), evidence(*ROWS))
    assert f"target.revision {REVISION} (here open)" in finding.sentence()


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        pytest.param({"simulated": True}, "evidence.simulated", id="faked"),
        pytest.param(
            {"workload": Workload(name="noise", prompts=Prompts.RANDOM_TOKENS)}, "evidence.random-tokens", id="random"
        ),
    ],
)
def test_what_no_user_would_see_is_never_used(recipe: Any, changed: dict[str, Any], rule: str) -> None:
    measured = evidence(*ROWS, **changed)
    assert named(recipe, measured) == [rule]
    assert not is_proven(recipe, measured)
    assert derive_limits(recipe, (0, 1, 3), sha256="x", evidence=measured).break_even == ()


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        pytest.param(ROWS[1:2], [("evidence.no-autoregressive-row", Verdict.WARN)], id="none-at-all"),
        pytest.param(ROWS[1:3], [("evidence.no-autoregressive-row", Verdict.NOTE)], id="of-another-batch"),
        pytest.param(ROWS, [], id="near-miss-one-at-each"),
        pytest.param(ROWS[:1], [], id="near-miss-nothing-drafts"),
    ],
)
def test_without_an_autoregressive_row_there_is_no_break_even(recipe: Any, rows: Any, found: Any) -> None:
    measured = evidence(*rows)
    assert [(f.rule, f.verdict) for f in rules.no_autoregressive_row(measured)] == found
    if found:
        assert derive_limits(recipe, (0, 1, 3), sha256="x", evidence=measured).break_even == ()
        assert not is_proven(recipe, measured)


def test_break_even_reaches_the_policy_from_the_recipes_own_evidence(recipe: Any) -> None:
    limits = derive_limits(recipe, (0, 1, 3), sha256="x", evidence=evidence(*ROWS))
    assert limits.break_even_at(3, 1) == pytest.approx(2.9 * 50 / 90)
    assert limits.break_even_at(3, 64) == pytest.approx(2.9 * 900 / 1200)
    assert limits.break_even_at(1, 1) is None


def test_without_evidence_break_even_stays_unknown(recipe: Any) -> None:
    assert derive_limits(recipe, (0, 1, 3), sha256="x").break_even == ()


def test_another_depth_proves_nothing_of_this_one(recipe: Any) -> None:
    measured = evidence(plain(1, 50.0), drafting(1, 1, 70.0, 1.8))
    assert named(recipe, measured) == ["evidence.other-depth"]
    assert not is_proven(recipe, measured)


@pytest.mark.parametrize(
    ("speeds", "rule", "says"),
    [
        pytest.param((90.0, 1200.0), None, "", id="pays-everywhere"),
        pytest.param((40.0, 1200.0), "evidence.turns", "pays above batch", id="loses-alone"),
        pytest.param((90.0, 800.0), "evidence.turns", "loses above batch", id="loses-in-a-crowd"),
        pytest.param((40.0, 800.0), "evidence.loses", "0.89 times the speed at batch 64", id="loses-everywhere"),
    ],
)
def test_evidence_says_where_speculation_pays(recipe: Any, speeds: Any, rule: str | None, says: str) -> None:
    alone, crowd = speeds
    rows = (plain(1, 50.0), drafting(1, 3, alone, 2.9), plain(64, 900.0), drafting(64, 3, crowd, 2.9))
    found = said(recipe, evidence(*rows))
    assert [finding.rule for finding in found] == ([rule] if rule else [])
    assert all(says in finding.sentence() for finding in found)


# C096
@pytest.mark.parametrize(
    ("num_steps", "cost", "rule"),
    [
        pytest.param(7, 0.2, ["evidence.knee"], id="past-the-knee"),
        pytest.param(4, 0.2, [], id="near-miss-at-the-knee"),
        pytest.param(7, 0.02, [], id="near-miss-a-position-costs-next-to-nothing"),
    ],
)
def test_positions_that_too_few_rounds_reach_are_named(change: Any, num_steps: int, cost: float, rule: Any) -> None:
    """Steps of 10 ms; each position costs the same share of one."""
    survival = CURVE[:num_steps]
    length = 1 + sum(survival)
    own = drafting(1, num_steps, 100 * length / (1 + cost * num_steps), length, survival=survival)
    recipe = change(target__revision=REVISION, draft__num_steps=num_steps)
    found = said(recipe, evidence(plain(1, 100.0), own))
    assert [finding.rule for finding in found] == rule
    assert all("position 5 is reached in 38%" in f.sentence() and "Measure it with 4." in f.sentence() for f in found)


@pytest.mark.parametrize(
    ("speeds", "rule"),
    [
        pytest.param({1: (100.0, 95.0), 8: (700.0, 600.0)}, ["evidence.too-deep"], id="fewer-drafts-are-faster"),
        pytest.param({1: (90.0, 95.0), 8: (700.0, 600.0)}, [], id="near-miss-not-at-every-batch"),
        pytest.param({1: (90.0, 95.0)}, [], id="near-miss-more-drafts-are-faster"),
    ],
)
def test_what_was_measured_of_fewer_drafts_goes_before_what_follows_from_survival(
    recipe: Any, speeds: dict[int, tuple[float, float]], rule: list[str]
) -> None:
    rows = []
    for batch, (with_one, with_three) in speeds.items():
        rows += [plain(batch, 50.0 * batch), drafting(batch, 1, with_one, 1.9)]
        rows.append(drafting(batch, 3, with_three, 2.0, survival=(0.9, 0.06, 0.04)))
    found = said(recipe, evidence(*rows))
    assert [finding.rule for finding in found] == rule
    assert all("with 1 it made 700 tokens/s at batch 8, and with 3 600" in finding.sentence() for finding in found)


def test_an_autoregressive_recipe_is_proven_by_its_own_row(change: Any) -> None:
    plain_recipe = change(target__revision=REVISION, draft={"method": "none"}, policy__allow=["autoregressive"])
    measured = evidence(ROWS[0], draft=DraftMeasured(method=Method.NONE, model="same"))
    assert named(plain_recipe, measured) == []
    assert is_proven(plain_recipe, measured)
