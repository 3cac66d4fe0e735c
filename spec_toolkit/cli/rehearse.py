"""`spec-toolkit rehearse`."""

import signal

import click

from spec_toolkit.launch.planned import plan_recipe
from spec_toolkit.prove.rehearse.ready import make_ready
from spec_toolkit.prove.rehearse.run import rehearse
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.report import rehearse as report
from spec_toolkit.report import said


@click.command()
@click.argument("recipe")
@click.option(
    "--prompts",
    "per_bucket",
    type=click.IntRange(1, 24),
    default=4,
    show_default=True,
    help="Held-out prompts of each of the five kinds of prompt.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one record with every setting and launch argument, not text."
)
def command(recipe: str, *, per_bucket: int, as_json: bool) -> int:
    """Run RECIPE (a file, or a name of the catalogue) at toy size: the real engine, its speculative settings, no GPU.

    \b
    spec-toolkit rehearse deepseek_v3_h200
    spec-toolkit rehearse recipes/glm52_fp8_h200.yaml --json

    A tiny trained model of the target's architecture serves without drafts and with them, on one rank and, where the recipe has
    several, on two. Prints whether speculation changed an answer, what its drafts earned, and what such a run cannot show.

    Takes about 1 to 5 minutes on two cores, and needs the environment that `make setup` makes.

    Exit 0 lossless, 1 an answer differs, a draft faulted or the recipe is refused, 2 the file is no recipe, 3 it could not be run.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: engines first, then their folders
    loaded, plan = plan_recipe(find_recipe(recipe))
    if not plan.may_launch:
        click.echo(said.check(plan), err=True)
        return 1
    ready = make_ready(loaded, plan)
    if ready.refused:
        click.echo(said.findings(ready.refused), err=True)
        return 3
    found = rehearse(ready, per_bucket=per_bucket, tell=lambda step: click.echo(report.step_line(step), err=True))
    click.echo(said.as_json(found) if as_json else report.page(found))
    return 0 if found.passed else 1
