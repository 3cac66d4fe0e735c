from pathlib import Path

import pytest

from spec_toolkit.errors import RecipeError
from spec_toolkit.recipe.catalogue import catalogue, find_recipe, goal_of, grounds_of
from spec_toolkit.recipe.json_schema import render_schema
from spec_toolkit.recipe.load import parse_recipe
from spec_toolkit.recipe.page import draft_words, hardware_words, render_page, shipped_recipes
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.shipped import shipped

RECIPES = shipped("recipes")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        pytest.param("deepseek_v3_h200", "deepseek_v3_h200.yaml", id="by-name"),
        pytest.param("rehearsal/deepseek_v3_cpu", "rehearsal/deepseek_v3_cpu.yaml", id="by-full-name"),
        pytest.param("deepseek_v3_cpu", "rehearsal/deepseek_v3_cpu.yaml", id="by-last-part"),
        pytest.param(str(RECIPES / "deepseek_v3_h200.yaml"), "deepseek_v3_h200.yaml", id="by-path"),
    ],
)
def test_a_recipe_is_found(name: str, file: str) -> None:
    assert find_recipe(name) == RECIPES / file


def test_a_path_is_taken_as_it_is_even_where_no_file_is() -> None:
    assert find_recipe("./nowhere.yaml") == Path("nowhere.yaml")


def test_a_file_without_the_usual_ending_is_still_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text("")
    monkeypatch.chdir(tmp_path)
    assert find_recipe("mine") == Path("mine")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        pytest.param("deepseek_v3_h20", "Did you mean 'deepseek_v3_h200' or 'deepseek_v32_h200'?", id="nearest-first"),
        pytest.param("qqq", "`spec-toolkit recipes` lists the catalogue.", id="like-none"),
        pytest.param("", "`spec-toolkit recipes` lists", id="nothing"),
        pytest.param("a\0b", "`spec-toolkit recipes` lists", id="nul"),
        pytest.param("x" * 5000, "`spec-toolkit recipes` lists", id="long"),
    ],
)
def test_an_unknown_name_is_refused_with_what_there_is(name: str, remedy: str) -> None:
    with pytest.raises(RecipeError) as caught:
        find_recipe(name)
    assert remedy in str(caught.value)


def test_the_catalogue_names_every_shipped_recipe_once() -> None:
    names = [entry.name for entry in catalogue()]
    assert sorted(names) == sorted(
        path.relative_to(RECIPES).with_suffix("").as_posix() for path in RECIPES.rglob("*.yaml")
    )
    short = [name.rpartition("/")[2] for name in names]
    assert len(set(short)) == len(short)


def test_the_page_is_the_one_the_recipes_make() -> None:
    assert (RECIPES / "README.md").read_text("utf-8") == render_page(shipped_recipes()), (
        "run python -m spec_toolkit.recipe.page"
    )


def test_the_schema_file_is_the_one_the_records_make() -> None:
    assert (RECIPES / "schema.json").read_text("utf-8") == render_schema(), (
        "run python -m spec_toolkit.recipe.json_schema"
    )


BASE = """
summary: A test.
target: {{model: org/model}}
draft: {{{draft}}}
hardware: {{gpu: h200, count: 8, {hardware}}}
engine: {{sglang: 0.5.23}}
limits: {{max_running_requests: 8, context_tokens: 4096}}
{more}
"""


def recipe_of(*, draft: str = "method: none", hardware: str = "layout: {tp: 8}", more: str = "") -> Recipe:
    text = BASE.format(draft=draft, hardware=hardware, more=more)
    return parse_recipe(text.encode(), Path("x.yaml")).recipe


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        pytest.param("model_h200", None, id="none"),
        pytest.param("model_h200_throughput", "throughput", id="one-word"),
        pytest.param("some/model_fp8_h200_long_context", "long_context", id="two-words"),
        pytest.param("model_b200_throughput", None, id="near-miss-another-gpu"),
    ],
)
def test_a_goal_is_what_stands_after_the_gpu(name: str, goal: str | None) -> None:
    assert goal_of(name, recipe_of()) == goal


@pytest.mark.parametrize(
    ("more", "grounds"),
    [
        pytest.param("", "unproven", id="nobody"),
        pytest.param("source: {basis: third_party, says: a page}", "third_party", id="a-page"),
        pytest.param(
            "source: {basis: vendor_docs, says: a page}\nevidence: evidence/x.json", "evidence/x.json", id="rows-first"
        ),
    ],
)
def test_measured_rows_stand_before_documents(more: str, grounds: str) -> None:
    assert grounds_of(recipe_of(more=more)) == grounds


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        pytest.param("method: none", "none", id="nothing"),
        pytest.param("method: mtp, num_steps: 1", "mtp, 1 step, topk 1, target_only", id="one-step"),
        pytest.param("method: dspark", "dspark, target_only", id="the-checkpoints-block"),
        pytest.param("method: dspark, block_tokens: 5", "dspark, blocks of 5, target_only", id="a-block"),
    ],
)
def test_a_draft_is_said_in_its_own_words(draft: str, words: str) -> None:
    assert draft_words(recipe_of(draft=draft).draft) == words


@pytest.mark.parametrize(
    ("hardware", "words"),
    [
        pytest.param("layout: {tp: 8}", "8 × H200, TP 8", id="tensor-parallel"),  # noqa: RUF001 - it says "times"
        pytest.param(
            "layout: {tp: 8, dp: 4, dp_attention: true}",
            "8 × H200, TP 8, attention DP 4",  # noqa: RUF001 - as above
            id="attention-dp",
        ),
        pytest.param(
            "nodes: 2, layout: {tp: 8, dp: 2}",
            "2 nodes of 8 × H200, TP 8, DP 2",  # noqa: RUF001 - as above
            id="copies-on-two-nodes",
        ),
    ],
)
def test_hardware_is_said_with_its_layout(hardware: str, words: str) -> None:
    assert hardware_words(recipe_of(hardware=hardware).hardware) == words
