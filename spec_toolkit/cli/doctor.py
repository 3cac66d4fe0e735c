"""`spec-toolkit doctor`."""

import click

from spec_toolkit.facts.environment import read_environment
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.doctor import Health, examine
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.report.doctor import examination


@click.command()
@click.argument("recipe", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print records, not text.")
def command(recipe: str | None, *, as_json: bool) -> int:
    """Hold this machine against what the pinned engine needs, and against RECIPE where one is named.

    \b
    spec-toolkit doctor
    spec-toolkit doctor deepseek_v3_h200
    spec-toolkit doctor --json

    GPUs, driver, torch and the packages that go with it, free memory and who holds it, /dev/shm, open files, hub, disk. Nothing is
    imported, started or changed, and nothing is waited for longer than some seconds. Works without a GPU, and says that there is none.

    Exit 0 nothing is wrong, 1 something is, 2 the file is no recipe.
    """
    chosen = load_recipe(find_recipe(recipe)).recipe if recipe is not None else None
    lines = examine(read_environment(), load_tables(), chosen)
    click.echo(examination(lines, as_json=as_json))
    return 1 if any(line.health is Health.WRONG for line in lines) else 0
