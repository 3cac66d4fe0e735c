"""`spec-toolkit status`."""

import click

from spec_toolkit.launch.deployment import existing, known
from spec_toolkit.launch.ending import look
from spec_toolkit.report import text


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print records, not text.")
def command(name: str | None, *, as_json: bool) -> int:
    """Show the deployments of this machine, or the one called NAME.

    \b
    spec-toolkit status
    spec-toolkit status deepseek_v3_cpu --json

    Exit 0 where everything shown serves, 1 otherwise.
    """
    statuses = [look(folder) for folder in ([existing(name)] if name else known())]
    if as_json:
        click.echo(text.as_json(statuses))
    elif statuses:
        click.echo(text.status_lines(statuses))
    else:
        click.echo("No deployment on this machine. Start one with `spec-toolkit deploy RECIPE`.")
    return 0 if all(status.address for status in statuses) else 1
