"""Whole resolutions are kept as long as nothing that they follow from has changed."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from spec_toolkit.launch.decided import decided
from spec_toolkit.launch.resolving import kept
from spec_toolkit.launch.resolving.kept import Wanted, keep, read_kept
from spec_toolkit.launch.resolving.records import Resolution
from tests.launch.test_decided import ANSWER

FOUND = Resolution(
    name="mine",
    machine="8 H200",
    engine="0.5.23",
    answered=True,
    resolved=True,
    decided=decided(ANSWER),
    autoregressive=None,
    said=(),
    findings=(),
    seconds=0.2,
)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "engine_identity", lambda: "an engine")
    path = tmp_path / "recipes" / "mine.yaml"
    path.parent.mkdir()
    path.write_text("summary: mine\n")
    return path


def test_what_is_kept_comes_back_whole(recipe: Path) -> None:
    keep(Wanted(recipe=recipe), FOUND)
    assert read_kept(Wanted(recipe=recipe)) == FOUND


@pytest.mark.parametrize("found", [replace(FOUND, answered=False), replace(FOUND, of_tables=False)])
def test_what_says_nothing_or_follows_from_other_files_is_not_kept(recipe: Path, found: Resolution) -> None:
    keep(Wanted(recipe=recipe), found)
    assert read_kept(Wanted(recipe=recipe)) is None


def test_another_text_of_a_recipe_is_another_question(recipe: Path) -> None:
    keep(Wanted(recipe=recipe), FOUND)
    recipe.write_text("summary: yours\n")
    assert read_kept(Wanted(recipe=recipe)) is None


def test_the_same_command_elsewhere_is_another_question(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative names in it are the current folder's."""
    asked = Wanted(command="sglang serve ./x", gpu="h200")
    keep(asked, FOUND)
    assert read_kept(asked) == FOUND
    monkeypatch.chdir(tmp_path)
    assert read_kept(asked) is None


def test_evidence_beside_a_recipe_counts(recipe: Path) -> None:
    keep(Wanted(recipe=recipe), FOUND)
    (recipe.parent / "evidence").mkdir()
    (recipe.parent / "evidence" / "mine.json").write_text("{}")
    assert read_kept(Wanted(recipe=recipe)) is None


def test_another_engine_is_asked_again(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(Wanted(recipe=recipe), FOUND)
    monkeypatch.setattr(kept, "engine_identity", lambda: "another")
    assert read_kept(Wanted(recipe=recipe)) is None
    monkeypatch.setattr(kept, "engine_identity", lambda: None)
    assert read_kept(Wanted(recipe=recipe)) is None


def test_our_own_code_counts(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    (package / "room").mkdir(parents=True)
    (package / "room" / "module.py").write_text("one = 1\n")
    monkeypatch.setattr(kept, "_PACKAGE", package)
    keep(Wanted(recipe=recipe), FOUND)
    assert read_kept(Wanted(recipe=recipe)) == FOUND
    (package / "room" / "module.py").write_text("one = 12\n")
    assert read_kept(Wanted(recipe=recipe)) is None


@pytest.mark.parametrize(
    "other",
    [
        {"command": "x y"},
        {"gpu": "b200"},
        {"count": 4},
        {"nodes": 2},
    ],
)
def test_a_command_is_kept_for_its_machines(recipe: Path, other: dict[str, object]) -> None:
    wanted = Wanted(command="x", gpu="h200", count=8)
    keep(wanted, FOUND)
    assert read_kept(wanted) == FOUND
    assert read_kept(replace(wanted, **other)) is None
