"""`spec-toolkit patches`."""

from pathlib import Path

import click

from spec_toolkit.engine.patches import installed_engine, mismatches, patches_folder, read_patches, verify_all
from spec_toolkit.facts.known import load_tables
from spec_toolkit.report import patches as report
from spec_toolkit.shipped import shipped


def _folder() -> Path:
    return patches_folder(shipped("patches"), load_tables().engine.version)


@click.group()
def command() -> None:
    """The changes made to the engine, through its own plugin hooks.

    \b
    spec-toolkit patches list
    spec-toolkit patches verify
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print records, not text.")
def list_command(*, as_json: bool) -> int:
    """Every patch: what it changes, why, and what is unproven about it."""
    patches = read_patches(_folder())
    click.echo(report.listing(patches, as_json=as_json))
    return 0


@command.command("verify")
@click.option("--json", "as_json", is_flag=True, help="Print records, not text.")
def verify_command(*, as_json: bool) -> int:
    """Does the installed engine's source still read as it did when each patch was written? Exit 1 where it does not."""
    checks = verify_all(_folder())
    click.echo(report.verification(checks, engine=installed_engine(), as_json=as_json))
    return 1 if mismatches(checks) else 0
