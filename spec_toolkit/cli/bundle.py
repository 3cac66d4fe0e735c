"""`spec-toolkit bundle`."""

from pathlib import Path

import click

from spec_toolkit.launch.bundle import write_bundle
from spec_toolkit.launch.deployment import existing


@click.command()
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The archive to write; must not exist.")
def command(name: str, *, out: Path | None) -> int:
    """Pack logs, plan, patches, reports, versions and last decisions of the deployment NAME; secrets are struck.

    \b
    spec-toolkit bundle deepseek_v3_cpu --out report.tar.gz

    The deployment may be running, or have failed. Its decisions are in events.jsonl. Prompts are in it only where the recipe
    had the engine log requests (engine.extra_args).
    """
    target = out or Path(f"{name}-bundle.tar.gz")
    if target.exists():
        raise click.ClickException(f"{target}: exists; a bundle never overwrites. Name another file with --out.")
    names = write_bundle(existing(name), target)
    click.echo(f"{target}: {len(names)} files")
    return 0
