"""From a plan to what is started: arguments, environment, deadlines. Pure, and the only place that knows how they hang together.

A rehearsal differs from production in this file alone: it starts the CPU engine by path, and puts the stand-ins on that one child's
path. No other launch ever has them there.
"""

import shlex
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from spec_toolkit.engine import names
from spec_toolkit.engine.flags import LAUNCH_MODULE, Flag, Value, as_options, to_argv
from spec_toolkit.engine.patch_reports import expected_processes
from spec_toolkit.handover import LIST_VARIABLE, RANKS_AFTER_FAULT_VARIABLE
from spec_toolkit.planning.asked import autoregressive
from spec_toolkit.planning.extra_arguments import written
from spec_toolkit.planning.plan import Plan
from spec_toolkit.recipe.schema import Layout, Recipe


class LaunchSpec(Struct, frozen=True, kw_only=True):
    """One engine process tree, ready to start."""

    command: tuple[str, ...]
    set_environment: dict[str, str]
    unset_environment: tuple[str, ...]
    address: str  # where it will answer, once it does
    speculates: bool
    processes: tuple[str, ...]  # names of the engine processes that must report their patches


class Place(Struct, frozen=True, kw_only=True):
    """What a launch needs to know of this machine; found by the caller."""

    python: str  # the interpreter the engine is installed for
    rehearsal: str  # folder of the CPU engine
    target: str  # folder or hub repository
    target_commit: str | None  # of a hub repository
    draft: str | None  # None: the head ships in the target's checkpoint
    draft_commit: str | None
    engine_config: str  # the file that carries the admin key
    steps_config: str  # the file that names the step counts the engine prepares
    patch_list: str
    port: int
    cores: int  # for several ranks on one machine without GPUs


def to_launch(plan: Plan, place: Place, *, speculate: bool) -> LaunchSpec:
    recipe = plan.recipe
    serve = (str(Path(place.rehearsal) / "serve.py"),) if recipe.is_rehearsal else ("-m", LAUNCH_MODULE)
    # Joined: a value of its own that begins with dashes would be a flag to the engine, and so pass every rule about flags.
    extra = [written(arg) for arg in recipe.engine.extra_args]
    options = _options(plan, place, speculate=speculate)
    return LaunchSpec(
        command=(place.python, *serve, *to_argv(options), *extra),
        set_environment=_environment(recipe, place) | dict(plan.situation.environment),
        unset_environment=(
            names.PLUGINS_ALLOWED,
            names.PREFILLS_APART,
            *(() if recipe.simulated else (names.SIMULATED_ACCEPTANCE,)),
        ),
        address=f"http://127.0.0.1:{place.port}",
        speculates=speculate,
        processes=tuple(sorted(_processes(recipe.hardware.layout))),
    )


def settled(spec: LaunchSpec, *, port: int, patch_list: str, temporary: str) -> LaunchSpec:
    """The same engine with a port and files of its own: two may run side by side."""
    command = list(spec.command)
    command[command.index(Flag.PORT.value) + 1] = str(port)
    own = {LIST_VARIABLE: patch_list, "TMPDIR": temporary}
    return replace(
        spec,
        command=tuple(command),
        address=f"http://127.0.0.1:{port}",
        set_environment=spec.set_environment | own,
    )


def steps_config(steps: tuple[int, ...]) -> dict[str, dict[str, list[int]]]:
    """The file that ADAPTIVE_CONFIG names: by batch size from which it holds, the step counts the engine prepares."""
    return {"1": {"candidate_steps": list(steps)}}


def _options(plan: Plan, place: Place, *, speculate: bool) -> dict[Flag, Value]:
    """What the plan asks, and what this machine adds; speculation last, so that both engines' commands begin alike."""
    recipe = plan.recipe
    asked = plan.asked if speculate else autoregressive(plan.asked)
    asked = replace(
        asked,
        model_path=place.target,
        revision=place.target_commit,
        served_model_name=recipe.target.model.removeprefix("rehearsal:"),
        host="127.0.0.1",
        port=place.port,
    )
    if asked.speculates:
        asked = replace(
            asked,
            speculative_draft_model_path=place.draft,
            speculative_draft_model_revision=place.draft_commit,
            speculative_adaptive_config=place.steps_config if asked.speculative_adaptive else None,
        )
    given = as_options(asked)
    plain: dict[Flag, Value] = {flag: value for flag, value in given.items() if not flag.is_speculative}
    return plain | {Flag.CONFIG: place.engine_config} | _rehearsed(recipe) | given


def _rehearsed(recipe: Recipe) -> dict[Flag, Value]:
    if not recipe.is_rehearsal:
        return {}
    # No device to capture on; an idle scheduler would poll a whole core of the few there are; and the engine's own warm-up
    # request would only repeat our smoke test.
    return {
        # An attention-DP rank sleeps until a message of its own, up to a second, and the one that has a message waits for it.
        Flag.SLEEP_ON_IDLE: not recipe.hardware.layout.dp_attention,
        Flag.DEVICE: "cpu",
        Flag.DECODE_GRAPH_BACKEND: "disabled",
        Flag.PREFILL_GRAPH_BACKEND: "disabled",
        Flag.SKIP_WARMUP: True,
    }


def _environment(recipe: Recipe, place: Place) -> dict[str, str]:
    environment = {
        LIST_VARIABLE: place.patch_list,
        RANKS_AFTER_FAULT_VARIABLE: recipe.policy.ranks_after_draft_fault.value,
        # After a crash the engine would spend up to 70 s on dumps before it lets go; the supervisor keeps the log instead.
        names.CORE_DUMP_ON_CRASH: "0",
        names.STACK_DUMP_ON_CRASH: "0",
        "PYTHONUNBUFFERED": "1",
    }
    if not recipe.is_rehearsal:
        return environment
    ranks = recipe.hardware.layout.tp
    return environment | {
        names.USE_CPU_ENGINE: "1",
        "PYTHONPATH": str(Path(place.rehearsal) / "path"),
        "TORCHDYNAMO_DISABLE": "1",  # nothing is compiled here, and importing the compiler costs seconds
        "OMP_NUM_THREADS": "1",
        **({names.CPU_CORES_OF_RANKS: "|".join(str(r % place.cores) for r in range(ranks))} if ranks > 1 else {}),
    }


def _processes(layout: Layout) -> frozenset[str]:
    return expected_processes(tp=layout.tp, dp=layout.dp, dp_attention=layout.dp_attention)


def as_shell(spec: LaunchSpec) -> str:
    """What a person would type; one flag to a line."""
    lines = [f"unset {' '.join(spec.unset_environment)}"]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in spec.set_environment.items()]
    words, line = list(spec.command), ""
    rendered: list[str] = []
    for word in words:
        if word.startswith("--") and line:
            rendered.append(line)
            line = ""
        line = f"{line} {shlex.quote(word)}".strip()
    rendered.append(line)
    return "\n".join(lines) + "\n" + " \\\n  ".join(rendered)
