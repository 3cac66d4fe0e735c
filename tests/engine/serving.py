"""Starting the real engine in a test: what `deploy` would start for the rehearsal recipe, forked from the session's nursery.

    with serving(nursery, tmp_path, speculate=True, overlap=False) as address: ...

Two seconds or so a start, against twenty for an engine that imports by itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.engine.patches import choose_patches, patches_folder, read_patches
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.forked import Forked, forked, wait_until_ready, write_launch
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.spec import LaunchSpec
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import LoadedRecipe, load_recipe
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.shipped import shipped

RECIPE = "rehearsal/deepseek_v3_cpu"
ADMIN_KEY = "a-key-of-the-tests"


def rehearsal_recipe(*, num_steps: int = 3, overlap: bool = True) -> LoadedRecipe:
    """The shipped rehearsal recipe with another depth or schedule."""
    loaded = load_recipe(find_recipe(RECIPE))
    recipe: Recipe = loaded.recipe
    changed = msgspec.structs.replace(
        recipe,
        draft=msgspec.structs.replace(recipe.draft, num_steps=num_steps),
        engine=msgspec.structs.replace(recipe.engine, overlap=overlap),
    )
    return LoadedRecipe(recipe=changed, path=loaded.path, text=loaded.text, sha256=loaded.sha256, lines=loaded.lines)


def launch_spec(folder: Path, loaded: LoadedRecipe, *, speculate: bool) -> LaunchSpec:
    """As `deploy` writes it, with patches handed over and the admin key in its file, both in `folder`."""
    plan = make_plan(loaded, load_tables())
    patches = choose_patches(
        read_patches(patches_folder(shipped("patches"), "0.5.23")), family=Family.DEEPSEEK, rehearsal=True
    )
    return write_launch(folder, plan, patches, key=ADMIN_KEY, speculate=speculate)


@contextmanager
def serving(
    nursery: Nursery, folder: Path, *, speculate: bool, num_steps: int = 3, overlap: bool = True
) -> Iterator[Forked]:
    loaded = rehearsal_recipe(num_steps=num_steps, overlap=overlap)
    with forked(nursery, folder, launch_spec(folder, loaded, speculate=speculate)) as engine:
        wait_until_ready(nursery, engine)
        yield engine
