"""What stands at a dotted target of the running engine, and which hooks it carries. Reads; changes nothing."""

import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

Function = Callable[..., Any]


def function_at(target: str) -> Function | None:
    """The function at the target, out of its static or class method; None where nothing has that name."""
    owner_path, name = target.rsplit(".", 1)
    try:
        owner = pkgutil.resolve_name(owner_path)
    except (ImportError, AttributeError):
        return None
    scopes = owner.__mro__ if isinstance(owner, type) else (owner,)
    found = next((vars(scope)[name] for scope in scopes if name in vars(scope)), None)
    function = getattr(found, "__func__", found)
    return function if callable(function) else None


def unhooked(function: Function | None, hook: Function) -> Function | None:
    """What the hook was put around, or None where no wrapper in the chain carries it.

    The engine's wrappers hold their hook in a closure cell and what they wrap in `__wrapped__`.
    """
    for wrapper in _chain(function):
        if any(content is hook for content in _closure(wrapper)):
            beneath: Function | None = getattr(wrapper, "__wrapped__", None)
            return beneath
    return None


def wrappers_of(function: Function | None) -> tuple[Function, ...]:
    return tuple(_chain(function))


def _chain(function: Function | None) -> Iterator[Function]:
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


def _closure(function: Function) -> Iterator[object]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a cell not filled yet
            continue
