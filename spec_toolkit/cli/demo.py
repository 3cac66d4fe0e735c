"""`spec-toolkit demo`."""

import asyncio
import os
import time

import click

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.errors import Verdict
from spec_toolkit.facts.checkpoint import model_folder
from spec_toolkit.launch.deployment import Status, folder_of
from spec_toolkit.launch.ending import follow, look, stop
from spec_toolkit.launch.events import ENDS, Kind
from spec_toolkit.launch.prepare import prepare
from spec_toolkit.launch.start import start
from spec_toolkit.prove.buckets import HeldOut, measure, read_held_out
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.report import said
from spec_toolkit.report.buckets import table
from spec_toolkit.report.progress import progress, show_until

RECIPE = "rehearsal/deepseek_v3_cpu"
NAME = "demo"
_PER_BUCKET = 8
_TOKENS = 64


@click.command()
def command() -> int:
    """Deploy a rehearsal recipe on this machine, stream from it, and stop it. Needs no GPU.

    The engine is the real SGLang and the model is a tiny DeepSeek-V3 with a trained MTP module, so the acceptance you see is
    real and says nothing about the acceptance or the speed of any model you serve.
    """
    began = time.monotonic()
    ready = prepare(find_recipe(RECIPE))
    folder = folder_of(NAME)
    refused = [finding for finding in ready.findings if finding.verdict is Verdict.REFUSE]
    if refused:
        click.echo(said.findings(refused), err=True)
        return 3
    click.echo(f"$ spec-toolkit deploy {RECIPE}")
    leash = start(folder, ready, replace=True)  # closes with this process, which then ends the engine
    with progress(as_json=False) as shown:
        event = show_until(follow(folder), ENDS | {Kind.READY}, shown)
    if event.kind is not Kind.READY:
        return 3
    try:
        prompts = read_held_out(model_folder(ready.plan.recipe.target.model) or folder.path)
        asyncio.run(_show(look(folder), prompts))
    finally:
        last = stop(folder)
    if leash is not None:
        os.close(leash)
    click.echo(f"{last.kind.value}: {last.text}; the demo took {time.monotonic() - began:.0f} s")
    return 0 if last.kind is Kind.STOPPED else 3


async def _show(status: Status, prompts: dict[str, list[HeldOut]]) -> None:
    async with EngineClient(status.address) as engine:
        for bucket in ("code", "tool"):
            await _stream(engine, prompts[bucket][0].prompt)
        click.echo(f"Emitted length on held-out prompts, greedy, up to {_TOKENS} tokens, {_PER_BUCKET} at a time:")
        rows = await measure(engine, prompts, per_bucket=_PER_BUCKET, max_new_tokens=_TOKENS, concurrency=_PER_BUCKET)
        click.echo(table(rows, status.labels))


async def _stream(engine: EngineClient, prompt: str) -> None:
    click.echo(click.style(prompt, dim=True), nl=False)
    request = {"text": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": _TOKENS}}
    shown = ""
    async for event in engine.stream(request):
        click.echo(event["text"][len(shown) :], nl=False)
        shown = event["text"]
    click.echo("\n")
