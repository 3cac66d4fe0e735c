"""What `spec-toolkit resolve` does where nothing is kept."""

from pathlib import Path

import click
from msgspec.structs import replace

from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.prepare import plan_and_patches
from spec_toolkit.launch.resolution import about_command, about_plan, put
from spec_toolkit.launch.resolving.kept import Wanted, keep
from spec_toolkit.launch.resolving.records import Resolution
from spec_toolkit.planning.situation import Site
from spec_toolkit.recipe.command import read_command


def ask(wanted: Wanted) -> Resolution:
    found = _of_recipe(wanted.recipe) if wanted.recipe is not None else _of_command(wanted)
    keep(wanted, found)
    return found


def _of_recipe(path: Path) -> Resolution:
    _, plan, patches = plan_and_patches(path)
    return put(about_plan(plan, load_tables(), patches), waiting=_waiting)


def _of_command(wanted: Wanted) -> Resolution:
    facts = load_tables().gpus.get(wanted.gpu or "")
    site = Site(gpu=wanted.gpu, facts=facts, gpus_per_node=wanted.count, nodes=wanted.nodes)
    opened: list[str] = []

    def open_file(name: str) -> bytes:
        opened.append(name)
        return Path(name).read_bytes()

    launch = read_command(wanted.command or "", open_file=open_file)
    found = put(about_command(launch, load_tables(), site), waiting=_waiting)
    return replace(found, of_tables=found.of_tables and not opened)


def _waiting() -> None:
    click.echo("asking sglang, which takes about ten seconds to import; the answer will be kept", err=True)
