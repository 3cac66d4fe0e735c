from typing import Any

import pytest

from spec_toolkit.errors import Verdict
from spec_toolkit.planning.rules import shape
from spec_toolkit.planning.rules.shape import Shape, derive_shape
from spec_toolkit.recipe.schema import Draft
from spec_toolkit.terms import Method


def draft(method: Method = Method.MTP, **keys: Any) -> Draft:
    return Draft(method=method, **keys)


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(draft(num_steps=3), id="derived"),
        pytest.param(draft(num_steps=3, num_draft_tokens=4), id="written-and-right"),
        pytest.param(draft(num_steps=3, topk=4, num_draft_tokens=16), id="near-miss-a-tree-may-be-wider"),
    ],
)
def test_a_right_width_is_accepted(right: Draft) -> None:
    assert not list(shape.chain_width(right))


def test_a_chain_of_another_width_is_corrected_to_steps_and_root() -> None:
    wrong = draft(num_steps=3, num_draft_tokens=16)
    (finding,) = shape.chain_width(wrong)
    assert finding.rule == "shape.chain-width"
    assert finding.verdict is Verdict.CORRECT
    assert derive_shape(wrong) == Shape(3, 1, 4)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(draft(num_steps=1), Shape(1, 1, 2), id="shortest-chain"),
        pytest.param(draft(num_steps=5, topk=4, num_draft_tokens=16), Shape(5, 4, 16), id="tree"),
        pytest.param(draft(num_steps=5, topk=4), None, id="tree-of-unknown-width"),
        pytest.param(draft(), None, id="no-steps"),
        pytest.param(draft(Method.NONE), Shape(0, 1, 1), id="nothing-drafted"),
        pytest.param(draft(Method.DSPARK, block_tokens=5), Shape(1, 1, 6), id="a-block-and-its-root"),
        pytest.param(draft(Method.DSPARK), None, id="the-checkpoints-block-unknown"),
    ],
)
def test_the_shape_follows_from_the_draft(given: Draft, expected: Shape | None) -> None:
    assert derive_shape(given) == expected


def test_an_open_block_is_the_checkpoints() -> None:
    assert derive_shape(draft(Method.DSPARK), 5) == Shape(1, 1, 6)
    assert derive_shape(draft(Method.DSPARK, block_tokens=3), 5) == Shape(1, 1, 4)
    assert derive_shape(draft(num_steps=2), 5) == Shape(2, 1, 3)


@pytest.mark.parametrize(
    ("method", "found"), [(Method.MTP, 1), (Method.STANDALONE, 1), (Method.NONE, 0), (Method.DSPARK, 0)], ids=str
)
def test_steps_are_asked_for_where_there_are_steps(method: Method, found: int) -> None:
    assert len(list(shape.steps_missing(draft(method), None))) == found


@pytest.mark.parametrize(
    ("steps", "topk", "width", "found"),
    [
        pytest.param(1, 4, 5, 0, id="one-step-all-of-it"),
        pytest.param(1, 4, 6, 1, id="one-step-one-too-many"),
        pytest.param(3, 4, 37, 0, id="three-steps-all-of-it"),
        pytest.param(3, 4, 38, 1, id="three-steps-one-too-many"),
        pytest.param(3, 4, None, 1, id="left-out"),
        pytest.param(3, 1, None, 0, id="near-miss-a-chain"),
    ],
)
def test_a_tree_verifies_at_most_what_it_offers(steps: int, topk: int, width: int | None, found: int) -> None:
    given = draft(num_steps=steps, topk=topk, num_draft_tokens=width)
    assert [finding.rule for finding in shape.tree_width(given)] == ["shape.tree-width"] * found


@pytest.mark.parametrize(
    ("given", "where"),
    [
        pytest.param(draft(Method.DSPARK, block_tokens=5), [], id="a-block"),
        pytest.param(draft(num_steps=3, block_tokens=5), ["draft.block_tokens"], id="a-block-for-mtp"),
        pytest.param(draft(Method.DSPARK, num_steps=3), ["draft.num_steps"], id="steps-for-dspark"),
        pytest.param(
            draft(Method.DSPARK, num_steps=3, num_draft_tokens=4),
            ["draft.num_steps", "draft.num_draft_tokens"],
            id="both-for-dspark",
        ),
        pytest.param(draft(Method.DSPARK, topk=4), ["draft.topk"], id="branches-for-dspark"),
        pytest.param(draft(Method.DSPARK, topk=1), [], id="near-miss-no-branches"),
    ],
)
def test_only_dspark_drafts_a_block_and_it_has_no_steps(given: Draft, where: list[str]) -> None:
    assert [finding.where for finding in shape.block_only_dspark(given)] == where


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (draft(Method.NONE), 0),
        (draft(Method.NONE, num_steps=3), 1),
        (draft(Method.NONE, topk=4), 1),
        (draft(Method.NONE, topk=1), 0),
        (draft(num_steps=3, topk=4), 0),
    ],
    ids=str,
)
def test_no_method_has_no_shape(given: Draft, found: int) -> None:
    assert len(list(shape.nothing_to_shape(given))) == found


@pytest.mark.parametrize(("steps", "topk", "largest"), [(1, 4, 5), (3, 4, 37), (3, 1, 4), (1, 2, 3)])
def test_a_tree_offers_topk_drafts_and_then_topk_times_topk(steps: int, topk: int, largest: int) -> None:
    assert shape.largest_tree(steps, topk) == largest
