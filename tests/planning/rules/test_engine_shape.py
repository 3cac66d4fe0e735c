from typing import Any

import pytest

from spec_toolkit.planning.rules import engine_shape as shape
from spec_toolkit.planning.rules.shape import largest_tree
from tests.planning.rules.launches import ASSISTANT, GEMMA, V3, V4, launch, said

_STEPS, _TOPK, _WIDTH = "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"


def drafting(algorithm: str = "EAGLE", architecture: str = V3, **asked: Any) -> Any:
    return launch(architecture, speculative_algorithm=algorithm, **asked)


def with_assistant(**asked: Any) -> Any:
    return launch(GEMMA, speculative_algorithm="NEXTN", draft=ASSISTANT, **asked)


def shaped(steps: int | None, topk: int | None, width: int | None) -> dict[str, Any]:
    return {_STEPS: steps, _TOPK: topk, _WIDTH: width}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(drafting(architecture=V4, **shaped(3, 1, 4)), [], id="written"),
        pytest.param(
            drafting(architecture=V4, **shaped(2, None, None)), [("shape.v4-topk", "correct", _TOPK)], id="left-out"
        ),
        pytest.param(drafting(architecture=V4, **shaped(3, 2, 4)), [("shape.v4-topk", "refuse", _TOPK)], id="a-tree"),
        pytest.param(drafting("DSPARK", architecture=V4), [], id="near-miss-dspark"),
        pytest.param(drafting(**shaped(2, None, None)), [], id="near-miss-v3"),
    ],
)
def test_v4_wants_to_read_a_chain(given: Any, expected: list[Any]) -> None:  # C018
    assert said(shape.v4_topk(given)) == expected


@pytest.mark.parametrize(
    ("version", "steps", "found"),
    [("unknown-dev", 3, 1), ("unknown-dev", 1, 0), ("0.5.23", 3, 0), ("0.5.13.post1", 3, 0), ("latest", None, 0)],
)
def test_a_build_without_a_version_is_not_trusted_with_several_steps(
    version: str, steps: int | None, found: int
) -> None:  # C019
    given = drafting(architecture=V4, pins={"sglang": version}, **shaped(steps, 1, None))
    assert said(shape.v4_steps(given)) == [("shape.v4-steps", "warn", _STEPS)] * found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param(drafting(), 0, id="nothing-written"),
        pytest.param(drafting(**shaped(3, 1, 4)), 0, id="all-written"),
        pytest.param(drafting(**shaped(None, 1, None)), 1, id="topk-alone"),
        pytest.param(drafting(**shaped(None, None, 4)), 1, id="width-alone"),
        pytest.param(drafting(**shaped(None, 1, None), speculative_adaptive=True), 0, id="adaptive-fills-in"),
        pytest.param(drafting("NGRAM", **shaped(None, None, 12)), 0, id="near-miss-ngram"),
        pytest.param(drafting(architecture=V4), 1, id="v4-needs-topk-and-so-steps"),
        pytest.param(with_assistant(), 1, id="assistant"),
        pytest.param(with_assistant(**shaped(5, 1, 6)), 0, id="near-miss-assistant"),
        pytest.param(launch(), 0, id="near-miss-no-speculation"),
    ],
)
def test_steps_are_filled_in_only_where_nothing_is_said(given: Any, found: int) -> None:
    assert said(shape.steps_missing(given)) == [("shape.steps-missing", "refuse", _STEPS)] * found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param(drafting(**shaped(3, None, None)), 1, id="steps-alone"),
        pytest.param(drafting(), 0, id="nothing-written"),
        pytest.param(drafting(**shaped(3, None, None), speculative_adaptive=True), 0, id="adaptive-fills-in"),
        pytest.param(drafting(architecture=V4, **shaped(3, None, None)), 0, id="v4-has-its-own"),
        pytest.param(drafting("DSPARK", V4, **shaped(1, None, None)), 0, id="near-miss-a-block"),
        pytest.param(with_assistant(**shaped(5, None, 6)), 1, id="assistant"),
    ],
)
def test_topk_beside_steps_is_written(given: Any, found: int) -> None:
    assert said(shape.topk_missing(given)) == [("shape.topk-missing", "correct", _TOPK)] * found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param(drafting(**shaped(3, 1, 16)), 1, id="too-wide"),
        pytest.param(drafting(**shaped(3, 1, 3)), 1, id="too-narrow"),
        pytest.param(drafting(**shaped(3, 1, 4)), 0, id="right"),
        pytest.param(drafting(**shaped(3, 1, None)), 0, id="derived"),
        pytest.param(drafting(**shaped(2, 1, 3)), 0, id="no-power-of-two"),  # C017
        pytest.param(drafting(**shaped(3, 4, 16)), 0, id="near-miss-a-tree"),
        pytest.param(drafting(**shaped(3, None, 8), speculative_adaptive=True), 1, id="adaptive-is-a-chain"),
        pytest.param(with_assistant(**shaped(5, 1, None)), 1, id="assistant-left-out"),
        pytest.param(with_assistant(**shaped(5, 1, 6)), 0, id="assistant-right"),
    ],
)
def test_a_chain_is_as_wide_as_its_steps_and_root(given: Any, found: int) -> None:  # C015
    assert said(shape.chain_width(given)) == [("shape.chain-width", "correct", _WIDTH)] * found


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("topk", [2, 4])
def test_a_tree_verifies_at_most_what_it_offers(steps: int, topk: int) -> None:
    largest = largest_tree(steps, topk)
    refused = [("shape.tree-width", "refuse", _WIDTH)]
    assert said(shape.tree_width(drafting(**shaped(steps, topk, None)))) == refused
    assert said(shape.tree_width(drafting(**shaped(steps, topk, largest + 1)))) == refused
    assert not said(shape.tree_width(drafting(**shaped(steps, topk, largest))))
    assert not said(shape.tree_width(drafting(**shaped(steps, 1, None))))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            drafting("DSPARK", V4, speculative_dspark_block_size=5, **shaped(None, None, 6)), [], id="a-block"
        ),
        pytest.param(
            drafting("DSPARK", V4, speculative_dspark_block_size=5, **shaped(None, None, 4)),
            [("shape.block-width", "refuse", _WIDTH)],
            id="another-width",
        ),
        pytest.param(
            drafting("DSPARK", V4, **shaped(3, 2, None)),
            [("shape.block-only-dspark", "correct", _STEPS), ("shape.block-only-dspark", "correct", _TOPK)],
            id="steps-for-a-block",
        ),
        pytest.param(drafting("DSPARK", V4, **shaped(1, 1, None)), [], id="near-miss-ones"),
        pytest.param(
            drafting(speculative_dspark_block_size=5),
            [("shape.block-only-dspark", "correct", "speculative_dspark_block_size")],
            id="a-block-for-eagle",
        ),
        pytest.param(drafting(), [], id="near-miss-eagle"),
    ],
)
def test_only_dspark_drafts_a_block_and_its_width_follows(given: Any, expected: list[Any]) -> None:
    assert said(shape.blocks(given)) == expected


def test_the_checkpoints_own_block_decides_where_none_is_asked() -> None:
    dspark = "deepseek-ai/DeepSeek-V4-Flash-0731"
    wrong = launch(model=dspark, speculative_algorithm="DSPARK", **shaped(None, None, 4))
    right = launch(model=dspark, speculative_algorithm="DSPARK", **shaped(None, None, 6))
    assert said(shape.blocks(wrong)) == [("shape.block-width", "refuse", _WIDTH)]
    assert not said(shape.blocks(right))
