"""A plan as people and programs read it."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from spec_toolkit.facts.known import load_tables
from spec_toolkit.planning.plan import Plan, make_plan
from spec_toolkit.recipe.catalogue import catalogue, find_recipe
from spec_toolkit.recipe.load import load_recipe, parse_recipe
from spec_toolkit.report import plan as report
from spec_toolkit.report import said

TABLES = load_tables()


def made(name: str) -> Plan:
    return make_plan(load_recipe(find_recipe(name)), TABLES)


@pytest.mark.parametrize("entry", catalogue(), ids=lambda entry: entry.name)
def test_every_recipe_can_be_shown_both_ways(entry) -> None:
    plan = make_plan(load_recipe(entry.path), TABLES)
    shown = report.plan(plan)
    assert plan.recipe.summary in shown
    record = json.loads(said.as_json(report.shown(plan, TABLES)))
    assert record["may_launch"] is plan.may_launch
    assert len(record["memory"]["lines"]) == len(plan.forecast.ledger.lines)


def test_each_line_of_memory_says_how_it_is_known_and_the_unknown_are_named() -> None:
    plan = made("deepseek_v3_h200")
    shown = report.plan(plan)
    for line in plan.forecast.ledger.lines:
        [row] = [row for row in shown.splitlines() if row.startswith(f"  {line.name} ")]
        assert f"{line.how.value}: " in row
        figure = row.removeprefix(f"  {line.name} ").split(line.how.value)[0]
        assert ("GiB" in figure) is (line.bytes is not None)
    assert "leave out what is unknown: taken before the load" in shown


def test_what_binds_stands_first_and_what_is_behind_it_next() -> None:
    plan = made("deepseek_v3_h200")
    admission = plan.forecast.admission
    assert admission is not None
    assert admission.binding is not None
    assert admission.behind is not None
    [binds] = re.findall(r"^  binds +([\d,]+) requests a rank  (\S+):", report.plan(plan), re.MULTILINE)
    [behind] = re.findall(r"^  then +([\d,]+) requests a rank  (\S+):", report.plan(plan), re.MULTILINE)
    assert binds == (f"{admission.binding.requests:,}", admission.binding.name)
    assert behind == (f"{admission.behind.requests:,}", admission.behind.name)


def test_a_published_curve_is_called_a_prior_and_no_break_even_is_made_up() -> None:
    shown = report.plan(made("glm52_fp8_h200"))
    assert "acceptance   prior: published for zai-org/GLM-5.2-FP8" in shown
    assert "accepted where all before it are, by position: 0.84, " in shown
    assert "prior        known to run since SGLang 0.5.13.post1" in shown
    assert "break-even   unknown" in shown


def test_without_a_draft_nothing_is_said_of_drafts() -> None:
    shown = report.plan(made("glm52_fp8_h200_throughput"))
    assert "What drafts may be worth" not in shown
    assert "draft weights" not in shown


def test_every_fact_of_the_record_has_its_level_and_source() -> None:
    shown = report.shown(made("gemma4_31b_h200"), TABLES)
    facts = [fact for facts in shown.facts.values() for fact in facts]
    assert facts
    for fact in msgspec.to_builtins(facts):
        assert fact["level"]
        assert fact["source"]


def test_facts_of_the_gpu_and_of_the_engine_reach_both_outputs() -> None:
    plan = made("deepseek_v3_h200")
    shown, record = report.plan(plan), report.shown(plan, TABLES)
    [usable] = [row for row in shown.splitlines() if row.startswith("  for weights and KV")]
    assert "143,771 MiB (third-party: nvidia-smi-listings)" in usable
    assert "sglang-source: srt/arg_groups/memory_hook.py" in usable
    of_gpu = {fact.what: fact for fact in record.facts["h200"]}
    assert (of_gpu["memory_mib"].value, of_gpu["memory_mib"].source) == (143_771, "nvidia-smi-listings")
    assert {"sglang-memory-hook", "sglang-graph-list"} <= {fact.source for fact in record.facts["sglang 0.5.23"]}
    for source in ("nvidia-smi-listings", "sglang-memory-hook", "sglang-graph-list"):
        assert source in shown


def test_a_refused_recipe_is_shown_with_its_refusal() -> None:
    content = Path(find_recipe("deepseek_v3_h200")).read_text("utf-8").replace("sglang: 0.5.23", "sglang: 0.5.24")
    plan = make_plan(parse_recipe(content.encode(), Path("x.yaml")), TABLES)
    assert report.plan(plan).endswith("is refused: 1 to refuse, 1 to warn, 7 to note")
