"""`spec-toolkit status`."""

import click

from spec_toolkit.launch.deployment import Folder, existing, known
from spec_toolkit.report import said, text
from spec_toolkit.report.policy import policy_lines
from spec_toolkit.report.standing import as_record, read_standing
from spec_toolkit.report.watch import watch


@click.command()
@click.argument("name", required=False)
@click.option("--watch", "-w", "watches", is_flag=True, help="Go on until the deployment ends or Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print records, not text.")
def command(name: str | None, *, watches: bool, as_json: bool) -> int:
    """Show the deployments of this machine, or the one called NAME: its mode, why, and what of it is not as asked for.

    \b
    spec-toolkit status
    spec-toolkit status deepseek_v3_cpu --json
    spec-toolkit status deepseek_v3_cpu --watch

    With --watch a terminal is drawn anew each second; elsewhere there is a block, or with --json a line, at each change.

    Exit 0 where everything shown serves, 1 otherwise; Ctrl-C ends --watch with 0.
    """
    folders = [existing(name)] if name else known()
    if watches:
        return _watch(folders, as_json=as_json)
    standings = [read_standing(folder) for folder in folders]
    if as_json:
        click.echo(said.as_json([as_record(standing) for standing in standings]))
    for standing in () if as_json else standings:
        click.echo("\n".join([text.status_lines([standing.status]), *policy_lines(standing)]))
    if not standings and not as_json:
        click.echo("No deployment on this machine. Start one with `spec-toolkit deploy RECIPE`.")
    return 0 if all(standing.status.serves for standing in standings) else 1


def _watch(folders: list[Folder], *, as_json: bool) -> int:
    if len(folders) != 1:
        names = ", ".join(folder.name for folder in folders) or "none"
        raise click.UsageError(f"--watch follows one deployment; known: {names}. Name one of them.")
    try:
        watch(folders[0], records=as_json)
    except (KeyboardInterrupt, BrokenPipeError):  # how whoever watches ends it
        return 0
    return 1
