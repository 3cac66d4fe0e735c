"""`spec-toolkit pin`."""

import click

from spec_toolkit.launch.pinning import find_pins, write_pins
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.report.pinning import pinned


@click.command()
@click.argument("recipe")
@click.option("--dry-run", "dry", is_flag=True, help="Print the lines; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print records, not text.")
def command(recipe: str, *, dry: bool, as_json: bool) -> int:
    """Write into RECIPE what its names stand for now: commits, the tokenizer's hash, the image's digest.

    \b
    spec-toolkit pin ./mine_h200.yaml --dry-run
    spec-toolkit pin ./mine_h200.yaml
    HF_ENDPOINT=https://hub.example spec-toolkit pin ./mine_h200.yaml

    Comments and order stay. What the recipe pins already is kept: delete a line to have it found anew. Where the recipe names no
    image, the engine's own of that version is taken. Hub and registry are asked, and only what they say is written.

    Exit 0 everything is pinned, 2 the file is no recipe, 3 something stayed open.
    """
    path = find_recipe(recipe)
    found = find_pins(path) if dry else write_pins(path)
    click.echo(pinned(found, as_json=as_json))
    return 3 if found.open else 0
