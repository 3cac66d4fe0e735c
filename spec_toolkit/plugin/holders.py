"""Who still holds an unhooked function after its hook was applied. Reads the interpreter's object graph.

The engine rebinds the globals of modules that did `from x import y`. It does not see route tables, dicts and lists, partials, default
arguments and names in class bodies; whoever calls through one of those runs the code that the patch was to change.
"""

import gc
import sys
from collections.abc import Collection, Iterator, Sequence
from types import CellType, FrameType, FunctionType, ModuleType

from spec_toolkit.plugin.targets import Function, wrappers_of

_LARGEST_CIRCLE = 64  # objects; a class that a decorator replaced leaves about five


def holders(
    originals: Sequence[Function], hooked: Sequence[Function], allowed: Collection[str] = ()
) -> list[tuple[str, str]]:
    """(name of an original, name of what still holds it), less the wrappers in `hooked`, the allowed names and what is garbage."""
    ours = [thing for function in hooked for wrapper in wrappers_of(function) for thing in _parts(wrapper)]
    suspects = _referrers(originals, but=[*ours, originals])
    found = [
        (original, holder)
        for holder in suspects
        for original in originals
        if any(held is original for held in gc.get_referents(holder))
    ]
    named = [(original, holder, _name(holder, original)) for original, holder in found]
    return [
        (f"{original.__module__}.{original.__qualname__}", name)
        for original, holder, name in named
        if name not in allowed and not _is_garbage(holder, known=[suspects, *found, *named])
    ]


def _parts(wrapper: Function) -> Iterator[object]:
    yield vars(wrapper)
    yield from getattr(wrapper, "__closure__", None) or ()


def _is_garbage(thing: object, *, known: Sequence[object]) -> bool:
    """Whether a small closed circle of objects is all that refers to it: what a collection would remove.

    Collecting instead would walk the whole heap of an engine (0.7 s) and, in a forked child, copy it.
    """
    circle: list[object] = []
    layer = [thing]
    while layer:
        circle += layer
        if len(circle) > _LARGEST_CIRCLE:
            return False
        layer = _referrers(layer, but=[*circle, circle, layer, *known])
    return True


def _referrers(things: Sequence[object], *, but: Sequence[object]) -> list[object]:
    """What refers to any of them, running frames aside; also what a fork server froze out of the collector's sight."""
    passed = {id(thing) for thing in (*but, but)}
    frozen = gc.get_freeze_count()
    if frozen:
        gc.unfreeze()
    try:
        found = gc.get_referrers(*things)
    finally:
        if frozen:
            gc.freeze()
    return [thing for thing in found if id(thing) not in passed and not isinstance(thing, FrameType)]


def _name(holder: object, held: object) -> str:
    """`pkg.module.TABLE`, `class pkg.Thing (alias)`, `default argument of pkg.f`, or the holder's type."""
    if isinstance(holder, dict):
        keys = ", ".join(str(key) for key, value in holder.items() if value is held)
        return f"{_owner(holder)} ({keys})"
    if isinstance(holder, CellType):
        closures = [thing for thing in _referrers([holder], but=()) if isinstance(thing, tuple)]
        return f"closure of {_function_with(closures)}" if closures else _owner(holder)
    if isinstance(holder, tuple) and (function := _function_with([holder])):
        return f"default argument of {function}"
    return _owner(holder)


def _function_with(parts: Sequence[object]) -> str:
    """Name of the function that one of these is the closure or the defaults of; empty if there is none."""
    found = next((thing for thing in _referrers(parts, but=()) if isinstance(thing, FunctionType)), None)
    return f"{found.__module__}.{found.__qualname__}" if found else ""


def _owner(holder: object) -> str:
    """The module global, class or instance that a container belongs to."""
    if isinstance(holder, dict) and "__spec__" in holder:
        return f"module {holder.get('__name__')}"
    for name, value in _module_globals():
        if value is holder:
            return name
    for referrer in _referrers([holder], but=()):
        if isinstance(referrer, type):
            return f"class {referrer.__module__}.{referrer.__qualname__}"
        if getattr(referrer, "__dict__", None) is holder:
            label = getattr(referrer, "__name__", None) or getattr(referrer, "path", None) or ""
            return f"{type(referrer).__module__}.{type(referrer).__qualname__} {label}".rstrip()
    return f"{type(holder).__module__}.{type(holder).__qualname__}"


def _module_globals() -> Iterator[tuple[str, object]]:
    for module_name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType):
            for name, value in list(vars(module).items()):
                yield f"{module_name}.{name}", value
