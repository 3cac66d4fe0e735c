"""A recipe as the YAML text that a person would write: groups apart, defaults left out, lists on one line. Pure."""

from collections.abc import Iterator, Sequence
from enum import Enum

from msgspec import Struct, structs

from spec_toolkit.recipe.schema import Draft, Recipe
from spec_toolkit.recipe.words import render
from spec_toolkit.terms import Method

_SHOWN = {"topk", "acceptance"}  # of a draft: choices that people look for, though they be the default


def recipe_text(recipe: Recipe, head: Sequence[str] = ()) -> str:
    """`head`: lines of a comment in front."""
    lines = [f"# {line}" for line in head]
    for key in structs.fields(recipe):
        value = getattr(recipe, key.name)
        if isinstance(value, Struct):
            inner = list(_group(value, "  "))
            lines += ["", f"{key.name}:", *inner] if inner else []
        elif value != key.default:
            lines.append(f"{key.name}: {render(value, alone=True)}")
    return "\n".join(lines) + "\n"


def _group(group: Struct, indent: str) -> Iterator[str]:
    shows = _SHOWN if isinstance(group, Draft) and group.method is not Method.NONE else set()
    for key in structs.fields(group):
        value = getattr(group, key.name)
        if isinstance(value, Struct):
            inner = list(_group(value, f"{indent}  "))
            yield from [f"{indent}{key.name}:", *inner] if inner else []
        elif value == key.default and key.name not in shows:
            continue
        elif isinstance(value, tuple) and value and isinstance(value[0], Struct):
            yield f"{indent}{key.name}:"
            yield from (f"{indent}  - {_in_braces(item)}" for item in value)
        elif isinstance(value, tuple | Enum | str | int | float):
            yield f"{indent}{key.name}: {render(value, alone=True)}"


def _in_braces(record: Struct) -> str:
    written = [(key.name, getattr(record, key.name)) for key in structs.fields(record)]
    written.sort(key=lambda pair: pair[0] == "why")  # reasons last
    return "{" + ", ".join(f"{name}: {render(value)}" for name, value in written if value is not None) + "}"
