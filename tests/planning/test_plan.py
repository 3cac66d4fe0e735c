from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spec_toolkit.errors import Verdict
from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.plan import Evidence, make_plan
from spec_toolkit.planning.rules.shape import Shape
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import LoadedRecipe, load_recipe


@pytest.fixture(scope="module")
def h200() -> LoadedRecipe:
    return load_recipe(find_recipe("deepseek_v3_h200"))


def test_a_plan_carries_the_recipe_and_what_follows(h200: LoadedRecipe, tables: Tables) -> None:
    plan = make_plan(h200, tables)
    assert (plan.name, plan.sha256, plan.path) == ("deepseek_v3_h200", h200.sha256, h200.path)
    assert plan.shape == Shape(3, 1, 4)
    assert plan.decode_graph_batch_sizes[-1] == 64
    assert plan.may_launch
    assert plan.labels == ("unproven",)
    assert plan.evidence is Evidence.UNPROVEN


def test_a_rehearsal_is_labelled_so(tables: Tables) -> None:
    plan = make_plan(load_recipe(find_recipe("deepseek_v3_cpu")), tables)
    assert plan.labels == ("rehearsal",)
    assert plan.decode_graph_batch_sizes == ()


def test_one_refusal_forbids_the_launch_and_comes_first(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    spoiled = replace(h200, recipe=change(engine__sglang="0.5.24", draft__num_draft_tokens=9))
    plan = make_plan(spoiled, tables)
    assert not plan.may_launch
    order = [list(Verdict).index(finding.verdict) for finding in plan.findings]
    assert order == sorted(order)
    assert [finding.rule for finding in plan.findings[:2]] == ["pins.engine-version", "shape.chain-width"]


def test_a_correction_is_already_in_the_plan(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    plan = make_plan(replace(h200, recipe=change(draft__num_draft_tokens=9)), tables)
    assert plan.may_launch
    assert plan.shape == Shape(3, 1, 4)


def test_lossy_and_simulated_are_labels(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    recipe = change(draft__acceptance="relaxed", draft__accept_threshold_single=0.9, simulated=True)
    plan = make_plan(replace(h200, recipe=recipe), tables)
    assert plan.lossy
    assert plan.labels == ("lossy", "simulated", "unproven")


def test_every_rule_is_asked() -> None:
    """A rule that is written and not listed in plan.py would never speak."""
    from spec_toolkit.planning import plan
    from spec_toolkit.planning.rules import features, graphs, machine, pins, shape

    source = Path(plan.__file__).read_text("utf-8")
    for module in (features, graphs, machine, pins, shape):
        name = module.__name__.rpartition(".")[2]
        for rule, function in vars(module).items():
            generates = getattr(function, "__annotations__", {}).get("return") is not None and "Finding" in str(
                function.__annotations__["return"]
            )
            if (
                generates
                and function.__module__ == module.__name__
                and not rule.startswith("_")
                and rule != "machine_findings"
            ):
                assert f"{name}.{rule}(" in source, f"{name}.{rule}"
