"""Everything to be known before anything is started: recipe, plan, patches, this machine. Reads the world, changes nothing."""

from dataclasses import dataclass
from pathlib import Path

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.engine.patches import (
    Patch,
    choose_patches,
    installed_engine,
    mismatches,
    patches_folder,
    read_patches,
    verify,
)
from spec_toolkit.errors import EngineError, FactsError, Finding, RecipeError, Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.machine import read_machine
from spec_toolkit.facts.records import Checkpoint, Tables
from spec_toolkit.launch.planned import OUR_ARCHITECTURES, architecture_of, plan_of, read_target
from spec_toolkit.planning.plan import Plan
from spec_toolkit.planning.rules.machine import machine_findings
from spec_toolkit.recipe.load import LoadedRecipe, load_recipe
from spec_toolkit.shipped import shipped

_FAMILIES = dict(zip(OUR_ARCHITECTURES, (Family.DEEPSEEK, Family.GLM5, Family.GEMMA4), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    loaded: LoadedRecipe
    plan: Plan
    patches: tuple[Patch, ...]
    machine: tuple[Finding, ...]  # why this machine cannot run it; empty where it can

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*self.plan.findings, *self.machine)


def plan_and_patches(path: Path) -> tuple[LoadedRecipe, Plan, tuple[Patch, ...]]:
    """As `plan_recipe`, with the patches that its engine would load."""
    loaded, tables = load_recipe(path), load_tables()
    checkpoint = read_target(loaded)
    plan = plan_of(loaded, tables, checkpoint)
    return loaded, plan, patches_of(plan, tables, checkpoint)


def prepare(path: Path) -> Prepared:
    return prepare_loaded(load_recipe(path))


def prepare_loaded(loaded: LoadedRecipe) -> Prepared:
    tables = load_tables()
    checkpoint = read_target(loaded)
    plan = plan_of(loaded, tables, checkpoint)
    patches = patches_of(plan, tables, checkpoint)
    return Prepared(loaded=loaded, plan=plan, patches=patches, machine=tuple(_machine(plan, patches, tables)))


def patches_of(plan: Plan, tables: Tables, checkpoint: Checkpoint | None) -> tuple[Patch, ...]:
    recipe = plan.recipe
    folder = patches_folder(shipped("patches"), tables.engine.version)
    family = _family(recipe.target.model, architecture_of(plan, tables, checkpoint))
    patches = read_patches(folder)
    try:
        return choose_patches(patches, family=family, rehearsal=recipe.is_rehearsal, requested=recipe.engine.patches)
    except EngineError as error:  # the recipe asks for what there is not
        raise RecipeError(*error.findings) from None


def _family(model: str, architecture: str) -> Family:
    for beginning, family in _FAMILIES.items():
        if architecture.startswith(beginning):
            return family
    raise FactsError.of(
        "facts.family",
        "target.model",
        f"{model} is of architecture {architecture or 'unknown'}",
        why="the engine's patches are made and tried for DeepSeek, GLM-5 and Gemma 4",
        remedy="Deploy a model of these families, or name a local folder whose config.json says that it is one.",
    )


def _machine(plan: Plan, patches: tuple[Patch, ...], tables: Tables) -> list[Finding]:
    found = list(machine_findings(plan.recipe, read_machine(), tables))
    installed, wanted = installed_engine(), tables.engine.version
    if installed != wanted:
        says = f"has sglang {installed}" if installed else "has no sglang in this Python environment"
        found.append(
            Finding(
                rule="machine.engine",
                verdict=Verdict.REFUSE,
                where="machine",
                found=says,
                why=f"recipe and patches are for {wanted}",
                remedy="Run `make setup` in a checkout."
                if plan.recipe.is_rehearsal
                else f"pip install sglang=={wanted}",
            )
        )
        return found
    found += mismatches(check for patch in patches for check in verify(patch))
    return found
