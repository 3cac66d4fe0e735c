"""`spec-toolkit drills`."""

import asyncio
import os

import click

from spec_toolkit.errors import FactsError, Verdict
from spec_toolkit.facts.checkpoint import model_folder
from spec_toolkit.launch.deployment import Folder, Status, folder_of
from spec_toolkit.launch.ending import follow, look, stop
from spec_toolkit.launch.events import ENDS, Kind
from spec_toolkit.launch.prepare import Prepared, prepare
from spec_toolkit.launch.start import start
from spec_toolkit.prove.buckets import read_held_out
from spec_toolkit.prove.drills.outcome import Outcome
from spec_toolkit.prove.drills.run import run_drills
from spec_toolkit.prove.drills.scenes import DRILLS, Asks, make_asks
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.report import said
from spec_toolkit.report.drills import moment_line, outcome_lines
from spec_toolkit.report.progress import progress, show_until

RECIPE = "rehearsal/deepseek_v3_cpu_drills"
NAME = "drills"
_ASKS = 4  # of chat and of /generate each


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(DRILLS)))
@click.option("--json", "as_json", is_flag=True, help="One record for each drill, its timeline included.")
def command(names: tuple[str, ...], *, as_json: bool) -> int:
    """Break a rehearsal deployment while clients stream from it, and say what became of them. Needs no GPU.

    \b
    spec-toolkit drills                        all of them: about ten minutes on two cores
    spec-toolkit drills scheduler-killed

    \b
    overload          more requests than run at once: fewer steps, none, and back
    drafter-raises    an exception in the draft: the round goes on without it
    scheduler-killed  kill -9 under 16 streams: they go on in an engine that does not draft
    engine-hung       a scheduler that stands still
    sidecar-killed    nobody watches for a moment

    Exit 0 where every one held: no request failed, no token lost, doubled or changed, and drafting came back.
    """
    ready = prepare(find_recipe(RECIPE))
    refused = [finding for finding in ready.findings if finding.verdict is Verdict.REFUSE]
    if refused:
        click.echo(said.findings(refused), err=True)
        return 3
    folder = folder_of(NAME)
    if folder.has_owner():
        stop(folder)
    folder.policy_state.unlink(missing_ok=True)  # crashes of earlier drills must not make this run's last one sticky
    leash = start(folder, ready, replace=True)  # closes with this process, which then ends the engine
    with progress(as_json=as_json) as shown:
        event = show_until(follow(folder), ENDS | {Kind.READY}, shown)
    if event.kind is not Kind.READY:
        return 3
    try:
        held = asyncio.run(_run(names or tuple(DRILLS), folder, look(folder), _asks(ready), as_json=as_json))
    finally:
        stop(folder)
    if leash is not None:
        os.close(leash)
    return 0 if held else 1


def _asks(ready: Prepared) -> Asks:
    folder = model_folder(ready.plan.recipe.target.model)
    if folder is None:
        raise FactsError.of("facts.held-out", ready.plan.recipe.target.model, "lies nowhere on this machine")
    held_out = read_held_out(folder)
    prompts = [row.prompt for bucket in ("chat", "code", "math", "tool") for row in held_out[bucket][:1]]
    return make_asks(
        [f"Tell me about the {word} river." for word in ("green", "quiet", "late", "warm")], prompts[:_ASKS]
    )


async def _run(names: tuple[str, ...], folder: Folder, status: Status, asks: Asks, *, as_json: bool) -> bool:
    outcomes: list[Outcome] = []
    drills = run_drills(
        names, folder, status.address, asks, lambda moment: click.echo(moment_line(moment), err=as_json)
    )
    async for outcome in drills:
        outcomes.append(outcome)
        click.echo(said.as_json(outcome) if as_json else outcome_lines(outcome, status.labels))
    return all(outcome.passed for outcome in outcomes)
