"""SGLang's server with one round of imports instead of three: import, then fork.

    python .../rehearsal/serve.py <arguments of sglang.launch_server>

The stock launcher imports the engine in three processes, and on a CPU those imports are nearly all of the start. Here one
process imports everything its children will need and SGLang forks them from it. What runs after that is SGLang's own
`launch_server`, line for line. Touches the process: sys.path, the garbage collector, multiprocessing's start method, what
a forked child does first.
"""

import ctypes
import gc
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FunctionType, ModuleType

STANDINS = Path(__file__).resolve().parent / "path"

# In the order the stock launcher would reach them. The model runner pulls in every kernel wrapper the scheduler uses; the
# registry imports all model modules, for one second that `--tp 2` would else pay twice.
ENGINE_MODULES = (
    "sglang.launch_server",
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.managers.data_parallel_controller",
    "sglang.srt.model_executor.model_runner",
    "sglang.srt.models.registry",
    "sglang.srt.speculative.eagle_worker_v2",
    "sglang.srt.arg_groups.pipeline",
)

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)


def put_standins_first() -> None:
    """Give the stand-ins the place of this script's own folder, whose modules no engine should find."""
    own = str(Path(__file__).resolve().parent)
    sys.path[:] = [str(STANDINS), *(entry for entry in sys.path if entry not in (own, str(STANDINS)))]


def pass_for_a_cpu_build() -> None:
    """SGLang takes `torch.version.cuda` for a sign that its ranks have NCCL, hands that a CPU device, and ends.

    The package registry's torch has it set even where there is no GPU.
    """
    importlib.import_module("torch").version.cuda = None


def import_engine() -> None:
    """Import once what the server, the scheduler and the detokenizer need.

    A quarter of the import time is the garbage collector looking for cycles among objects that stay. So it rests meanwhile,
    and `freeze` then takes those objects out of its sight for good, which also keeps their pages shared after a fork. No
    `collect` before it: that costs a second and frees next to nothing.
    """
    gc.disable()
    try:
        for module in ENGINE_MODULES:
            importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


class Bindings:
    """Under which names SGLang's functions and classes stand in other modules: what a hook on one of them must replace.

    SGLang looks for them in all of six thousand modules, for each hook anew, in each process: with a rehearsal's patches a third of
    a start. Here they are found once, before the forks. A binding made afterwards in a module of then is not seen; the plugin
    refuses to start where anything still holds a function that is hooked.
    """

    def __init__(self, modules: Mapping[str, ModuleType]) -> None:
        self._known = set(modules)
        self._names: dict[int, list[tuple[ModuleType, str]]] = {}
        for module in {id(module): module for module in modules.values()}.values():
            for name, value in list(vars(module).items()):
                if _is_engines(value):
                    self._names.setdefault(id(value), []).append((module, name))

    def propagate(self, original: object, wrapped: object, source: object) -> int:
        """As SGLang's `_propagate_patch`: bind `wrapped` wherever `original` was imported by name; returns the number of places."""
        searched = sys.modules.keys() - self._known if _is_engines(original) else set(sys.modules)
        modules = [module for name in searched if isinstance(module := sys.modules[name], ModuleType)]
        places = [
            (module, name) for module in modules for name, value in list(vars(module).items()) if value is original
        ]
        replaced = 0
        for module, name in [*self._names.get(id(original), ()), *places]:
            if module is not source and vars(module).get(name) is original:
                with suppress(AttributeError, TypeError):
                    setattr(module, name, wrapped)
                    replaced += 1
        return replaced


def _is_engines(value: object) -> bool:
    """Told by its type, not by `isinstance`: that asks the object, and some warn when they are asked for anything."""
    if type(value) is FunctionType:
        return value.__module__ is not None and value.__module__.startswith("sglang.")
    return issubclass(type(value), type) and str(vars(value).get("__module__")).startswith("sglang.")


def hasten_hooks() -> None:
    """Give SGLang's hook registry the places it would look for."""
    registry = importlib.import_module("sglang.srt.plugins.hook_registry")
    bindings = Bindings({name: module for name, module in sys.modules.items() if isinstance(module, ModuleType)})
    registry._propagate_patch = bindings.propagate  # type: ignore[attr-defined]  # noqa: SLF001 - it has no public way
    gc.freeze()


def fork_children_of_the_engine() -> None:
    """Let SGLang's `multiprocessing.set_start_method("spawn")` choose fork; engine.py calls it on every launch."""
    set_start_method = multiprocessing.set_start_method

    def fork_for_spawn(method: str | None, force: bool = False) -> None:
        set_start_method("fork" if method == "spawn" else method, force=force)

    multiprocessing.set_start_method = fork_for_spawn


class _Forks:
    """What a forked child must do before anything else; the parent notes who it is just before each fork."""

    def __init__(self) -> None:
        self.parent = 0

    def before(self) -> None:
        self.parent = os.getpid()

    def in_child(self) -> None:
        self._die_with_parent()
        _start_like_a_spawned_process()

    def _die_with_parent(self) -> None:
        # The kernel watches the forking *thread*; SGLang keeps the threads that start its processes.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self.parent:  # it died between the fork and the line above, and no signal will come
            os.kill(os.getpid(), signal.SIGKILL)


def _start_like_a_spawned_process() -> None:
    """Undo what a spawned process would not have inherited: the parent's signal handlers and its loaded plugins.

    SGLang loads plugins at the start of each process role, once per process. The flag and the list of hooks come along with
    a fork, so without this no plugin would run, or report, in a scheduler. The patches themselves stay: they are applied.
    """
    for number in (signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    plugins = sys.modules.get("sglang.srt.plugins")
    if plugins is not None:
        plugins._plugins_loaded = False  # noqa: SLF001 - SGLang has no public way to say "a new process"
        plugins.HookRegistry._hooks.clear()  # noqa: SLF001 - as above; its public reset() would also forget what is patched


def watch_forks() -> None:
    """From here on every fork of this process, and of its forks, dies with its parent and starts afresh."""
    forks = _Forks()
    os.register_at_fork(before=forks.before, after_in_child=forks.in_child)


def prepare() -> None:
    """Everything up to the point where arguments and plugins matter; `nursery.py` stops here and forks engines."""
    put_standins_first()
    pass_for_a_cpu_build()
    import_engine()
    hasten_hooks()
    fork_children_of_the_engine()
    watch_forks()


def run_engine(argv: list[str]) -> None:
    """What `python -m sglang.launch_server` does with `argv`; returns when the server has ended."""
    launch_server = sys.modules["sglang.launch_server"]
    launch_server.load_plugins()
    server_args = launch_server.prepare_server_args(argv)
    try:
        launch_server.run_server(server_args)
    finally:
        launch_server.kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    prepare()
    run_engine(sys.argv[1:])
