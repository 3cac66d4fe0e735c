"""`spec-toolkit init`."""

from pathlib import Path

import click

from spec_toolkit.cli.launches import of_command, of_manifest
from spec_toolkit.cli.options import launch_options, one_of
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.asked import Given
from spec_toolkit.launch.begin import begin, write_new
from spec_toolkit.recipe.command import first_launch
from spec_toolkit.report import said


@click.command()
@launch_options
@click.option(
    "--out", type=click.Path(path_type=Path), help="The file to write; default: print it. An existing one is kept."
)
def command(  # noqa: PLR0913 - one argument an option
    *,
    pasted: str | None,
    manifest: str | None,
    gpu: str | None,
    count: int | None,
    nodes: int | None,
    out: Path | None,
) -> int:
    """Write the recipe that a launch command, or the first launch of a manifest, stands for.

    \b
    spec-toolkit init --command 'python3 -m sglang.launch_server --model-path ...' --gpu h200 --count 8 --out mine_h200.yaml
    spec-toolkit init --manifest deployment.yaml --gpu h200
    spec-toolkit check mine_h200.yaml

    What has no key becomes an entry of engine.extra_args, what a recipe may not hold is left out, and both are said. A flag that the
    engine itself would refuse is to be mended first.

    Exit 0 written, 1 refused: by the engine's parser and nothing is written, or as a recipe, 2 it cannot be read or the file is there.
    """
    one_of(pasted, manifest)
    machines, tables = Given(gpu=gpu, count=count, nodes=nodes), load_tables()
    pods = of_manifest(manifest) if manifest is not None else ()
    launches = of_command(pasted) if pasted is not None else tuple(pod.launch for pod in pods)
    begun = begin(first_launch(launches), pods[0] if pods else None, machines, tables)
    click.echo(said.findings(begun.findings), err=True, nl=bool(begun.findings))
    if begun.text is None:
        return 1
    if out is None:
        click.echo(begun.text, nl=False)
    else:
        write_new(out, begun.text)
        click.echo(f"{out}: written. Check it, and pin it: spec-toolkit check {out}; spec-toolkit pin {out}", err=True)
    return 0 if begun.may_launch else 1
