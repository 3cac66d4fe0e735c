"""`spec-toolkit rehearse`."""

import signal
from collections.abc import Sequence

import click

from spec_toolkit.errors import Finding, SpecError
from spec_toolkit.launch.planned import plan_recipe
from spec_toolkit.planning.plan import Plan
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

    Exit 0 lossless, 1 an answer differs, a draft faulted or `check` refuses the recipe, 2 the file is no recipe, 3 it cannot be
    rehearsed (DeepSeek V4) or could not be run, 130 interrupted or ended.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: engines end first, then their folders go
        if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup
            signal.signal(number, signal.default_int_handler)
    loaded, plan = plan_recipe(find_recipe(recipe))
    if not plan.may_launch:
        click.echo(said.check(plan), err=True)
        return _refused(plan, plan.findings, 1, as_json=as_json)
    try:
        ready = make_ready(loaded, plan)
    except SpecError as error:
        click.echo("\n".join(finding.sentence() for finding in error.findings), err=True)
        return _refused(plan, error.findings, error.exit_code, as_json=as_json)
    if ready.refused:
        click.echo(f"{plan.name} cannot be rehearsed. At toy size, on a CPU:\n{said.findings(ready.refused)}", err=True)
        return _refused(plan, ready.refused, 3, as_json=as_json)
    found = rehearse(ready, per_bucket=per_bucket, tell=lambda step: click.echo(report.step_line(step), err=True))
    click.echo(said.as_json(found) if as_json else report.page(found))
    return 0 if found.passed else 1


def _refused(plan: Plan, findings: Sequence[Finding], code: int, *, as_json: bool) -> int:
    if as_json:
        click.echo(said.as_json({"name": plan.name, "passed": None, "refused": list(findings)}))
    return code
