"""`spec-toolkit recipes`."""

import click

from spec_toolkit.launch.planned import plan_recipe
from spec_toolkit.recipe.catalogue import find_recipe, name_of
from spec_toolkit.recipe.page import shipped_recipes
from spec_toolkit.report import recipes as report
from spec_toolkit.report.said import as_json as to_json


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print records, not text.")
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> int | None:
    """List the recipes that ship with the toolkit, or explain one.

    \b
    spec-toolkit recipes
    spec-toolkit recipes show deepseek_v3_h200
    spec-toolkit recipes --json

    A recipe is one deployable cell: this target, this draft, this hardware, this goal. Where nobody has measured a recipe, the
    column EVIDENCE says who claims that it works.
    """
    if context.invoked_subcommand is not None:
        return None
    rows = [report.row(name, recipe) for name, recipe in shipped_recipes()]
    click.echo(to_json(rows) if as_json else report.listing(rows))
    return 0


@command.command("show")
@click.argument("recipe")
@click.option("--json", "as_json", is_flag=True, help="Print records, not text.")
def show_command(recipe: str, *, as_json: bool) -> int:
    """Explain RECIPE (a name of the catalogue, or a file): its choices, what follows, who says so, and what is open.

    \b
    spec-toolkit recipes show glm52_fp8_h200_balanced
    spec-toolkit recipes show ./mine_h200.yaml --json

    Exit 0 whatever the plan finds; `spec-toolkit check` answers that.
    """
    path = find_recipe(recipe)
    loaded, plan = plan_recipe(path)
    told = report.explain(name_of(path), loaded, plan)
    click.echo(to_json(told) if as_json else report.explanation(told))
    return 0
