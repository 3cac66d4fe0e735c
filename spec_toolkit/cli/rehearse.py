"""`spec-toolkit rehearse`."""

import signal
from types import FrameType

import click

from spec_toolkit.errors import SpecError
from spec_toolkit.launch.planned import plan_recipe
from spec_toolkit.prove.rehearse.ready import make_ready
from spec_toolkit.prove.rehearse.record import Refused
from spec_toolkit.prove.rehearse.run import rehearse
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.report import rehearse as report
from spec_toolkit.report import said

_ENDS = (signal.SIGTERM, signal.SIGHUP)


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
    for number in _ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # somebody wants it survived, as nohup does
            signal.signal(number, _end)
    loaded, plan = plan_recipe(find_recipe(recipe))
    if not plan.may_launch:
        _tell_refusal(said.check(plan), Refused(name=plan.name, refused=tuple(plan.findings)), as_json=as_json)
        return 1
    try:
        ready = make_ready(loaded, plan)
        if ready.refused:
            why = f"{plan.name} cannot be rehearsed. At toy size, on a CPU:\n{said.findings(ready.refused)}"
            _tell_refusal(why, Refused(name=plan.name, refused=ready.refused), as_json=as_json)
            return 3
        found = rehearse(ready, per_bucket=per_bucket, tell=lambda step: click.echo(report.step_line(step), err=True))
    except SpecError as error:
        why = "\n".join(finding.sentence() for finding in error.findings)
        _tell_refusal(why, Refused(name=plan.name, refused=tuple(error.findings)), as_json=as_json)
        return error.exit_code
    click.echo(said.as_json(found) if as_json else report.page(found))
    return 0 if found.passed else 1


def _tell_refusal(text: str, record: Refused, *, as_json: bool) -> None:
    click.echo(text, err=True)
    if as_json:
        click.echo(said.as_json(record))


def _end(number: int, _: FrameType | None) -> None:
    """As Ctrl-C: engines end first, then their folders go. A closing terminal sends more than one signal: the rest are too late."""
    for each in _ENDS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)
