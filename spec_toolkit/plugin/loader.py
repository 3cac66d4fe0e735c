"""Applies exactly the hooks of a patch list that this process is to run, or refuses. Changes the engine in memory, once per process.

The engine's registry logs and swallows whatever fails, so nothing is believed: sources are compared before, and what stands at each
target is looked at afterwards.
"""

import gc
import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import ModuleType

from spec_toolkit.fingerprint import TargetMissing, fingerprint
from spec_toolkit.handover import HandedHook, Relied, Report, Role
from spec_toolkit.plugin.holders import holders
from spec_toolkit.plugin.refusal import Refused
from spec_toolkit.plugin.roles import EngineProcess
from spec_toolkit.plugin.targets import Function, function_at, unhooked

_WRITTEN_AGAINST = "the patch was written against other source, and would change what it was not tested with"
_WRITTEN_FOR = "the patch's hooks were written for that source, and would lean on what they were not tested with"
_VERIFY = "Run `spec-toolkit patches verify`, then pin the engine it names or update the patch."


def apply(hooks: Sequence[HandedHook], process: EngineProcess, *, pid: int, list_sha256: str) -> Report:
    """Raises Refused unless all that is hooked or relied on reads as it did then, and every hook of this role is in place."""
    with _collector_at_rest():
        return _apply(hooks, process, pid=pid, list_sha256=list_sha256)


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Half the time of parsing an engine's sources is the collector looking for cycles among the objects of its imports."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _apply(hooks: Sequence[HandedHook], process: EngineProcess, *, pid: int, list_sha256: str) -> Report:
    for hook in sorted(hooks, key=attrgetter("target")):  # by source file, so that each is parsed once
        check_hooked(hook)
    relied_on = {(relied.target, hook.patch): (hook.patch, relied) for hook in hooks for relied in hook.relies_on}
    for _, (patch, relied) in sorted(relied_on.items(), key=lambda item: item[0]):
        check_relied(patch, relied)
    functions = [(hook, _hook_function(hook)) for hook in hooks if process.role in hook.roles]
    new = [(hook, function) for hook, function in functions if not in_place(hook, function)]
    _register(new)
    for hook, function in functions:
        if not in_place(hook, function):
            raise Refused(
                "hook-not-applied",
                hook.target,
                f"hook '{hook.function}' of '{hook.patch}' is not in place after the engine applied its hooks",
                why="the engine logs such a failure and goes on without the patch",
                remedy="The engine's log above names the cause.",
            )
    _check_holders(new)  # of those that came with a fork, the parent made sure
    return Report(
        role=process.role,
        ranks=process.ranks,
        pid=pid,
        list_sha256=list_sha256,
        applied=tuple(dict.fromkeys(hook.target for hook, _ in functions)),
        inherited=_inherited(hooks, process.role),
    )


@cache
def _fingerprint(target: str) -> str:
    """Of a target that is defined. A fork keeps the answers, as it keeps the code that was imported from the source they are of."""
    return fingerprint(target)


def check_hooked(hook: HandedHook) -> None:
    try:
        found = _fingerprint(hook.target)
    except TargetMissing as missing:
        raise Refused(
            "target-missing",
            hook.target,
            f"{missing}, and '{hook.patch}' changes it",
            why="the engine would log this and run without the patch",
            remedy=_VERIFY,
        ) from None
    if found != hook.fingerprint:
        raise Refused(
            "source-changed",
            hook.target,
            f"its source has fingerprint {found[:12]}, '{hook.patch}' expects {hook.fingerprint[:12]}",
            why=_WRITTEN_AGAINST,
            remedy=_VERIFY,
        )


def check_relied(patch: str, relied: Relied) -> None:
    try:
        found = _fingerprint(relied.target)
    except TargetMissing as missing:
        rule, problem = "target-missing", f"{missing}, and '{patch}' relies on it"
    else:
        if found == relied.fingerprint:
            return
        rule = "source-changed"
        problem = f"its source has fingerprint {found[:12]}, '{patch}' relies on {relied.fingerprint[:12]}"
    raise Refused(rule, relied.target, f"{problem} without hooking it", why=_WRITTEN_FOR, remedy=_VERIFY)


def in_place(hook: HandedHook, function: Function) -> bool:
    return unhooked(function_at(hook.target), function) is not None


def _register(hooks: Sequence[tuple[HandedHook, Function]]) -> None:
    if not hooks:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: PLC0415 - only with a list; inert without
    from sglang.srt.plugins.hook_registry import HookType as EngineHookType  # noqa: PLC0415 - as above

    for hook, function in hooks:
        if hook.target in HookRegistry._patched:  # noqa: SLF001 - the registry drops a late hook without a word
            raise Refused(
                "target-taken",
                hook.target,
                f"was hooked before '{hook.patch}' was asked for",
                why="the engine drops hooks that come after the first application",
                remedy="Remove the other plugin that hooks it.",
            )
        HookRegistry.register(hook.target, function, EngineHookType(hook.type.value))
    HookRegistry.apply_hooks()


def _hook_function(hook: HandedHook) -> Function:
    module = _hooks_module(hook)
    function = getattr(module, hook.function, None)
    if not callable(function) or isinstance(function, type):
        raise Refused(
            "hook-missing",
            hook.file,
            f"has no function '{hook.function}', which '{hook.patch}' puts on {hook.target}",
            why="patch.yaml and hooks.py disagree",
            remedy="Correct the name in patch.yaml.",
        )
    found: Function = function
    return found


def _hooks_module(hook: HandedHook) -> ModuleType:
    """The patch's hooks.py, loaded by path, so that it is the same file in a checkout and in a wheel."""
    path = Path(hook.file)
    name = f"spec_toolkit_patches.{path.parent.name}"
    if name in sys.modules:  # a second hook of the file, or a fork of a process that has it
        return sys.modules[name]
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != hook.file_sha256:
        raise Refused(
            "hooks-changed",
            hook.file,
            "is not the file the launcher handed over",
            why="ranks of one engine would run different patches",
            remedy="Start the engine again.",
        )
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:  # cannot happen for a .py file, but the types allow it
        raise ImportError(f"no loader for {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _check_holders(functions: Sequence[tuple[HandedHook, Function]]) -> None:
    """Refuse where something keeps calling a function as it was."""
    if not functions:
        return
    hooked, originals = [], []
    for hook, function in functions:
        wrapper = function_at(hook.target)
        original = unhooked(wrapper, function)
        if wrapper is not None and original is not None:
            hooked.append(wrapper)
            originals.append(original)
    allowed = {keeper for hook, _ in functions for keeper in hook.may_keep}
    if left := holders(originals, hooked, allowed):
        names = {name for name, _ in left}
        raise Refused(
            "unhooked-copy",
            min(names),
            f"the unhooked function is still held by {'; '.join(sorted({holder for _, holder in left})[:4])}",
            why="calls through there would run without the patch",
            remedy="Hook the holder instead, or name it under may_keep with the reason it does no harm.",
        )


def _inherited(hooks: Sequence[HandedHook], role: Role) -> tuple[str, ...]:
    """Targets of other roles that this process runs hooked, because it was forked from one of them."""
    from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: PLC0415 - only with a list; inert without

    patched = HookRegistry._patched  # noqa: SLF001 - asked first, so that no module is imported to look at it
    others = [hook for hook in hooks if role not in hook.roles and hook.target in patched]
    return tuple(sorted({hook.target for hook in others if in_place(hook, _hook_function(hook))}))
