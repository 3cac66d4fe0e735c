"""`spec-toolkit logs`."""

import click

from spec_toolkit.launch.deployment import existing
from spec_toolkit.launch.logs import follow_lines, last_lines
from spec_toolkit.report import text


@click.command()
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come, until the deployment ends or Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="Lines of the engine's log to begin with.",
)
@click.option("--events", is_flag=True, help="What happened to the deployment, not the engine's log.")
def command(name: str, *, follow: bool, lines: int, events: bool) -> int:
    """Show the engine's log of the deployment NAME, secrets struck.

    \b
    spec-toolkit logs deepseek_v3_cpu -f
    spec-toolkit logs deepseek_v3_cpu --events
    """
    folder = existing(name)
    if events:
        click.echo("\n".join(text.event_line(event) for event in folder.events()))
        return 0
    shown, position = last_lines(folder.engine_log, lines)
    click.echo(shown, nl=False)
    if follow:
        for line in follow_lines(folder, position):
            click.echo(line, nl=False)
        for event in folder.events()[-1:]:
            click.echo(text.event_line(event), err=True)
    return 0
