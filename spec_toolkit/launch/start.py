"""Starting a deployment from a command. Touches the world."""

import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from spec_toolkit.engine.flags import ADMIN_KEY
from spec_toolkit.engine.patches import hand_over
from spec_toolkit.errors import EngineError
from spec_toolkit.facts.checkpoint import model_folder
from spec_toolkit.facts.hub import resolve_revision
from spec_toolkit.launch.deployment import Folder, Status, write_json, write_private
from spec_toolkit.launch.door import LOOPBACK, Door
from spec_toolkit.launch.ending import last_line, stop
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.launch.prepare import Prepared
from spec_toolkit.launch.record import GATEWAY, SIDECAR, Front, Launch, Service
from spec_toolkit.launch.spec import LaunchSpec, Place, steps_config, to_launch
from spec_toolkit.planning.plan import Plan
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.shipped import rehearsal
from spec_toolkit.terms import Method, Mode, mode_at

_FOLLOW_SECONDS = 0.1  # between two looks at the events
_OWNED_SECONDS = 60.0  # for the supervisor's imports, on a busy machine
_WATCHDOGS = 2.0  # the engine's own notices a hang after one to one and a half of its time-outs
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
    resolved = resolve_revision(model, None)
    commit = resolved.commit
    # Quoted: a commit of digits alone, or of digits around one 'e', would be a number to YAML.
    return model, commit, (f'{part}: {{revision: "{commit}"}}  # says {resolved.origin.value}',)


def attempts(plan: Plan, models: Models, folder: Folder) -> tuple[LaunchSpec, ...]:
    """With speculation, once more, then without: as far as the recipe allows."""
    speculate = any(rungs(plan))
    kinds = [True, True] if speculate else [False]
    if speculate and Mode.AUTOREGRESSIVE in plan.recipe.policy.allow:
        kinds.append(False)
    return tuple(to_launch(plan, _place(models, folder, free_engine_port()), speculate=kind) for kind in kinds)


def rungs(plan: Plan) -> tuple[int, ...]:
    """Step counts that a speculating engine may take requests with, ascending; where none drafts there is nothing to start one for."""
    if plan.recipe.draft.method is Method.NONE:
        return ()
    counts = plan.steps or ((plan.shape.num_steps,) if plan.shape else ())
    allowed = plan.recipe.policy.allow
    return tuple(steps for steps in counts if mode_at(steps, max(counts)) in allowed)


def _place(models: Models, folder: Folder, port: int) -> Place:
    return Place(
        python=sys.executable,
        rehearsal=str(rehearsal()),
        target=models.target,
        target_commit=models.target_commit,
        draft=models.draft,
        draft_commit=models.draft_commit,
        engine_config=str(folder.engine_config),
        steps_config=str(folder.steps_config),
        patch_list=str(folder.patch_list),
        port=port,
        cores=os.cpu_count() or 1,
    )


def dry_run(folder: Folder, ready: Prepared) -> LaunchSpec:
    """What `deploy` would start first. Asks nobody and writes nothing."""
    models = locate(ready.plan.recipe, ask_hub=False)
    return attempts(ready.plan, models, folder)[0]


def start(folder: Folder, ready: Prepared, *, replace: bool, door: Door = LOOPBACK) -> int | None:
    """Start, and return the leash; None where the deployment runs already and is not to be replaced."""
    if folder.has_owner() and not replace:
        return None
    models = locate(ready.plan.recipe)  # may ask the hub, so before anything is locked
    with folder.asking():
        if folder.has_owner():
            if not replace:
                return None
            stop(folder)
        return begin(folder, ready, models, door)


def begin(folder: Folder, ready: Prepared, models: Models, door: Door) -> int:
    """Write the deployment's folder and start its supervisor; returns the leash.

    The supervisor ends the deployment when the leash closes, however this process ends; `release` it to let go.
    """
    front = _front(ready.plan.recipe, door)
    folder.clear()
    plan = ready.plan
    specs = attempts(plan, models, folder)
    key = new_key()
    write_private(folder.admin_key, f"{key}\n".encode())
    write_private(folder.engine_config, f"{ADMIN_KEY}: {key}\n".encode())
    write_private(folder.recipe, ready.loaded.text.encode())
    hand_over(ready.patches, folder.path)
    write_json(folder.path / "plan.json", plan)
    write_json(folder.steps_config, steps_config(plan.steps))
    if plan.limits is not None:
        write_json(folder.limits, plan.limits)
    launch = Launch(
        status=_first_status(folder, ready, models, specs[0]),
        attempts=specs,
        tokenizer=plan.recipe.target.tokenizer,
        ready_seconds=plan.recipe.policy.ready_seconds,
        drain_seconds=plan.recipe.policy.drain_seconds,
        front=front,
        comeback=plan.recipe.policy.comeback,
        hang_seconds=_WATCHDOGS * plan.recipe.policy.watchdog_seconds,
        services=_services(folder),
        steps=plan.steps,
        entry_steps=max(rungs(plan), default=0),
        return_steps=min(rungs(plan), default=0),
    )
    folder.write_status(launch.status)
    write_json(folder.launch, launch)
    return _spawn(folder)


def _services(folder: Folder) -> tuple[Service, ...]:
    return tuple(
        Service(name=name, command=(sys.executable, "-P", "-m", f"spec_toolkit.{name}.service", str(folder.path)))
        for name in (GATEWAY, SIDECAR)
    )


def _front(recipe: Recipe, door: Door) -> Front:
    host, port = door.take()
    return Front(
        host=host,
        port=port,
        max_running_requests=recipe.limits.max_running_requests,
        max_waiting_requests=recipe.policy.max_waiting_requests,
        resume_deadline_seconds=recipe.policy.resume_deadline_seconds,
        context_tokens=recipe.limits.context_tokens,
    )


def new_key() -> str:
    """256 bits; hexadecimal, because the engine parses its config file as arguments and takes a leading '-' for a flag."""
    return secrets.token_hex(32)


def _first_status(folder: Folder, ready: Prepared, models: Models, first: LaunchSpec) -> Status:
    recipe = ready.plan.recipe
    return Status(
        name=folder.name,
        recipe=str(ready.loaded.path.absolute()),
        recipe_sha256=ready.loaded.sha256,
        mode=(Mode.FULL if first.speculates else Mode.AUTOREGRESSIVE).value,
        labels=ready.plan.labels,
        run=secrets.token_hex(8),
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
                f"its supervisor did not come up{last_line(folder)}",
                remedy=f"See {folder.supervisor_log}.",
            )
        time.sleep(_FOLLOW_SECONDS / 10)
    return ours


def release(leash: int) -> bool:
    """Let the supervisor go on without us; False where it has just ended."""
    try:
        os.write(leash, b".")
    except BrokenPipeError:
        return False
    finally:
        os.close(leash)
    return True
