"""A word that the engine knows and a number in its range, whoever wrote it: a command, or a recipe's key."""

from dataclasses import replace
from typing import Any

import pytest

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.engine.command_line.table import flag_table
from spec_toolkit.errors import Verdict
from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.judge import judge_launch
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.planning.rules import values
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import load_recipe
from tests.planning.rules.launches import launch, said

_CHAIN = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        pytest.param({"kv_cache_dtype": "fp8_bogus"}, "fp8_e4m3", id="cache"),
        pytest.param({"kv_cache_dtype": "fp4_e2m1"}, "one of auto, fp8_e5m2", id="cache-of-another-release"),
        pytest.param({"moe_runner_backend": "triton_kernels"}, "Did you mean 'triton_kernel'?", id="near"),
        pytest.param({"dtype": "float8"}, "Did you mean 'float'?", id="dtype"),
        pytest.param({"moe_a2a_backend": "deep-ep"}, "Did you mean 'deepep'?", id="exchange"),
    ],
)
def test_a_word_that_the_engine_does_not_know_is_refused_with_the_nearest(asked: dict[str, Any], says: str) -> None:
    (found,) = values.known_words(launch(**asked))
    assert (found.rule, found.verdict, found.where) == ("values.word", Verdict.REFUSE, *asked)
    assert says in found.sentence()


def test_every_word_with_choices_is_compared() -> None:
    with_choices = {row.dest for row in flag_table().by_name.values() if row.choices and row.takes == "one"}
    assert {*values._WORDS} == with_choices & {*Arguments.__struct_fields__}


@pytest.mark.parametrize("name", values._WORDS)
def test_every_word_that_the_engine_knows_passes(name: str) -> None:
    row = next(row for row in flag_table().by_name.values() if row.dest == name)
    assert not [f for choice in row.choices for f in values.known_words(launch(**{name: choice}))]


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"engine__kv_cache_dtype": "fp8_bogus"}, "engine.kv_cache_dtype"),
        ({"engine__moe_runner_backend": "bogus"}, "engine.moe_runner_backend"),
        ({"engine__attention_backend": "bogus"}, "engine.attention_backend"),
        ({"engine__moe_precision": "fp7"}, "engine.moe_precision"),
        ({"engine__dtype": "float8"}, "engine.dtype"),
        ({"draft__moe_runner_backend": "bogus"}, "draft.moe_runner_backend"),
        ({"draft__moe_a2a_backend": "bogus"}, "draft.moe_a2a_backend"),
        ({"hardware__layout": {"tp": 8, "moe_a2a_backend": "bogus"}}, "hardware.layout.moe_a2a_backend"),
    ],
)
def test_a_recipes_word_is_compared_too(tables: Tables, change: Any, keys: dict[str, Any], where: str) -> None:
    plan = make_plan(replace(load_recipe(find_recipe("deepseek_v3_h200")), recipe=change(**keys)), tables)
    assert [(f.rule, f.where) for f in plan.findings if f.verdict is Verdict.REFUSE] == [("values.word", where)]


@pytest.mark.parametrize(
    ("name", "refused", "taken"),
    [
        ("speculative_num_steps", (-1,), (1,)),
        ("speculative_eagle_topk", (0, -1), (1, 4)),
        ("speculative_num_draft_tokens", (0, -4), (4,)),
        ("speculative_dspark_block_size", (0, -1), (1,)),
        ("speculative_dflash_block_size", (0,), (1,)),
        ("speculative_ngram_max_bfs_breadth", (0,), (1,)),
        ("max_running_requests", (0, -5), (1,)),
        ("max_total_tokens", (0, -1), (1,)),
        ("max_prefill_tokens", (0,), (1,)),
        ("context_length", (0, -1), (1,)),
        ("page_size", (0, -64), (1, 64)),
        ("cuda_graph_max_bs_decode", (0, -1), (1,)),
        ("cuda_graph_bs_decode", ((0, 1), (-1,)), ((1, 2),)),
        ("mem_fraction_static", (9.0, 1.0, 0.0, -0.5), (0.01, 0.999)),
        ("swa_full_tokens_ratio", (0.0, 1.1), (0.1, 1.0)),
        ("watchdog_timeout", (0.0, -1.0), (0.5,)),
        ("schedule_conservativeness", (-0.1,), (0.0, 1.0)),
    ],
)
def test_a_number_is_in_its_range(name: str, refused: tuple[Any, ...], taken: tuple[Any, ...]) -> None:
    for value in (*refused, *taken):
        found = [f for rule in values.RULES for f in rule(launch(**{**_CHAIN, name: value}))]
        assert said(found) == ([("values.range", "refuse", name)] if value in refused else []), value


def test_steps_of_none_are_possible_and_idle() -> None:
    found = list(values.steps(launch(**{**_CHAIN, "speculative_num_steps": 0})))
    assert said(found) == [("values.no-steps", "warn", "speculative_num_steps")]


@pytest.mark.parametrize(("name", "value"), [("max_running_requests", -5), ("mem_fraction_static", 9.0)])
def test_nothing_follows_from_a_value_that_cannot_be(name: str, value: Any) -> None:
    kept = {f.sentence() for f in judge_launch(launch(gpu="h200", count=8, tp_size=8))}
    found = list(judge_launch(launch(gpu="h200", count=8, tp_size=8, **{name: value})))
    assert [f.rule for f in found if f.sentence() not in kept] == ["values.range"]
