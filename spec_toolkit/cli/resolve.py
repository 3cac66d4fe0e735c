"""`spec-toolkit resolve`."""

import click

from spec_toolkit.errors import Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.prepare import plan_and_patches
from spec_toolkit.launch.resolution import Resolution, about_plan, put
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.report import resolve as report
from spec_toolkit.report import text


@click.command()
@click.argument("recipe")
@click.option("--json", "as_json", is_flag=True, help="Print the record, not text.")
def command(recipe: str, *, as_json: bool) -> int:
    """Say what the engine itself would make of RECIPE (a file, or a name of the catalogue), and where it takes something else.

    \b
    spec-toolkit resolve deepseek_v3_h200
    spec-toolkit resolve recipes/glm52_fp8_h200.yaml --json

    Asks the installed engine's own code, as if the recipe's GPUs were there; no GPU is needed or touched, and nothing is fetched. The
    first answer takes as long as importing the engine, about ten seconds; it is kept, and the next takes a fraction of one.
    Exit 0 it resolves, 1 it refuses, 2 the file is no recipe, 3 there is no engine to ask, or no answer.
    """
    _, plan, patches = plan_and_patches(find_recipe(recipe))
    return _show(put(about_plan(plan, load_tables(), patches), waiting=_waiting), as_json=as_json)


def _show(found: Resolution, *, as_json: bool) -> int:
    click.echo(text.as_json(found) if as_json else report.resolution(found))
    if not found.answered:
        return 3
    return 1 if any(finding.verdict is Verdict.REFUSE for finding in found.findings) else 0


def _waiting() -> None:
    click.echo("asking sglang, which takes about ten seconds to import; the answer will be kept", err=True)
