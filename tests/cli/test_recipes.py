"""`spec-toolkit recipes` as a person meets it."""

import json

import pytest
from click.testing import CliRunner

from spec_toolkit.cli.recipes import command
from spec_toolkit.errors import RecipeError
from spec_toolkit.recipe.catalogue import catalogue

NAMES = [entry.name for entry in catalogue()]


def ask(*arguments: str) -> str:
    answer = CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)
    assert answer.return_value == 0
    return answer.stdout


def test_the_list_holds_every_recipe_with_who_says_so() -> None:
    rows = json.loads(ask("--json"))
    assert [row["name"] for row in rows] == NAMES
    assert {row["evidence"] for row in rows} <= {"vendor_docs", "third_party", "unproven", "rehearsal"}
    text = ask()
    assert [name for name in NAMES if name not in text] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_can_be_explained(name: str) -> None:
    told = json.loads(ask("show", name, "--json"))
    assert (told["name"], told["may_launch"]) == (name, True)
    text = ask("show", name)
    assert text.startswith(f"{name}  (")
    assert told["summary"] in text


def test_a_recipe_in_a_file_is_explained_under_the_name_it_was_given() -> None:
    path = str(catalogue()[0].path.parent / "rehearsal" / ".." / f"{NAMES[0]}.yaml")
    assert json.loads(ask("show", path, "--json"))["name"] == path


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(RecipeError, match="Did you mean 'deepseek_v3_h200'"):
        CliRunner().invoke(command, ["show", "deepseek_v3_h20"], standalone_mode=False, catch_exceptions=False)
