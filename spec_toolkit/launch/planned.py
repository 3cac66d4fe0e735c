"""A recipe read and planned, with nothing of the engine's patches or of this machine: half of the time an answer takes is imports."""

from pathlib import Path

from spec_toolkit.errors import FactsError, Finding, warn
from spec_toolkit.facts.checkpoint import content_hash, model_folder, read_checkpoint
from spec_toolkit.facts.evidence import Evidence, read_evidence
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.model import Model
from spec_toolkit.facts.read_model import known_model, read_model
from spec_toolkit.facts.records import Checkpoint, Tables
from spec_toolkit.planning.plan import Known, Plan, make_plan
from spec_toolkit.recipe.load import LoadedRecipe, load_recipe

# Architectures that the engine's patches are made and tried for, as checkpoints name them, by how they begin.
OUR_ARCHITECTURES = ("Deepseek", "GlmMoeDsa", "Gemma4")


def plan_recipe(path: Path) -> tuple[LoadedRecipe, Plan]:
    """RecipeError or FactsError where there is nothing to plan; whatever else is wrong stands in the plan's findings."""
    loaded, tables = load_recipe(path), load_tables()
    checkpoint = read_target(loaded)
    plan = plan_of(loaded, tables, checkpoint)
    if plan.recipe.engine.patches or not architecture_of(plan, tables, checkpoint).startswith(OUR_ARCHITECTURES):
        from spec_toolkit.launch.prepare import patches_of  # noqa: PLC0415 - few recipes ask for one

        patches_of(plan, tables, checkpoint)
    return loaded, plan


def architecture_of(plan: Plan, tables: Tables, checkpoint: Checkpoint | None) -> str:
    """Empty where nobody knows."""
    known = tables.model(plan.recipe.target.model)
    return checkpoint.architecture if checkpoint else known.architecture.v if known else ""


def plan_of(loaded: LoadedRecipe, tables: Tables, checkpoint: Checkpoint | None) -> Plan:
    revision = loaded.recipe.target.revision or ""
    # Every byte of the folder is read for its hash: only where the recipe asks for that comparison.
    content = content_hash(checkpoint.folder) if checkpoint and revision.startswith("sha256:") else None
    recipe = loaded.recipe
    draft, unread_draft = _read_draft(recipe.draft.model, tables)
    measured, unread = _read_evidence(loaded)
    known = Known(
        target=read_model(recipe.target.model, tables),
        draft=draft,
        checkpoint=checkpoint,
        content=content,
        evidence=measured,
        findings=(*unread, *unread_draft),
    )
    return make_plan(loaded, tables, known)


def _read_draft(name: str, tables: Tables) -> tuple[Model | None, tuple[Finding, ...]]:
    """A draft that cannot be read costs speculation, not the service: the engine is tried with it, and then without."""
    if name == "same":
        return None, ()
    try:
        return read_model(name, tables), ()
    except FactsError as error:
        found = error.findings[0]
        why, remedy = "a start with it may fail, and the service then comes up without a draft", found.remedy
        unread = warn("facts.draft-unread", "draft.model", f"{found.where}: {found.found}", why, remedy)
        return known_model(name, tables), (unread,)


def _read_evidence(loaded: LoadedRecipe) -> tuple[Evidence | None, tuple[Finding, ...]]:
    """Evidence that is not there, or not as it should be, makes a recipe unproven and nothing more."""
    if loaded.recipe.evidence is None:
        return None, ()
    try:
        return read_evidence(loaded.path.parent / loaded.recipe.evidence), ()
    except FactsError as error:
        said = (f"{finding.where}: {finding.found}" for finding in error.findings)
        return None, tuple(warn("evidence.unread", "evidence", found, remedy="The plan is unproven.") for found in said)


def read_target(loaded: LoadedRecipe) -> Checkpoint | None:
    folder = model_folder(loaded.recipe.target.model)
    return read_checkpoint(folder) if folder else None
