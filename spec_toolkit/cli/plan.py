"""`spec-toolkit plan`."""

import click

from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.planned import plan_recipe
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.report import plan as report
from spec_toolkit.report import said


@click.command()
@click.argument("recipe")
@click.option("--json", "as_json", is_flag=True, help="Print one record with every fact's level and source, not text.")
def command(recipe: str, *, as_json: bool) -> int:
    """Work out what RECIPE (a file, or a name of the catalogue) takes and what bounds it: memory, requests, graphs, drafts.

    \b
    spec-toolkit plan deepseek_v3_h200
    spec-toolkit plan recipes/glm52_fp8_h200.yaml --json

    Asks neither a GPU nor the hub, and says of each figure how it is known. Exit 0 nothing to refuse, 1 refused, 2 the file is no recipe.
    """
    _, plan = plan_recipe(find_recipe(recipe))
    click.echo(said.as_json(report.shown(plan, load_tables())) if as_json else report.plan(plan))
    return 0 if plan.may_launch else 1
