"""Writes single values as YAML words that the loader reads back as they were. Pure."""

from collections.abc import Sequence
from enum import Enum

import yaml
from yaml import CSafeLoader

from spec_toolkit.recipe.tree import tag_of


def render(value: object, *, style: str | None = None, alone: bool = False) -> str:  # noqa: PLR0911 - a table of kinds
    """One value on one line; a text is quoted where it must be, or where `style` (a quote of the value before it) says so.

    `alone`: it has its line for itself, so that commas and brackets mean nothing.
    """
    match value:
        case Enum():
            return render(value.value, style=style, alone=alone)
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return _real(value)
        case str():
            return _text(value, style, alone=alone)
        case Sequence():
            return f"[{', '.join(render(item) for item in value)}]"
        case _:
            raise TypeError(f"{type(value).__name__} is no value of a recipe")


def _real(value: float) -> str:
    """YAML 1.1 wants a point in a number with an exponent."""
    mantissa, mark, exponent = repr(value).partition("e")
    return f"{mantissa}{'' if '.' in mantissa or not mark else '.0'}{mark}{exponent}"


def _text(text: str, style: str | None, *, alone: bool) -> str:
    if style == "'" and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return text if style != '"' and _stays_plain(text, alone=alone) else quoted(text)


def quoted(text: str) -> str:
    """In double quotes, with escapes for what cannot be seen."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable() and character != "\ufeff":
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _stays_plain(text: str, *, alone: bool) -> bool:
    """Whether the text without quotes is this text again."""
    if not text or not text.isprintable() or tag_of(text) != "str":
        return False
    return all(_is_one_scalar(line, text) for line in (f"- {text}", *(() if alone else (f"[{text}]",))))


def _is_one_scalar(line: str, text: str) -> bool:
    """Whether a list's one item is the text."""
    try:
        nodes = [event for event in yaml.parse(line, Loader=CSafeLoader) if isinstance(event, yaml.NodeEvent)]
    except yaml.YAMLError:
        return False
    return [(type(event), getattr(event, "value", None)) for event in nodes[1:]] == [(yaml.ScalarEvent, text)]
