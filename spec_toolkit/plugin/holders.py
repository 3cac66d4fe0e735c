"""Who still holds an unhooked function after its hook was applied. Reads the interpreter's object graph.

The engine rebinds the globals of modules that did `from x import y`. It does not see route tables, dicts and lists, partials, default
arguments and names in class bodies; whoever calls through one of those runs the code that the patch was to change.
"""

import gc
import sys
from collections.abc import Iterator, Sequence
from types import CellType, FrameType, FunctionType, ModuleType

from spec_toolkit.plugin.targets import Function, wrappers_of


def holders(originals: Sequence[Function], hooked: Sequence[Function]) -> list[tuple[Function, str]]:
    """Each original that someone other than its own wrapper still holds, with the holder's name."""
    # A holder that a collection removes is garbage. Collecting first would touch, and in a forked child copy, every page.
    if not (found := _holders(originals, hooked)):
        return []
    del found
    gc.collect()
    return [(original, _name(holder, original)) for original, holder in _holders(originals, hooked)]


def _holders(originals: Sequence[Function], hooked: Sequence[Function]) -> list[tuple[Function, object]]:
    ours = {id(originals)}
    for function in hooked:
        for wrapper in wrappers_of(function):
            ours.add(id(vars(wrapper)))
            ours.update(id(cell) for cell in getattr(wrapper, "__closure__", None) or ())
    return [
        (original, holder)
        for original in originals
        for holder in _referrers(original)
        if id(holder) not in ours and not isinstance(holder, FrameType)
    ]


def _referrers(thing: object) -> list[object]:
    """All referrers, those included that a fork server froze out of the collector's sight."""
    frozen = gc.get_freeze_count()
    if frozen:
        gc.unfreeze()
    try:
        return gc.get_referrers(thing)
    finally:
        if frozen:
            gc.freeze()


def _name(holder: object, held: object) -> str:
    """`pkg.module.TABLE`, `class pkg.Thing (alias)`, `default argument of pkg.f`, or the holder's type."""
    if isinstance(holder, dict):
        keys = ", ".join(str(key) for key, value in holder.items() if value is held)
        return f"{_owner(holder)} ({keys})"
    if isinstance(holder, tuple | CellType):
        function = next((f for f in _referrers(holder) if isinstance(f, FunctionType)), None)
        if function is not None:
            place = "default argument" if function.__defaults__ is holder else "closure"
            return f"{place} of {function.__module__}.{function.__qualname__}"
    return _owner(holder)


def _owner(holder: object) -> str:
    """The module global, class or instance that a container belongs to."""
    if isinstance(holder, dict) and "__spec__" in holder:
        return f"module {holder.get('__name__')}"
    for name, value in _module_globals():
        if value is holder:
            return name
    for referrer in _referrers(holder):
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
