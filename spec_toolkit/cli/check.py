"""`spec-toolkit check`."""

import click

from spec_toolkit.launch.prepare import plan_recipe
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.report import text


@click.command()
@click.argument("recipe")
@click.option("--json", "as_json", is_flag=True, help="Print records, not text.")
def command(recipe: str, *, as_json: bool) -> int:
    """Say what is wrong with RECIPE (a file, or a name of the catalogue), and what to write instead.

    \b
    spec-toolkit check recipes/deepseek_v3_h200.yaml
    spec-toolkit check deepseek_v3_h200 --json

    Asks neither a GPU nor the hub. Exit 0 nothing to refuse, 1 refused, 2 the file is no recipe.
    """
    _, plan = plan_recipe(find_recipe(recipe))
    click.echo(text.as_json(plan.findings) if as_json else text.check(plan))
    return 0 if plan.may_launch else 1
