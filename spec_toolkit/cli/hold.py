"""`spec-toolkit hold`."""

import click

from spec_toolkit.launch.deployment import existing
from spec_toolkit.report import said
from spec_toolkit.sidecar.hold import pin


@click.command()
@click.argument("name")
@click.argument("rung")
@click.option("--json", "as_json", is_flag=True, help="Print the record that was written.")
def command(name: str, rung: str, *, as_json: bool) -> int:
    """Pin the deployment NAME to RUNG: full, reduced(1), zero_draft or autoregressive, as far as its recipe allows.

    \b
    spec-toolkit hold deepseek_v3_cpu zero_draft
    spec-toolkit hold deepseek_v3_cpu 'reduced(1)'

    The sidecar carries it out within seconds and keeps it against every signal but the loss of the engine;
    `status NAME` shows whether it has. `spec-toolkit release NAME` ends it, and so does the end of the run.

    To and from autoregressive it takes another engine: what runs may finish first, for at most the recipe's drain_seconds.
    """
    held = pin(existing(name), rung)
    click.echo(
        said.as_json(held) if as_json else f"{name}: to be held at {held.rung}. See `spec-toolkit status {name}`."
    )
    return 0
