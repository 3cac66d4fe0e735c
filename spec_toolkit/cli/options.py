"""Options of the verbs that start from what people have: a launch command, or a manifest."""

from collections.abc import Callable

import click

Verb = Callable[..., int]


def launch_options(verb: Verb) -> Verb:
    for option in (
        click.option("--nodes", type=click.IntRange(1, 1024), help="Nodes; default: as many as the launch says."),
        click.option(
            "--count", type=click.IntRange(1, 1024), help="GPUs of one node; default: those the launch sees or takes."
        ),
        click.option("--gpu", help="The GPU it is for, as recipes name it: h200."),
        click.option("--manifest", help="A file of Kubernetes objects; '-': standard input."),
        click.option(
            "--command", "pasted", help="A launch command, as it is pasted into a shell; '-': standard input."
        ),
    ):
        verb = option(verb)
    return verb


def one_of(*sources: str | None) -> None:
    """Exactly one of a recipe, a command and a manifest."""
    if sum(source is not None for source in sources) != 1:
        names = "RECIPE, --command and --manifest" if len(sources) == 3 else "--command and --manifest"
        raise click.UsageError(f"Name exactly one of {names}.")
