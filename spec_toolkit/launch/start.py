"""Starting, following and ending a deployment from a command. Touches the world."""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from spec_toolkit.engine.flags import ADMIN_KEY
from spec_toolkit.engine.patches import hand_over
from spec_toolkit.errors import EngineError, FactsError
from spec_toolkit.facts.checkpoint import model_folder
from spec_toolkit.facts.hub import resolve_revision
from spec_toolkit.launch import control
from spec_toolkit.launch.deployment import Folder, Status, write_json, write_private
from spec_toolkit.launch.engine_process import end_session
from spec_toolkit.launch.events import ENDS, Event, Kind
from spec_toolkit.launch.prepare import Prepared
from spec_toolkit.launch.record import Launch
from spec_toolkit.launch.spec import LaunchSpec, Place, as_shell, to_launch
from spec_toolkit.planning.plan import Plan
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.shipped import rehearsal
from spec_toolkit.terms import Method, Mode

_FOLLOW_SECONDS = 0.1  # between two looks at the events
_OWNED_SECONDS = 60.0  # for the supervisor's imports, on a busy machine
_STOP_MARGIN_SECONDS = 30.0  # beyond the drain time, until a stop counts as not taken
_OPEN = "<resolved at deploy>"


@dataclass(frozen=True, slots=True)
class Models:
    """Where target and draft lie, and at which commit they are launched."""

    target: str  # folder, or hub repository
    target_commit: str | None
    draft: str | None = None  # None: the head ships in the target's checkpoint
    draft_commit: str | None = None
    write_into_recipe: tuple[str, ...] = ()  # the lines that would pin what the recipe leaves open


def locate(recipe: Recipe, *, ask_hub: bool = True) -> Models:
    """A hub revision that the recipe leaves open is resolved once, here, and used for every attempt.

    FactsError where it cannot be: a deployment whose commit nobody knows is not started.
    """
    target, target_commit, target_line = _locate(recipe.target.model, recipe.target.revision, "target", ask_hub=ask_hub)
    if recipe.draft.model == "same" or recipe.draft.method is Method.NONE:
        return Models(target, target_commit, write_into_recipe=target_line)
    draft, draft_commit, draft_line = _locate(recipe.draft.model, recipe.draft.revision, "draft", ask_hub=ask_hub)
    return Models(target, target_commit, draft, draft_commit, target_line + draft_line)


def _locate(model: str, revision: str | None, part: str, *, ask_hub: bool) -> tuple[str, str | None, tuple[str, ...]]:
    folder = model_folder(model)
    if folder:
        return str(folder.resolve()), None, ()
    if revision:
        return model, revision, ()
    if not ask_hub:
        return model, _OPEN, ()
    commit = resolve_revision(model, None).commit
    # Quoted: a commit of digits alone, or of digits around one 'e', would be a number to YAML.
    return model, commit, (f'{part}: {{revision: "{commit}"}}',)


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now; a start that loses one to somebody else fails, and the next attempt has another."""
    with_ports = [socket.socket() for _ in range(count)]
    try:
        for held in with_ports:
            held.bind(("127.0.0.1", 0))
        return [held.getsockname()[1] for held in with_ports]
    finally:
        for held in with_ports:
            held.close()


def attempts(plan: Plan, models: Models, folder: Folder) -> tuple[LaunchSpec, ...]:
    """With speculation, once more, then without: as far as the recipe allows."""
    speculate = plan.recipe.draft.method is not Method.NONE and set(plan.recipe.policy.allow) != {Mode.AUTOREGRESSIVE}
    kinds = [True, True] if speculate else [False]
    if speculate and Mode.AUTOREGRESSIVE in plan.recipe.policy.allow:
        kinds.append(False)
    return tuple(
        to_launch(plan, _place(models, folder, port), speculate=kind)
        for kind, port in zip(kinds, free_ports(len(kinds)), strict=True)
    )


def _place(models: Models, folder: Folder, port: int) -> Place:
    return Place(
        python=sys.executable,
        rehearsal=str(rehearsal()),
        target=models.target,
        target_commit=models.target_commit,
        draft=models.draft,
        draft_commit=models.draft_commit,
        engine_config=str(folder.engine_config),
        patch_list=str(folder.patch_list),
        port=port,
        cores=os.cpu_count() or 1,
    )


def dry_run(folder: Folder, ready: Prepared) -> str:
    """What `deploy` would start, as a person would type it. Asks nobody and writes nothing."""
    models = locate(ready.plan.recipe, ask_hub=False)
    first, *_ = attempts(ready.plan, models, folder)
    return as_shell(first)


def begin(folder: Folder, ready: Prepared, models: Models) -> int:
    """Write the deployment's folder and start its supervisor; returns the leash.

    The supervisor ends the deployment when the leash closes, however this process ends; `release` it to let go.
    """
    folder.clear()
    plan = ready.plan
    specs = attempts(plan, models, folder)
    key = new_key()
    write_private(folder.admin_key, f"{key}\n".encode())
    write_private(folder.engine_config, f"{ADMIN_KEY}: {key}\n".encode())
    write_private(folder.recipe, ready.loaded.text.encode())
    hand_over(ready.patches, folder.path)
    write_json(folder.path / "plan.json", plan)
    launch = Launch(
        status=_first_status(folder, ready, models, specs[0]),
        attempts=specs,
        tokenizer=plan.recipe.target.tokenizer,
        ready_seconds=plan.recipe.policy.ready_seconds,
        drain_seconds=plan.recipe.policy.drain_seconds,
    )
    folder.write_status(launch.status)
    write_json(folder.launch, launch)
    return _spawn(folder)


def new_key() -> str:
    """256 bits; hexadecimal, because the engine parses its config file as arguments and takes a leading '-' for a flag."""
    return secrets.token_hex(32)


def _first_status(folder: Folder, ready: Prepared, models: Models, first: LaunchSpec) -> Status:
    recipe = ready.plan.recipe
    return Status(
        name=folder.name,
        recipe=str(ready.loaded.path),
        recipe_sha256=ready.loaded.sha256,
        mode=(Mode.FULL if first.speculates else Mode.AUTOREGRESSIVE).value,
        labels=ready.plan.labels,
        target_commit=models.target_commit or recipe.target.revision or "",
        draft_commit=models.draft_commit or "",
        write_into_recipe=models.write_into_recipe,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251 - an edge: people read it
    )


def _spawn(folder: Folder) -> int:
    """Returns when the supervisor owns the deployment: from then on others can see that it runs."""
    theirs, ours = os.pipe()
    log = os.open(folder.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    command = (sys.executable, "-P", "-m", "spec_toolkit.launch.supervisor", str(folder.path), str(theirs))
    try:
        supervisor = subprocess.Popen(  # noqa: S603 - our own module
            command,
            pass_fds=(theirs,),
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a terminal's Ctrl-C is for the command, which then asks
        )
    finally:
        os.close(theirs)
        os.close(log)
    deadline = time.monotonic() + _OWNED_SECONDS
    while not folder.has_owner() and not folder.events():
        if supervisor.poll() is not None or time.monotonic() > deadline:
            os.close(ours)
            raise EngineError.of(
                "deploy.no-supervisor",
                folder.name,
                f"its supervisor did not come up{_last_line(folder)}",
                remedy=f"See {folder.supervisor_log}.",
            )
        time.sleep(_FOLLOW_SECONDS / 10)
    return ours


def _last_line(folder: Folder) -> str:
    words = folder.supervisor_log.read_text(errors="replace").splitlines() if folder.supervisor_log.exists() else []
    return f'; its last words: "{words[-1][:200]}"' if words else ""


def release(leash: int) -> None:
    """Let the supervisor go on without us."""
    os.write(leash, b".")
    os.close(leash)


def follow(folder: Folder) -> Iterator[Event]:
    """Every event from the first, as they come, until the one that ends the deployment.

    A supervisor that was killed writes no last event: then what its keeper left is swept, and the last event says so.
    """
    seen = 0
    while True:
        owned = folder.has_owner()  # before reading: what it wrote before it ended is then read
        events = folder.events()
        yield from events[seen:]
        seen = len(events)
        if events and events[-1].kind in ENDS:
            return
        if not owned:
            yield bury(folder)
            return
        time.sleep(_FOLLOW_SECONDS)


def bury(folder: Folder) -> Event:
    """Record the end of a deployment whose supervisor is gone, and end what it may have left."""
    status = folder.status()
    left = end_session(status.keeper_pid) if status and status.keeper_pid else []
    found = f"; {len(left)} engine processes were left and are ended" if left else "; it left no process"
    event = Event(
        at=datetime.now(UTC).isoformat(timespec="milliseconds"),  # noqa: TID251 - an edge: events carry wall-clock time
        elapsed_seconds=0.0,
        kind=Kind.FAILED,
        text=f"supervisor: ended without a word (killed?){found}{_last_line(folder)}. See runbooks/engine-lost.md.",
        runbook="runbooks/engine-lost.md",
    )
    folder.append_event(event)
    if status:
        folder.write_status(
            msgspec.structs.replace(status, phase="failed", address="", keeper_pid=0, reason=event.text)
        )
    return event


def look(folder: Folder) -> Status:
    """How a deployment stands, as seen from outside: a supervisor that died without a word is found and recorded."""
    with suppress(FactsError), folder.asking():  # somebody starting it writes its status soon
        status = folder.status()
        if status and status.phase not in ("stopped", "failed") and not folder.has_owner():
            bury(folder)
    status = folder.status()
    if status is None:
        raise FactsError.of("deploy.no-status", folder.name, "its status file is gone", remedy="Deploy it again.")
    return status


def stop(folder: Folder) -> Event:
    """Ask, and wait for the end; raises EngineError where it does not come."""
    if not folder.has_owner():
        look(folder)
        return folder.events()[-1]
    asyncio.run(control.ask(folder, "stop"))
    drain_seconds = msgspec.json.decode(folder.launch.read_bytes(), type=Launch).drain_seconds
    patience_seconds = drain_seconds + _STOP_MARGIN_SECONDS
    deadline = time.monotonic() + patience_seconds
    while folder.has_owner():
        if time.monotonic() > deadline:
            raise EngineError.of(
                "stop.not-taken",
                folder.name,
                f"still running {patience_seconds:g} s after it was asked to stop",
                remedy="See runbooks/engine-lost.md.",
            )
        time.sleep(_FOLLOW_SECONDS)
    return folder.events()[-1]
