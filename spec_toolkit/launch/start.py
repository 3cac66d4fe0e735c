"""Starting, following and ending a deployment from a command. Touches the world."""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from spec_toolkit.engine.flags import ADMIN_KEY
from spec_toolkit.engine.patches import Patch, hand_over
from spec_toolkit.errors import EngineError, FactsError
from spec_toolkit.facts.hub import resolve_revision
from spec_toolkit.launch import control
from spec_toolkit.launch.deployment import Folder, Status, write_json, write_private
from spec_toolkit.launch.engine_process import end_session
from spec_toolkit.launch.events import ENDS, Event, Kind
from spec_toolkit.launch.spec import REHEARSAL_PREFIX, LaunchSpec, Place, to_launch
from spec_toolkit.launch.supervisor import Launch
from spec_toolkit.planning.plan import Plan
from spec_toolkit.recipe.load import LoadedRecipe
from spec_toolkit.recipe.schema import Target
from spec_toolkit.shipped import rehearsal
from spec_toolkit.terms import Method, Mode

_FOLLOW_SECONDS = 0.1  # between two looks at the events
_STOP_MARGIN_SECONDS = 30.0  # beyond the drain time, until a stop counts as not taken
_OPEN = "<resolved at deploy>"


@dataclass(frozen=True, slots=True)
class Model:
    path: str  # folder, or hub repository
    commit: str | None  # of a hub repository
    write_into_recipe: str = ""  # the line that would pin what the recipe leaves open


def locate_model(target: Target, *, ask_hub: bool = True) -> Model:
    """Where the target lies. A hub revision the recipe leaves open is resolved once, here; FactsError where it cannot be."""
    if target.model.startswith(REHEARSAL_PREFIX):
        folder = rehearsal() / "models" / target.model.removeprefix(REHEARSAL_PREFIX)
        if not folder.is_dir():
            known = ", ".join(sorted(p.name for p in folder.parent.iterdir())) if folder.parent.is_dir() else "none"
            raise FactsError.of("facts.no-model", "target.model", f"no tiny model {folder.name!r}", remedy=f"Known: {known}.")
        return Model(str(folder), None)
    if Path(target.model).is_dir():
        return Model(str(Path(target.model).resolve()), None)
    if target.revision:
        return Model(target.model, target.revision)
    if not ask_hub:
        return Model(target.model, _OPEN)
    commit = resolve_revision(target.model)
    return Model(target.model, commit, f"revision: {commit}")


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


def attempts(plan: Plan, model: Model, folder: Folder) -> tuple[LaunchSpec, ...]:
    """With speculation, once more, then without: as far as the recipe allows."""
    speculate = plan.recipe.draft.method is not Method.NONE and set(plan.recipe.policy.allow) != {Mode.AUTOREGRESSIVE}
    kinds = [True, True] if speculate else [False]
    if speculate and Mode.AUTOREGRESSIVE in plan.recipe.policy.allow:
        kinds.append(False)
    return tuple(
        to_launch(plan, _place(model, folder, port), speculate=kind)
        for kind, port in zip(kinds, free_ports(len(kinds)), strict=True)
    )


def _place(model: Model, folder: Folder, port: int) -> Place:
    return Place(
        python=sys.executable,
        rehearsal=str(rehearsal()),
        model_path=model.path,
        commit=model.commit,
        engine_config=str(folder.engine_config),
        patch_list=str(folder.patch_list),
        port=port,
        cores=os.cpu_count() or 1,
    )


def begin(folder: Folder, plan: Plan, loaded: LoadedRecipe, model: Model, patches: Sequence[Patch]) -> int:
    """Write the deployment's folder and start its supervisor; returns the leash.

    The supervisor ends the deployment when the leash closes, however this process ends; `release` it to let go.
    """
    folder.clear()
    specs = attempts(plan, model, folder)
    key = secrets.token_urlsafe(32)
    write_private(folder.admin_key, f"{key}\n".encode())
    write_private(folder.engine_config, f"{ADMIN_KEY}: {key}\n".encode())
    write_private(folder.recipe, loaded.text.encode())
    hand_over(patches, folder.path)
    write_json(folder.path / "plan.json", plan)
    launch = Launch(
        status=_first_status(folder, plan, loaded, model, specs[0]),
        attempts=specs,
        ready_seconds=plan.recipe.policy.ready_seconds,
        drain_seconds=plan.recipe.policy.drain_seconds,
    )
    folder.write_status(launch.status)
    write_json(folder.launch, launch)
    return _spawn(folder)


def _first_status(folder: Folder, plan: Plan, loaded: LoadedRecipe, model: Model, first: LaunchSpec) -> Status:
    return Status(
        name=folder.name,
        recipe=str(loaded.path),
        recipe_sha256=loaded.sha256,
        mode=(Mode.FULL if first.speculates else Mode.AUTOREGRESSIVE).value,
        lossy=plan.recipe.is_lossy,
        simulated=plan.recipe.simulated,
        target_commit=model.commit or plan.recipe.target.revision or "",
        write_into_recipe=model.write_into_recipe,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251 - an edge: people read it
    )


def _spawn(folder: Folder) -> int:
    theirs, ours = os.pipe()
    log = os.open(folder.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    command = (sys.executable, "-P", "-m", "spec_toolkit.launch.supervisor", str(folder.path), str(theirs))
    try:
        subprocess.Popen(  # noqa: S603 - our own module
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
    return ours


def release(leash: int) -> None:
    """Let the supervisor go on without us."""
    os.write(leash, b".")
    os.close(leash)


def follow(folder: Folder, *, patience_seconds: float = 10.0) -> Iterator[Event]:
    """Every event from the first, as they come, until the one that ends the deployment.

    A supervisor that was killed writes no last event: then what its keeper left is swept, and the last event says so.
    """
    seen, began = 0, time.monotonic()
    while True:
        owned = folder.has_owner()  # before reading: what it wrote before it ended is then read
        events = folder.events()
        yield from events[seen:]
        seen = len(events)
        if events and events[-1].kind in ENDS:
            return
        if not owned and (events or time.monotonic() - began > patience_seconds):
            yield bury(folder)
            return
        time.sleep(_FOLLOW_SECONDS)


def bury(folder: Folder) -> Event:
    """Record the end of a deployment whose supervisor is gone, and end what it may have left."""
    status = folder.status()
    left = end_session(status.keeper_pid) if status and status.keeper_pid else []
    words = folder.supervisor_log.read_text(errors="replace").splitlines() if folder.supervisor_log.exists() else []
    found = f"; {len(left)} engine processes were left and are ended" if left else "; it left no process"
    said = f' Its last words: "{words[-1][:200]}".' if words else ""
    event = Event(
        at=datetime.now(UTC).isoformat(timespec="milliseconds"),  # noqa: TID251 - an edge: events carry wall-clock time
        elapsed_seconds=0.0,
        kind=Kind.FAILED,
        text=f"supervisor: ended without a word (killed?){found}.{said} See runbooks/engine-lost.md.",
        runbook="runbooks/engine-lost.md",
    )
    folder.append_event(event)
    if status:
        folder.write_status(msgspec.structs.replace(status, phase="failed", address="", keeper_pid=0, reason=event.text))
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
