from typing import Any

import pytest
from msgspec.structs import replace

from spec_toolkit.facts.evidence import Evidence
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.read_model import known_model
from spec_toolkit.planning.admission import derive_admission
from spec_toolkit.planning.speed.acceptance import Grounds
from spec_toolkit.planning.speed.outlook import Outlook, derive_outlook
from tests.planning.launches import launch
from tests.planning.speed.measured import drafting, evidence, plain

TABLES = load_tables()
MTP = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1}
GLM = "zai-org/GLM-5.2-FP8"
V3 = "deepseek-ai/DeepSeek-V3-0324"


def outlook(model: str, measured: Evidence | None = None, **arguments: Any) -> Outlook | None:
    situation = replace(launch(tp_size=8, max_running_requests=64, **arguments), target=known_model(model, TABLES))
    admission = derive_admission(situation)
    assert admission is not None
    return derive_outlook(situation, admission, TABLES, measured)


def test_without_evidence_a_published_curve_says_what_a_position_may_cost_and_nothing_more() -> None:
    found = outlook(GLM, **MTP)
    assert found is not None
    assert found.survival is not None
    assert found.survival.grounds is Grounds.PRIOR
    assert found.affordable_costs[:3] == pytest.approx((0.84, 0.66 / 1.18, 0.49 / 1.52))
    assert (found.points, found.turns, found.best) == ((), (), ())


def test_evidence_goes_before_what_others_published() -> None:
    rows = (plain(1, 100.0), drafting(1, 3, 150.0, 2.9, survival=(0.9, 0.6, 0.4)))
    found = outlook(GLM, evidence(*rows), **MTP)
    assert found is not None
    assert found.survival is not None
    assert (found.survival.grounds, found.survival.positions) == (Grounds.MEASURED, (0.9, 0.6, 0.4))
    assert found.lengths == pytest.approx((1.9, 2.5, 2.9))
    assert found.conditional == pytest.approx((0.9, 0.6 / 0.9, 0.4 / 0.6))
    assert [point.speedup for point in found.points] == pytest.approx([1.5])
    assert [point.break_even for point in found.points] == pytest.approx([2.9 / 1.5])
    # A position costs 0.31 of a step: the third is reached in 0.4 of rounds, and tokens cost 0.65 of a step without it.
    assert [(best.batch, best.num_steps) for best in found.best] == [(1, 2)]


def test_where_nobody_measured_acceptance_none_is_guessed() -> None:
    found = outlook(V3, **MTP)
    assert found is not None
    assert (found.survival, found.affordable_costs, found.lengths, found.conditional) == (None, (), (), ())
    assert any("1.8 times as fast at batch 1" in said.says for said in found.said)
    assert found.traffic is not None
    assert found.traffic.rejected_share is None


def test_what_a_verify_sends_and_touches_follows_from_shape_and_layout() -> None:
    found = outlook(GLM, **MTP)
    assert found is not None
    assert found.traffic is not None
    shape = known_model(GLM, TABLES).shape
    assert shape is not None
    assert found.traffic.total == pytest.approx(shape.layers * 2 * 1.75 * 64 * 4 * shape.hidden_size * 2)
    assert found.traffic.rejected_share == pytest.approx(1 - 2.99 / 4)
    alone, crowd = found.touched
    assert (alone.requests, alone.by_a_step, crowd.requests) == (1, pytest.approx(8), 64)
    assert alone.by_a_step < alone.by_a_verify < 4 * alone.by_a_step < crowd.by_a_verify < crowd.routed


def test_a_tree_accepts_what_no_chains_curve_says() -> None:
    tree = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 2}
    found = outlook(GLM, speculative_num_draft_tokens=4, **tree)
    assert found is not None
    assert found.traffic is not None
    assert found.traffic.rejected_share is None


def test_a_dense_model_touches_no_experts() -> None:
    found = outlook("google/gemma-4-31B-it", speculative_draft_model_path="google/gemma-4-31B-it-assistant", **MTP)
    assert found is not None
    assert found.touched == ()


@pytest.mark.parametrize(
    "arguments",
    [{}, {**MTP, "speculative_draft_model_path": "somebody/eagle"}],
    ids=["no-draft", "a-draft-nobody-published-of"],
)
def test_of_what_is_not_drafted_by_the_checkpoint_nothing_is_said(arguments: dict[str, Any]) -> None:
    assert outlook(GLM, **arguments) is None
