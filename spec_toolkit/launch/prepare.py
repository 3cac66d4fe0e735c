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
from spec_toolkit.errors import EngineError, FactsError, Finding, RecipeError, Verdict, warn
from spec_toolkit.facts.checkpoint import content_hash, model_folder, read_checkpoint
from spec_toolkit.facts.evidence import Evidence, read_evidence
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.machine import read_machine
from spec_toolkit.facts.read_model import read_model
from spec_toolkit.facts.records import Checkpoint, Tables
from spec_toolkit.planning.plan import Known, Plan, make_plan
from spec_toolkit.planning.rules.machine import machine_findings
from spec_toolkit.recipe.load import LoadedRecipe, load_recipe
from spec_toolkit.shipped import shipped

# Architectures as checkpoints name them, by how they begin.
_FAMILIES = {"Deepseek": Family.DEEPSEEK, "GlmMoeDsa": Family.GLM5, "Gemma4": Family.GEMMA4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    loaded: LoadedRecipe
    plan: Plan
    patches: tuple[Patch, ...]
    machine: tuple[Finding, ...]  # why this machine cannot run it; empty where it can

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*self.plan.findings, *self.machine)


def plan_recipe(path: Path) -> tuple[LoadedRecipe, Plan]:
    """RecipeError or FactsError where there is nothing to plan; whatever else is wrong stands in the plan's findings."""
    loaded, plan, _ = plan_and_patches(path)
    return loaded, plan


def plan_and_patches(path: Path) -> tuple[LoadedRecipe, Plan, tuple[Patch, ...]]:
    """As `plan_recipe`, with the patches that its engine would load."""
    loaded, tables = load_recipe(path), load_tables()
    checkpoint = _read_target(loaded)
    _, plan = _plan(loaded, tables, checkpoint)
    return loaded, plan, _choose_patches(plan, tables, checkpoint)


def prepare(path: Path) -> Prepared:
    loaded, tables = load_recipe(path), load_tables()
    checkpoint = _read_target(loaded)
    _, plan = _plan(loaded, tables, checkpoint)
    patches = _choose_patches(plan, tables, checkpoint)
    return Prepared(loaded=loaded, plan=plan, patches=patches, machine=tuple(_machine(plan, patches, tables)))


def _plan(loaded: LoadedRecipe, tables: Tables, checkpoint: Checkpoint | None) -> tuple[LoadedRecipe, Plan]:
    revision = loaded.recipe.target.revision or ""
    # Every byte of the folder is read for its hash: only where the recipe asks for that comparison.
    content = content_hash(checkpoint.folder) if checkpoint and revision.startswith("sha256:") else None
    recipe, draft = loaded.recipe, loaded.recipe.draft.model
    measured, unread = _read_evidence(loaded)
    known = Known(
        target=read_model(recipe.target.model, tables),
        draft=None if draft == "same" else read_model(draft, tables),
        checkpoint=checkpoint,
        content=content,
        evidence=measured,
        findings=unread,
    )
    return loaded, make_plan(loaded, tables, known)


def _read_evidence(loaded: LoadedRecipe) -> tuple[Evidence | None, tuple[Finding, ...]]:
    """Evidence that is not there, or not as it should be, makes a recipe unproven and nothing more."""
    if loaded.recipe.evidence is None:
        return None, ()
    try:
        return read_evidence(loaded.path.parent / loaded.recipe.evidence), ()
    except FactsError as error:
        said = (f"{finding.where}: {finding.found}" for finding in error.findings)
        return None, tuple(warn("evidence.unread", "evidence", found, remedy="The plan is unproven.") for found in said)


def _read_target(loaded: LoadedRecipe) -> Checkpoint | None:
    folder = model_folder(loaded.recipe.target.model)
    return read_checkpoint(folder) if folder else None


def _choose_patches(plan: Plan, tables: Tables, checkpoint: Checkpoint | None) -> tuple[Patch, ...]:
    recipe = plan.recipe
    folder = patches_folder(shipped("patches"), tables.engine.version)
    family = _family(recipe.target.model, tables, checkpoint)
    patches = read_patches(folder)
    try:
        return choose_patches(patches, family=family, rehearsal=recipe.is_rehearsal, requested=recipe.engine.patches)
    except EngineError as error:  # the recipe asks for what there is not
        raise RecipeError(*error.findings) from None


def _family(model: str, tables: Tables, checkpoint: Checkpoint | None) -> Family:
    known = tables.model(model)
    architecture = checkpoint.architecture if checkpoint else known.architecture.v if known else ""
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
                remedy=f"pip install sglang=={wanted}",
            )
        )
        return found
    found += mismatches(check for patch in patches for check in verify(patch))
    return found
