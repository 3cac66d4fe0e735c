"""`spec-toolkit stop`."""

import click

from spec_toolkit.launch.deployment import existing
from spec_toolkit.launch.ending import stop
from spec_toolkit.launch.events import Kind
from spec_toolkit.report import said


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the last event as a record.")
def command(name: str, *, as_json: bool) -> int:
    """Let the deployment NAME finish what it runs (`policy.drain_seconds`), and end it.

    \b
    spec-toolkit stop deepseek_v3_cpu

    Stopping what is already stopped is fine. Exit 1 where it had failed before it was stopped.
    """
    last = stop(existing(name))
    click.echo(said.as_json(last) if as_json else f"{name}: {last.text}")
    return 0 if last.kind is Kind.STOPPED else 1
