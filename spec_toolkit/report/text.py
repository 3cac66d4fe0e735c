"""Findings, deployments and patches as text. Pure: records in, strings out."""

import json
import shlex
from collections.abc import Sequence

from spec_toolkit.launch.deployment import Status
from spec_toolkit.launch.events import Event, Kind


def event_line(event: Event) -> str:
    """`   3.2 s  weights  DeepseekV3ForCausalLM, ...`"""
    if event.kind is Kind.PHASE:
        what = event.phase if not event.text else f"{event.phase}: {event.text}"
    elif event.kind is Kind.CHECKED:
        what = f"checked: {event.text}"
    else:
        what = event.text
    return f"{event.elapsed_seconds:7.1f} s  {what}"


def curl(address: str) -> str:
    """A line that can be pasted into a shell and answers."""
    body = {"model": "default", "messages": [{"role": "user", "content": "Tell me about the lamp."}], "max_tokens": 48}
    return (
        f"curl -s {address}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    )


def serving(status: Status) -> str:
    """What a person needs once a deployment serves."""
    lines = [f"{status.name} serves at {status.address}, {_how(status)}", "", f"  {curl(status.address)}", ""]
    if status.write_into_recipe:
        lines.append(f"{status.recipe} leaves a revision open; it was resolved for this deployment. To pin it, write:")
        lines += [f"  {line}" for line in status.write_into_recipe]
        lines.append("")
    lines.append(f"spec-toolkit status {status.name} | logs -f {status.name} | stop {status.name}")
    return "\n".join(lines)


def already(status: Status, *, same_recipe: bool) -> str:
    where = (
        f"serves at {status.address}, its engine handed over at {_how(status)}"
        if status.serves
        else f"is being started ({status.phase})"
    )
    if same_recipe:
        return f"{status.name} is already running and {where}. Restart it with --replace."
    return f"{status.name} is already running from another text of this recipe, and {where}. Take the new one with --replace."


def status_lines(statuses: Sequence[Status]) -> str:
    """One deployment a paragraph: what it is, where it answers, why it is not what was asked for."""
    return "\n".join(_status_lines(status) for status in statuses)


def _status_lines(status: Status) -> str:
    lines = [f"{status.name}: {status.phase}" + (f" at {status.address}" if status.address else "")]
    if status.serves:
        lines.append(f"  engine    {status.engine_address}, handed over at {_how(status)}")
    elif status.address:
        lines.append(f"  mode      {status.mode}: no engine takes requests yet; they wait")
    if status.reason:
        lines.append(f"  reason    {status.reason}")
    if status.returning:
        lines.append(f"  returning a speculating engine is being started to take over ({status.returning})")
    if status.without:
        lines.append(f"  without   {status.without}")
    if status.target_commit:
        lines.append(f"  revision  {status.target_commit}")
    lines.append(f"  recipe    {status.recipe}")
    lines.append(f"  started   {status.started_at} (engines so far: {status.attempts})")
    return "\n".join(lines)


def _how(status: Status) -> str:
    """The mode in words, with every label its numbers must carry."""
    labels = f" [{', '.join(status.labels)}]" if status.labels else ""
    if status.emitted_length is None:
        return f"{status.mode}: without speculation{labels}"
    return f"{status.mode}: speculating, emitted length {status.emitted_length:.2f} in the smoke test{labels}"
