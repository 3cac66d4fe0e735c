"""A recipe as it is read and planned from this machine."""

from pathlib import Path

import pytest

from spec_toolkit.errors import FactsError
from spec_toolkit.launch.planned import plan_recipe
from spec_toolkit.shipped import shipped

TEXT = (shipped("recipes") / "rehearsal" / "deepseek_v3_cpu.yaml").read_text("utf-8")


def write(tmp_path: Path, old: str, new: str) -> Path:
    assert old in TEXT
    path = tmp_path / "mine_cpu.yaml"
    path.write_text(TEXT.replace(old, new))
    return path


def test_a_draft_that_cannot_be_read_is_told_and_costs_no_service(tmp_path: Path) -> None:
    path = write(tmp_path, "method: mtp", "method: mtp\n  model: ./nowhere")
    _, plan = plan_recipe(path)
    assert "facts.draft-unread" in {finding.rule for finding in plan.findings}
    assert plan.may_launch


def test_a_target_that_cannot_be_read_is_no_plan(tmp_path: Path) -> None:
    path = write(tmp_path, "rehearsal:deepseek_v3_tiny", "./nowhere")
    with pytest.raises(FactsError, match=r"facts\.checkpoint"):
        plan_recipe(path)


def test_evidence_that_is_not_there_leaves_a_recipe_unproven(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = (shipped("recipes") / "deepseek_v3_h200.yaml").read_text("utf-8")
    path.write_text(f"{text}\nevidence: evidence/none.json\n")
    _, plan = plan_recipe(path)
    assert "evidence.unread" in {finding.rule for finding in plan.findings}
    assert plan.labels == ("unproven",)
