"""Everything to be known before a rehearsal starts: the tiny model, the recipe at toy size, its plans. Reads the world, changes nothing."""

from dataclasses import dataclass, replace

from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.planned import read_target
from spec_toolkit.launch.prepare import Prepared, patches_of, prepare_loaded
from spec_toolkit.planning.plan import Plan
from spec_toolkit.prove.rehearse.settings import Setting, at_toy_size
from spec_toolkit.prove.rehearse.tiny import Tiny, tiny_for
from spec_toolkit.recipe.load import LoadedRecipe
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.shipped import rehearsal
from spec_toolkit.terms import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A recipe that can be rehearsed, unless something is refused."""

    loaded: LoadedRecipe
    production: Plan
    tiny: Tiny | None  # None: the recipe is a rehearsal already
    settings: tuple[Setting, ...]
    alone: Prepared  # on one rank
    ranks: Prepared | None  # on several, where the recipe has them
    added_patches: tuple[str, ...]  # ids of those that the recipe's deployment does not have

    @property
    def drafts(self) -> bool:
        return self.alone.plan.recipe.draft.method is not Method.NONE

    @property
    def name_of_ranks(self) -> str:
        """Of the engine on several."""
        tp = self.ranks.plan.recipe.hardware.layout.tp if self.ranks else 1
        return f"{tp} ranks" if self.drafts else f"target on {tp} ranks"

    @property
    def samples(self) -> bool:
        """Whether sampled answers are held against the target's law: a lossy rule does not promise it."""
        return self.drafts and not self.alone.plan.lossy

    @property
    def refused(self) -> tuple[Finding, ...]:
        """Why this machine, or the engine at toy size, cannot run it; empty where both can."""
        both = (self.alone, *((self.ranks,) if self.ranks else ()))
        found = [finding for one in both for finding in one.findings if finding.verdict is Verdict.REFUSE]
        return tuple({finding.sentence(): finding for finding in found}.values())


def make_ready(loaded: LoadedRecipe, production: Plan) -> Ready:
    """FactsError where no tiny model stands for the recipe's; RecipeError where it asks for a patch that there is not."""
    recipe = production.recipe  # a draft that a cap has planned away is not rehearsed
    tiny = None if recipe.is_rehearsal else tiny_for(production.situation.target, recipe.draft, tiny_models())
    small = at_toy_size(recipe, tiny)
    alone = _prepared(loaded, small.alone)
    ranks = _prepared(loaded, small.ranks) if small.ranks else None
    deployed = {patch.id for patch in patches_of(production, load_tables(), read_target(loaded))}
    used = {patch.id for one in (alone, ranks) if one for patch in one.patches}
    return Ready(
        loaded=loaded,
        production=production,
        tiny=tiny,
        settings=small.changed,
        alone=alone,
        ranks=ranks,
        added_patches=tuple(sorted(used - deployed)),
    )


def tiny_models() -> frozenset[str]:
    return frozenset(folder.name for folder in (rehearsal() / "models").iterdir() if (folder / "config.json").is_file())


def _prepared(loaded: LoadedRecipe, recipe: Recipe) -> Prepared:
    return prepare_loaded(replace(loaded, recipe=recipe))
