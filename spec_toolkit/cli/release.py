"""`spec-toolkit release`."""

import click

from spec_toolkit.launch.deployment import existing
from spec_toolkit.report import said
from spec_toolkit.sidecar.hold import unpin


@click.command()
@click.argument("name")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the record that was taken away; null where there was none."
)
def command(name: str, *, as_json: bool) -> int:
    """Let the policy move the deployment NAME again: from the rung it is on, one at a time.

    \b
    spec-toolkit release deepseek_v3_cpu

    Releasing what is not held is fine.
    """
    released = unpin(existing(name))
    told = f"{name}: released from {released.rung}." if released else f"{name}: was not held."
    click.echo(said.as_json(released) if as_json else told)
    return 0
