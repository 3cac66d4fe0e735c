"""What `spec-toolkit resolve` does where nothing is kept."""

from pathlib import Path

import click
from msgspec.structs import replace

from spec_toolkit.cli.launches import of_command
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.asked import Given, machines_for
from spec_toolkit.launch.prepare import plan_and_patches
from spec_toolkit.launch.resolution import about_command, about_plan, put
from spec_toolkit.launch.resolving.kept import Wanted, keep
from spec_toolkit.launch.resolving.records import Resolution
from spec_toolkit.planning.situate import site_of
from spec_toolkit.recipe.command import first_launch


def ask(wanted: Wanted) -> Resolution:
    found = _of_recipe(wanted.recipe) if wanted.recipe is not None else _of_command(wanted)
    keep(wanted, found)
    return found


def _of_recipe(path: Path) -> Resolution:
    _, plan, patches = plan_and_patches(path)
    return put(about_plan(plan, load_tables(), patches), waiting=_waiting)


def _of_command(wanted: Wanted) -> Resolution:
    """The first launch of the text, on the machines that `check` takes it for."""
    tables, opened = load_tables(), list[str]()
    launch = first_launch(of_command(wanted.command or "", opened.append))
    machines = machines_for(launch, Given(gpu=wanted.gpu, count=wanted.count, nodes=wanted.nodes), tables)
    site = site_of(tables, machines.gpu, machines.count, machines.nodes)
    found = put(about_command(launch, tables, site), waiting=_waiting)
    return replace(found, of_tables=found.of_tables and not opened)


def _waiting() -> None:
    click.echo("asking sglang, which takes about ten seconds to import; the answer will be kept", err=True)
