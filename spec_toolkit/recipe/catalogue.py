"""The recipes that travel with the toolkit, by name, and what a name says. Touches the disk to list them."""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from spec_toolkit.errors import Finding, RecipeError, Verdict
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.recipe.source import printable
from spec_toolkit.shipped import shipped
from spec_toolkit.terms import Basis

REHEARSAL = "rehearsal"  # stands behind a recipe that runs on a CPU


@dataclass(frozen=True, slots=True)
class Entry:
    name: str  # "deepseek_v3_h200", "rehearsal/deepseek_v3_cpu": the file under recipes/ without its ending
    path: Path


def catalogue() -> list[Entry]:
    """Deployable recipes first, then rehearsals, each by name."""
    folder = shipped("recipes")
    paths = [*sorted(folder.glob("*.yaml")), *sorted(folder.glob("rehearsal/*.yaml"))]
    return [Entry(path.relative_to(folder).with_suffix("").as_posix(), path) for path in paths]


def find_recipe(name_or_path: str) -> Path:
    """A file as given, or the catalogue's; the last part of a catalogue name is enough. RecipeError for an unknown name."""
    if _looks_like_a_path(name_or_path):
        return Path(name_or_path)
    entries = catalogue()
    for entry in entries:
        if name_or_path in {entry.name, entry.name.rpartition("/")[2]}:
            return entry.path
    names = [entry.name for entry in entries]
    short = {name.rpartition("/")[2]: name for name in names}
    close = [short.get(match, match) for match in get_close_matches(name_or_path[:100], [*names, *short], n=3)]
    nearest = " or ".join(f"'{name}'" for name in dict.fromkeys(close))
    raise RecipeError(
        Finding(
            rule="recipe.unknown-name",
            verdict=Verdict.REFUSE,
            where=printable(name_or_path) or "''",
            found="is neither a file nor a recipe of the catalogue",
            remedy=f"Did you mean {nearest}?" if nearest else "`spec-toolkit recipes` lists the catalogue.",
        )
    )


def name_of(path: Path) -> str:
    """The catalogue's name for a file of it; for any other file, the file as given."""
    return next((entry.name for entry in catalogue() if entry.path == path), str(path))


def goal_of(name: str, recipe: Recipe) -> str | None:
    """What a recipe is for beyond serving, as its name says: the words after the GPU's."""
    words = name.rpartition("/")[2].split("_")
    gpu = recipe.hardware.gpu
    return "_".join(words[words.index(gpu) + 1 :]) or None if gpu in words else None


def grounds_of(recipe: Recipe) -> str:
    """What stands behind a recipe, in a word or a file's name: measured rows before documents, documents before nothing."""
    if recipe.is_rehearsal:
        return REHEARSAL
    return recipe.evidence or (recipe.source.basis if recipe.source else Basis.UNPROVEN).value


def _looks_like_a_path(text: str) -> bool:
    if text.endswith((".yaml", ".yml")) or text.startswith(("/", "./", "../", "~")):
        return True
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):  # too long a name, a NUL byte
        return False
