"""Starting the real engine in a test: what `deploy` would start for the rehearsal recipe, forked from the session's nursery.

    with serving(nursery, tmp_path, speculate=True, overlap=False) as address: ...

Two seconds or so a start, against twenty for an engine that imports by itself.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import requests

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.engine.patches import choose_patches, hand_over, patches_folder, read_patches
from spec_toolkit.facts.checkpoint import model_folder
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.launch.spec import LaunchSpec, Place, steps_config, to_launch
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import LoadedRecipe, load_recipe
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.shipped import rehearsal, shipped

RECIPE = "rehearsal/deepseek_v3_cpu"
ADMIN_KEY = "a-key-of-the-tests"
READY_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Serving:
    """A running engine."""

    address: str
    pid: int
    log: Path
    folder: Path  # holds patches.json and its reports


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
    config = folder / "engine.yaml"
    config.write_text(f"admin-api-key: {ADMIN_KEY}\n")
    (folder / "steps.json").write_text(json.dumps(steps_config(plan.steps)))
    port = free_engine_port()
    place = Place(
        python="python3",
        rehearsal=str(rehearsal()),
        target=str(model_folder(loaded.recipe.target.model)),
        target_commit=None,
        draft=None,
        draft_commit=None,
        engine_config=str(config),
        steps_config=str(folder / "steps.json"),
        patch_list=str(hand_over(patches, folder)),
        port=port,
        cores=2,
    )
    return to_launch(plan, place, speculate=speculate)


@contextmanager
def serving(
    nursery: Nursery, folder: Path, *, speculate: bool, num_steps: int = 3, overlap: bool = True
) -> Iterator[Serving]:
    loaded = rehearsal_recipe(num_steps=num_steps, overlap=overlap)
    folder.mkdir(parents=True, exist_ok=True)
    spec = launch_spec(folder, loaded, speculate=speculate)
    log = folder / "engine.log"
    arguments = spec.command[2:]  # without `python serve.py`: the nursery is both
    pid = nursery.spawn(arguments, spec.set_environment, log)
    try:
        wait_until_ready(nursery, pid, spec.address, log)
        yield Serving(spec.address, pid, log, folder)
    finally:
        if nursery.exit_code(pid) is None:
            nursery.kill(pid, 9)
            nursery.wait(pid, 30)


def wait_until_ready(nursery: Nursery, pid: int, address: str, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with suppress(requests.RequestException):
            if requests.get(f"{address}/health", timeout=5).status_code == 200:
                return
        code = nursery.exit_code(pid)
        assert code is None, f"the engine ended with {code}:\n{log.read_text()[-3000:]}"
        assert time.monotonic() < deadline, f"the engine was not ready:\n{log.read_text()[-3000:]}"
        time.sleep(0.05)
