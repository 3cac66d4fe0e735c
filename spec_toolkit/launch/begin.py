"""A recipe to begin with, from a launch that somebody has. Reads models; writes one new file."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from spec_toolkit.errors import Finding, RecipeError, Verdict
from spec_toolkit.facts.records import Tables
from spec_toolkit.launch.asked import Given, defaults_for, machines_for
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.recipe.command import CommandLaunch
from spec_toolkit.recipe.from_command import to_recipe
from spec_toolkit.recipe.load import parse_recipe
from spec_toolkit.recipe.manifest import PodLaunch
from spec_toolkit.recipe.render import recipe_text
from spec_toolkit.recipe.source import printable

_HEAD = (
    "Written by `spec-toolkit init` from a launch command. Nobody has said yet that this cell works, or measured what it earns:",
    "`source` and `evidence` are to come.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    text: str | None  # None: the engine's own parser would refuse the command, and nothing is begun
    findings: tuple[Finding, ...]  # about the command, then about the recipe

    @property
    def may_launch(self) -> bool:
        return not any(finding.verdict is Verdict.REFUSE for finding in self.findings)


def begin(launch: CommandLaunch, pod: PodLaunch | None, given: Given, tables: Tables) -> Begun:
    """RecipeError where the command leaves open what nobody can fill in, or holds a number that no recipe may."""
    if any(finding.verdict is Verdict.REFUSE for finding in launch.findings):
        return Begun(text=None, findings=launch.findings)
    drawn = to_recipe(launch, machines_for(launch, given, tables, pod), defaults_for(launch, tables))
    text = recipe_text(drawn.recipe, _HEAD)
    plan = make_plan(parse_recipe(text.encode(), Path("recipe.yaml")), tables)
    refused = [finding for finding in plan.findings if finding.verdict is Verdict.REFUSE]
    return Begun(text=text, findings=(*launch.findings, *drawn.findings, *refused))


def write_new(path: Path, text: str) -> None:
    """The file is there whole or not at all; RecipeError where it is there already."""
    beside = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")
    try:
        with beside.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(beside, path)
    except FileExistsError:
        where, found = printable(str(path)), "is there already, and is kept"
        raise RecipeError.of("init.exists", where, found, remedy="Name another file, or remove it.") from None
    finally:
        beside.unlink(missing_ok=True)
