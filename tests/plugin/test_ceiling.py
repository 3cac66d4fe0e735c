"""The policy handed to the engine's controller, against the engine's own protocol."""

import ast
from pathlib import Path

import pytest

from spec_toolkit.fingerprint import package_folder
from spec_toolkit.plugin.ceiling import Ceiling
from spec_toolkit.plugin.knob import Knob
from spec_toolkit.terms import KnobMode


@pytest.fixture
def knob() -> Knob:
    armed = Knob()
    armed.arm([0, 1, 3], 3)
    return armed


def test_the_engine_prepares_every_candidate(knob):
    assert Ceiling(knob).candidate_steps == [0, 1, 3]


@pytest.mark.parametrize("batch_size", [0, 1, 64])
def test_the_steps_are_the_knobs_whatever_the_batch(knob, batch_size):
    ceiling = Ceiling(knob)
    assert ceiling.get_steps_for_batch(batch_size) == 3
    knob.take({"epoch": 1, "mode": KnobMode.ZERO_DRAFT, "steps": 0})
    assert ceiling.get_steps_for_batch(batch_size) == 0


def test_no_verify_result_moves_it_and_each_is_counted(knob):
    ceiling = Ceiling(knob)
    assert all(ceiling.on_verify_complete([0, 2], 2) is None for _ in range(100))
    assert ceiling.get_steps_for_batch(8) == 3
    row = knob.row(dp=0, rank=0)
    assert (row["verify_rounds"], row["accepted_drafts"], row["accepted_histogram"]) == (200, 200, [100, 0, 100, 0])


@pytest.mark.parametrize(
    ("captured", "expected"),
    [
        pytest.param([8, 1, 4], [1, 4, 8], id="graphs"),
        pytest.param(None, None, id="no-graphs"),
        pytest.param([], None, id="an-empty-list-is-no-graphs"),
    ],
)
def test_every_width_has_a_graph_for_every_batch(knob, captured, expected):
    ceiling = Ceiling(knob)
    assert ceiling.cuda_graph_bs_for_step(0) is None  # before the engine said which
    ceiling.set_cuda_graph_bs(captured)
    assert [ceiling.cuda_graph_bs_for_step(step) for step in (0, 1, 3)] == [expected] * 3


def engine_source(*path: str) -> ast.Module:
    try:
        folder = package_folder("sglang")
    except LookupError:
        pytest.skip("the engine is not installed")
    return ast.parse(Path(folder, "srt", "speculative", *path).read_text(encoding="utf-8"))


def test_it_has_what_the_engine_asks_of_a_policy():
    tree = engine_source("adaptive_runtime_state.py")
    protocol = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "AdaptiveSpecPolicy")
    asked = {
        node.name: [argument.arg for argument in node.args.args]
        for node in protocol.body
        if isinstance(node, ast.FunctionDef)
    }
    assert asked == {
        "candidate_steps": ["self"],
        "set_cuda_graph_bs": ["self", "cuda_graph_bs"],
        "get_steps_for_batch": ["self", "batch_size"],
        "on_verify_complete": ["self", "num_correct_drafts_per_req", "batch_size"],
        "cuda_graph_bs_for_step": ["self", "step"],
    }
    assert set(asked) <= set(dir(Ceiling))
