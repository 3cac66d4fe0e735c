from pathlib import Path

import pytest

from spec_toolkit.errors import RecipeError
from spec_toolkit.recipe.catalogue import catalogue, find_recipe
from spec_toolkit.recipe.json_schema import render_schema
from spec_toolkit.recipe.page import render_page, shipped_recipes
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
        pytest.param(
            "deepseek_v3_h20", "Did you mean 'deepseek_v3_h200' or 'rehearsal/deepseek_v3_cpu'?", id="nearest-first"
        ),
        pytest.param("qqq", "The catalogue has deepseek_v3_h200, rehearsal/deepseek_v3_cpu, ", id="like-none"),
        pytest.param("", "The catalogue has", id="nothing"),
        pytest.param("a\0b", "The catalogue has", id="nul"),
        pytest.param("x" * 5000, "The catalogue has", id="long"),
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
