"""`spec-toolkit resolve`."""

import sys

import click

from spec_toolkit.errors import Verdict
from spec_toolkit.launch.resolving.kept import Wanted, read_kept
from spec_toolkit.launch.resolving.records import Resolution
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.report import resolve as report


@click.command()
@click.argument("recipe", required=False)
@click.option("--command", "launch", help="A launch command, as it is pasted into a shell; '-': standard input.")
@click.option("--gpu", help="The GPU a command is for, as recipes name it: h200.")
@click.option(
    "--count", type=click.IntRange(1, 1024), help="GPUs of one node; default: those the command sees or takes."
)
@click.option("--nodes", type=click.IntRange(1, 1024), help="Nodes; default: as many as the command says.")
@click.option("--json", "as_json", is_flag=True, help="Print the record, not text.")
def command(  # noqa: PLR0913 - one an option
    recipe: str | None, launch: str | None, gpu: str | None, *, count: int | None, nodes: int | None, as_json: bool
) -> int:
    """Say what the engine itself would make of RECIPE (a file, or a name of the catalogue), and where it takes something else.

    \b
    spec-toolkit resolve deepseek_v3_h200
    spec-toolkit resolve recipes/glm52_fp8_h200.yaml --json
    spec-toolkit resolve --command 'python3 -m sglang.launch_server ...' --gpu h200 --count 8

    Asks the installed engine's own code, as if these GPUs were there; no GPU is needed or touched, and nothing is fetched. The first
    answer takes as long as importing the engine, about ten seconds; it is kept, and the next takes a fraction of one.
    Exit 0 it resolves, 1 it is refused, 2 there is no recipe or launch to read, 3 there is no engine to ask, or no answer.
    """
    if (recipe is None) == (launch is None):
        raise click.UsageError("Name a recipe, or give --command and --gpu.")
    if launch is not None and gpu is None:
        raise click.UsageError("--command needs --gpu: the engine resolves differently for different GPUs.")
    path = find_recipe(recipe) if recipe is not None else None
    text = sys.stdin.read() if launch == "-" else launch
    wanted = Wanted(recipe=path, command=text, gpu=gpu.lower() if gpu else None, count=count, nodes=nodes)
    found = read_kept(wanted) or _ask(wanted)
    click.echo(report.as_json(found) if as_json else report.resolution(found))
    if not found.answered:
        return 3
    return 1 if any(finding.verdict is Verdict.REFUSE for finding in found.findings) else 0


def _ask(wanted: Wanted) -> Resolution:
    from spec_toolkit.cli.asking import ask  # noqa: PLC0415 - what makes a plan takes longer to import than a kept answer to print

    return ask(wanted)
