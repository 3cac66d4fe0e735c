"""`spec-toolkit deploy`."""

import sys

import click

from spec_toolkit.errors import Finding
from spec_toolkit.launch.deployment import Folder, Status, folder_of
from spec_toolkit.launch.door import Door
from spec_toolkit.launch.ending import follow, look, stop
from spec_toolkit.launch.events import ENDS, Event, Kind
from spec_toolkit.launch.prepare import Prepared, prepare
from spec_toolkit.launch.spec import as_shell
from spec_toolkit.launch.start import dry_run, release, start
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.report import said, text
from spec_toolkit.report.progress import progress, show_until


@click.command()
@click.argument("recipe")
@click.option("--name", help="Name of the deployment; default: the recipe's.")
@click.option("--detach", is_flag=True, help="Return once it serves, and leave it running.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address clients come in at.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port clients come in at; default: a free one.")
@click.option("--replace", is_flag=True, help="Stop what runs under this name first.")
@click.option("--dry-run", "dry", is_flag=True, help="Print the exact command and environment; touch nothing.")
@click.option("--json", "as_json", is_flag=True, help="Events as JSON lines; the last line is the deployment's status.")
def command(  # noqa: PLR0913 - one argument an option
    recipe: str,
    *,
    name: str | None,
    detach: bool,
    host: str,
    port: int | None,
    replace: bool,
    dry: bool,
    as_json: bool,
) -> int:
    """Turn RECIPE (a file, or a name of the catalogue) into a running, checked, speculating engine on this machine.

    \b
    spec-toolkit deploy rehearsal/deepseek_v3_cpu          no GPU needed
    spec-toolkit deploy recipes/deepseek_v3_h200.yaml --dry-run
    spec-toolkit deploy deepseek_v3_h200 --detach
    spec-toolkit deploy deepseek_v3_h200 --replace

    In the foreground Ctrl-C lets running requests finish and ends it; a second Ctrl-C does not wait. A start that fails twice
    with speculation goes on without, and says so; an engine that ends later is started again without, and clients wait for it.
    """
    door = Door(host=host, port=port)
    ready = prepare(find_recipe(recipe))
    folder = folder_of(ready.plan.name if name is None else name)
    if as_json and (dry or ready.machine or not ready.plan.may_launch):
        would = dry_run(folder, ready) if ready.plan.may_launch else None
        click.echo(said.as_json({"findings": (*ready.findings, *door.findings()), "launch": would}))
    else:
        _say_findings((*ready.findings, *door.findings()), as_json=as_json)
    if not ready.plan.may_launch:
        return 1
    if dry or ready.machine:
        if dry and not as_json:  # unasked, a screenful would hide why it is refused
            click.echo(as_shell(dry_run(folder, ready)))
        return 3 if ready.machine else 0
    leash = start(folder, ready, replace=replace, door=door)
    if leash is None:
        return _already(look(folder), ready, as_json=as_json)
    return _run(folder, leash, detach=detach, as_json=as_json)


def _say_findings(findings: tuple[Finding, ...], *, as_json: bool) -> None:
    if as_json and findings:
        click.echo(said.as_json({"findings": findings}))
    elif findings:
        click.echo(said.findings(findings), err=True)


def _already(status: Status, ready: Prepared, *, as_json: bool) -> int:
    """0 only where what was asked for serves: `deploy --detach X && use X` must be able to rely on it."""
    same = status.recipe_sha256 == ready.loaded.sha256
    click.echo(said.as_json(status) if as_json else text.already(status, same_recipe=same))
    return 0 if same and status.serves else 1


def _run(folder: Folder, leash: int, *, detach: bool, as_json: bool) -> int:
    try:
        event = _watch(folder, leash, detach=detach, as_json=as_json)
    except KeyboardInterrupt:
        # A second one leaves at once; the leash then closes with this process, which makes the supervisor hurry.
        click.echo("stopping: running requests may finish; Ctrl-C again does not wait for them", err=True)
        event = stop(folder)
        click.echo(said.as_json(event) if as_json else text.event_line(event), err=not as_json)
    if event.kind is Kind.READY:
        return 0
    if as_json:
        click.echo(said.as_json(look(folder)))
    if event.kind is not Kind.STOPPED:
        return 3
    return 0 if any(each.kind is Kind.READY for each in folder.events()) and not detach else 1


def _watch(folder: Folder, leash: int, *, detach: bool, as_json: bool) -> Event:
    """Show what happens until it serves, say where, and go on until it ends; with `detach`, let go and return `ready`."""
    events = follow(folder)
    with progress(as_json=as_json) as shown:
        event = show_until(events, ENDS | {Kind.READY}, shown)
    if event.kind is not Kind.READY:
        return event
    status = look(folder)
    click.echo(said.as_json(status) if as_json else text.serving(status))
    sys.stdout.flush()
    if detach and release(leash):
        return event
    with progress(as_json=as_json, spinner=False) as shown:
        return show_until(events, ENDS, shown)
