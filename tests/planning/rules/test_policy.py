from collections.abc import Iterable
from typing import Any

import pytest

from spec_toolkit.errors import Finding
from spec_toolkit.planning.rules import policy as rule
from spec_toolkit.planning.rules.shape import derive_shape
from spec_toolkit.recipe.schema import Draft, Policy
from spec_toolkit.terms import Method, Mode


def rules(findings: Iterable[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


@pytest.mark.parametrize(
    ("allow", "method", "expected"),
    [
        pytest.param(["full", "reduced", "autoregressive"], "mtp", [], id="usual"),
        pytest.param(["full"], "mtp", ["policy.no-way-back"], id="only-full"),
        pytest.param([], "mtp", ["policy.no-start"], id="nothing"),
        pytest.param(["reduced", "zero_draft"], "mtp", ["policy.no-start"], id="only-between"),
        pytest.param(["autoregressive"], "mtp", ["policy.never-full"], id="never-full"),
        pytest.param(["autoregressive"], "none", [], id="no-draft"),
        pytest.param(["full", "autoregressive"], "none", ["policy.nothing-to-draft"], id="no-draft-and-full"),
    ],
)
def test_the_policy_allows_something_to_start_in_and_fall_back_to(
    allow: list[str], method: str, expected: list[str]
) -> None:
    policy = Policy(allow=tuple(Mode(mode) for mode in allow))
    assert rules(rule.allowed_modes(policy, Draft(method=Method(method), num_steps=3))) == expected


@pytest.mark.parametrize(
    ("num_steps", "reduced_steps", "allow", "expected"),
    [
        pytest.param(3, None, ["full", "reduced"], [], id="left-open"),
        pytest.param(3, (1, 2), ["full", "reduced"], [], id="near-miss-one-below"),
        pytest.param(3, (1, 3), ["full", "reduced"], ["policy.reduced-steps"], id="as-many-as-full"),
        pytest.param(1, None, ["full", "reduced"], ["policy.nothing-between"], id="one-step"),
        pytest.param(3, (1,), ["full"], ["policy.reduced-unused"], id="not-allowed"),
        pytest.param(3, (), ["full", "reduced"], ["policy.no-reduced-steps"], id="none-and-allowed"),
        pytest.param(3, (), ["full"], [], id="near-miss-none-and-not-allowed"),
    ],
)
def test_reduced_is_fewer_steps_than_the_draft_has(
    num_steps: int, reduced_steps: tuple[int, ...] | None, allow: list[str], expected: list[str]
) -> None:
    policy = Policy(allow=tuple(Mode(mode) for mode in allow), reduced_steps=reduced_steps)
    assert rules(rule.between(policy, Draft(method=Method.MTP, num_steps=num_steps))) == expected


def test_a_window_longer_than_the_dwell_time_is_corrected_and_said() -> None:
    assert rules(rule.windows(Policy(dwell_seconds=5, window_seconds=5.1))) == ["policy.window"]
    assert not rules(rule.windows(Policy(dwell_seconds=5, window_seconds=5)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="near-miss-a-chain"),
        pytest.param({"draft__topk": 4, "draft__num_draft_tokens": 8}, ["policy.one-depth"], id="a-tree"),
        pytest.param(
            {"draft__topk": 4, "draft__num_draft_tokens": 8, "policy__allow": ["full", "autoregressive"]},
            [],
            id="near-miss-a-tree-that-asks-for-nothing-between",
        ),
    ],
)
def test_modes_the_engine_cannot_take_are_said(change: Any, changes: dict[str, Any], expected: list[str]) -> None:
    recipe = change(**changes)
    assert rules(rule.one_depth(recipe, derive_shape(recipe.draft))) == expected


TREE = {"draft__topk": 4, "draft__num_draft_tokens": 8}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"policy__comeback": "beside"}, [], id="usual"),
        pytest.param({"policy__comeback": "by_hand"}, [], id="near-miss-a-person-brings-it-back"),
        pytest.param({"policy__comeback": "in_place"}, ["policy.waits-to-return"], id="at-a-quiet-moment"),
        pytest.param(
            {"policy__allow": ["full", "autoregressive"]}, ["policy.stays-autoregressive"], id="nothing-between"
        ),
        pytest.param(
            {"policy__allow": ["full", "reduced", "autoregressive"], "policy__reduced_steps": []},
            ["policy.stays-autoregressive"],
            id="nothing-between-but-by-name",
        ),
        pytest.param(
            {"policy__allow": ["full", "reduced", "autoregressive"], "policy__comeback": "beside"},
            [],
            id="near-miss-reduced-is-between",
        ),
        pytest.param(TREE, ["policy.stays-autoregressive"], id="a-tree"),
        pytest.param({**TREE, "policy__allow": ["full"]}, [], id="near-miss-a-tree-that-never-is-without"),
        pytest.param({"policy__allow": ["autoregressive"]}, [], id="near-miss-nothing-to-come-back"),
    ],
)
def test_speculation_that_does_not_come_back_by_itself_or_only_at_times_is_said(
    change: Any, changes: dict[str, Any], expected: list[str]
) -> None:
    recipe = change(**changes)
    assert rules(rule.comes_back(recipe, derive_shape(recipe.draft))) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"policy__comeback": "in_place"}, [], id="in-place"),
        pytest.param({"policy__comeback": "beside"}, ["policy.room-beside"], id="two-engines-on-the-same-gpus"),
        pytest.param(
            {"policy__comeback": "beside", "limits__memory_fraction": 0.8}, ["policy.room-beside"], id="no-room"
        ),
        pytest.param({"policy__comeback": "beside", "limits__memory_fraction": 0.45}, [], id="near-miss-room-for-two"),
        pytest.param({"policy__comeback": "beside", "hardware__gpu": "cpu"}, [], id="near-miss-a-rehearsal"),
        pytest.param({"policy__resume_deadline_seconds": 599}, ["policy.deadline-before-ready"], id="shorter"),
    ],
)
def test_what_a_return_and_a_waiting_stream_need_is_said(
    change: Any, changes: dict[str, Any], expected: list[str]
) -> None:
    times = {"policy__resume_deadline_seconds": 600, "policy__ready_seconds": 600}
    assert rules(rule.room_and_time(change(**{**times, **changes}))) == expected
