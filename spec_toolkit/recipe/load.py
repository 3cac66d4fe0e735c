"""Loads a recipe: bytes, text, tree, plain data, record; each step refuses in words, all complaints of a step at once."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from spec_toolkit.errors import Finding, RecipeError, Verdict
from spec_toolkit.recipe.kinds import MOST_COMPLAINTS, check_kinds
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.recipe.source import decode_source, printable, read_source
from spec_toolkit.recipe.tree import parse_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRecipe:
    """A recipe with where it came from."""

    recipe: Recipe
    path: Path  # as it was given
    text: str
    sha256: str  # "sha256:<64 hexadecimal digits>" of the file's bytes
    lines: Mapping[str, int]  # of every written key, by key path: "draft.num_steps", "engine.extra_args[0].flag"

    @property
    def name(self) -> str:
        """The identity: the file's name."""
        return self.path.stem

    def line_of(self, key_path: str) -> int:
        """The line of a key, or, where it is not written, of the nearest group above it that is."""
        while key_path and key_path not in self.lines:
            key_path = key_path[: max(key_path.rfind("."), key_path.rfind("["), 0)]
        return self.lines.get(key_path, 1)


def load_recipe(path: Path) -> LoadedRecipe:
    """RecipeError, with a finding for each complaint, where the file is no recipe; never another exception."""
    return parse_recipe(read_source(path), path)


def parse_recipe(content: bytes, path: Path) -> LoadedRecipe:
    """As `load_recipe`, of bytes already read; `path` only names them."""
    where = printable(str(path))
    text = decode_source(content, where)
    root, findings = parse_tree(text, where)
    checked = check_kinds(root, Recipe, where)
    findings = sorted(findings + checked.findings, key=_line)
    if findings:
        raise RecipeError(*_bounded(findings, where))
    try:
        recipe = msgspec.convert(checked.data, Recipe)
    except msgspec.ValidationError as error:  # a constraint `check_kinds` has no words for
        finding = Finding(rule="recipe.kind", verdict=Verdict.REFUSE, where=where, found=printable(str(error)))
        raise RecipeError(finding) from None
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return LoadedRecipe(recipe=recipe, path=path, text=text, sha256=digest, lines=checked.lines)


def _line(finding: Finding) -> int:
    return int(finding.where.rpartition(":")[2])


def _bounded(findings: list[Finding], where: str) -> list[Finding]:
    unsaid = len(findings) - MOST_COMPLAINTS
    if unsaid <= 0:
        return findings
    last = Finding(
        rule="recipe.file", verdict=Verdict.REFUSE, where=where, found=f"{unsaid:,} more complaints are left out"
    )
    return [*findings[:MOST_COMPLAINTS], last]
