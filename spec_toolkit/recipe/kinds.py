"""Holds a tree of keys and values against the schema and says in people's words what does not fit. Pure.

The schema is asked through `msgspec.inspect`, so a new key needs no line here. Everything wrong is collected: a person who mends a file
mends it once.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from msgspec import Struct, inspect

from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.recipe.source import printable
from spec_toolkit.recipe.tree import Group, Items, Node, Scalar

MOST_COMPLAINTS = 100  # of a file that is no recipe at all; nobody reads more, and each looks for its nearest key

Plain = str | int | float | bool | list["Plain"] | dict[str, "Plain"] | None

_UNITS = {"_gib": " GiB", "_seconds": " s", "_tokens": " tokens", "_requests": " requests"}
_LONGEST_KEY = 60  # characters; anything longer resembles no key


@dataclass(slots=True)
class Checked:
    """Plain data for the schema, what does not fit it, and the line of every written key."""

    data: Plain = None
    findings: list[Finding] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)  # by key path: "draft.num_steps", "engine.extra_args[0].flag"


def check_kinds(root: Group, schema: type[Struct], where: str) -> Checked:
    """`data` is complete only where there are no findings."""
    walk = _Walk(where, schema)
    walk.checked.data = walk.group(root, walk.schema, "")
    return walk.checked


class _Walk:
    """Goes through tree and schema side by side, never deeper than the schema."""

    def __init__(self, where: str, schema: type[Struct]) -> None:
        kind = inspect.type_info(schema)
        assert isinstance(kind, inspect.StructType)  # noqa: S101 - says to the type checker what the argument's type says
        self.schema = kind
        self.checked = Checked()
        self._where = where
        self._homes = dict(_homes(kind, ""))

    def group(self, node: Group, kind: inspect.StructType, path: str) -> Plain:
        known = {one.encode_name: one for one in kind.fields}
        data: dict[str, Plain] = {}
        for key, line in node.lines.items():
            if key not in known:
                self._unknown_key(key, line, path, known)
                continue
            inner = f"{path}.{key}" if path else key
            self.checked.lines[inner] = line
            data[key] = self.value(node.values[key], known[key].type, inner)
        for key, one in known.items():
            if one.required and key not in node.lines:
                needed = _needed(_options(one.type), key)
                self._say(
                    "recipe.missing-key",
                    node.line if path else 1,
                    f"no key '{key}' {_under(path)}",
                    f"{needed} is needed",
                )
        return data

    def value(self, node: Node, kind: inspect.Type, path: str) -> Plain:
        """The value as plain data; None, with a complaint, where it does not fit."""
        options = _options(kind)
        for option, words in options:
            match node, option:
                case Group(), inspect.StructType():
                    return self.group(node, option, path)
                case Items(), inspect.VarTupleType():
                    return self._items(node, option, path)
                case Scalar(surprise=False), _ if _is_of(node.value, option):
                    self._fit(node, option, words, path)
                    return node.value
                case _:
                    pass
        if isinstance(node, Group | Items | Scalar):  # of the rest the tree has complained
            why = f"{_needed(options, path)} is needed"
            self._say("recipe.kind", node.line, f"{path} is {node.kind}", why, _other_writing(node, options))
        return None

    def _items(self, node: Items, kind: inspect.VarTupleType, path: str) -> Plain:
        items: list[Plain] = []
        for number, item in enumerate(node.items):
            inner = f"{path}[{number}]"
            self.checked.lines[inner] = item.line
            items.append(self.value(item, kind.item_type, inner))
        return items

    def _fit(self, node: Scalar, kind: inspect.Type, words: str, path: str) -> None:
        """Complains of a value that is of the right kind and yet not one of those the schema lets in."""
        found = f"{path} is {node.kind}"
        if isinstance(kind, inspect.EnumType):
            names = [str(member.value) for member in kind.cls]
            if node.value not in names:
                self._say(
                    "recipe.choice",
                    node.line,
                    found,
                    f"{_needed([(kind, '')], path)} is needed",
                    _nearest(node.raw, names),
                )
        elif isinstance(kind, inspect.IntType | inspect.FloatType):
            if not _within(node.value, kind):
                self._say(
                    "recipe.range", node.line, f"{found}{_unit(path)}", f"{_needed([(kind, '')], path)} is needed"
                )
        elif isinstance(kind, inspect.StrType):
            if "\n" in node.raw:
                self._say("recipe.text", node.line, f"{path} goes over several lines", "one line is needed")
            elif not _fits_text(node.raw, kind):
                self._say("recipe.text", node.line, found, f"{words or 'a text'} is needed")

    def _unknown_key(self, key: str, line: int, path: str, known: Mapping[str, inspect.Field]) -> None:
        found = f"no key '{printable(key, _LONGEST_KEY)}' {_under(path)}"
        home = self._homes.get(key)
        if len(self.checked.findings) >= MOST_COMPLAINTS:
            remedy = ""
        elif home is not None and home != path:
            remedy = f"It belongs {_under(home)}."
        else:
            remedy = _nearest(key, known) or f"Known are {', '.join(known)}."
        self._say("recipe.unknown-key", line, found, remedy=remedy)

    def _say(self, rule: str, line: int, found: str, why: str = "", remedy: str = "") -> None:
        where = f"{self._where}:{line}"
        finding = Finding(rule=rule, verdict=Verdict.REFUSE, where=where, found=found, why=why, remedy=remedy)
        self.checked.findings.append(finding)


def _homes(kind: inspect.StructType, path: str) -> Iterator[tuple[str, str]]:
    """Every key with the group it belongs to; of a key that several groups have, the last."""
    for one in kind.fields:
        yield one.encode_name, path
        if isinstance(one.type, inspect.StructType):
            yield from _homes(one.type, f"{path}.{one.encode_name}" if path else one.encode_name)


def _options(kind: inspect.Type) -> list[tuple[inspect.Type, str]]:
    """The kinds a value may be of, each with the schema's own words for it, if it has any."""
    if isinstance(kind, inspect.UnionType):
        return [option for one in kind.types for option in _options(one)]
    if isinstance(kind, inspect.Metadata):
        words = str((kind.extra_json_schema or {}).get("description", ""))
        return [(inner, words) for inner, _ in _options(kind.type)]
    return [(kind, "")]


def _is_of(value: object, kind: inspect.Type) -> bool:
    match kind:
        case inspect.NoneType():
            return value is None
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool)
        case inspect.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case inspect.StrType() | inspect.EnumType():
            return isinstance(value, str)
        case _:
            return False


def _needed(options: list[tuple[inspect.Type, str]], path: str) -> str:
    words = [_in_words(kind, described, path) for kind, described in options if not isinstance(kind, inspect.NoneType)]
    return " or ".join(words)


def _in_words(kind: inspect.Type, described: str, path: str) -> str:  # noqa: PLR0911 - a table of kinds
    match kind:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"a whole number{_range(kind)}{_unit(path)}"
        case inspect.FloatType():
            return f"a number{_range(kind)}{_unit(path)}"
        case inspect.StrType():
            return described or "a text"
        case inspect.EnumType():
            return f"one of {', '.join(str(member.value) for member in kind.cls)}"
        case inspect.VarTupleType():
            return "a list"
        case inspect.StructType():
            return f"a group of keys ({', '.join(one.encode_name for one in kind.fields)})"
        case _:
            return "another kind of value"


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    low = f" from {kind.ge:,}" if kind.ge is not None else f" above {kind.gt:,}" if kind.gt is not None else ""
    high = f" to {kind.le:,}" if kind.le is not None else f" and below {kind.lt:,}" if kind.lt is not None else ""
    return low + high


def _within(value: object, kind: inspect.IntType | inspect.FloatType) -> bool:
    assert isinstance(value, int | float)  # noqa: S101 - `_is_of` has seen to it
    return (
        (kind.ge is None or value >= kind.ge)
        and (kind.gt is None or value > kind.gt)
        and (kind.le is None or value <= kind.le)
        and (kind.lt is None or value < kind.lt)
    )


def _fits_text(text: str, kind: inspect.StrType) -> bool:
    return (
        (kind.min_length is None or len(text) >= kind.min_length)
        and (kind.max_length is None or len(text) <= kind.max_length)
        and (kind.pattern is None or re.search(kind.pattern, text) is not None)
    )


def _other_writing(node: Node, options: list[tuple[inspect.Type, str]]) -> str:
    """How the same thing is written so that it is read as it was meant."""
    kinds = [kind for kind, _ in options]
    if not isinstance(node, Scalar):
        return ""
    if node.value is not None and any(isinstance(kind, inspect.StrType) for kind in kinds):
        return "Put it in quotes."
    if any(isinstance(kind, inspect.IntType) for kind in kinds) and re.fullmatch(r"[1-9][0-9]{0,8}", node.raw):
        return "Write it without quotes."
    return ""


def _nearest(word: str, known: Mapping[str, object] | list[str]) -> str:
    close = get_close_matches(word[:_LONGEST_KEY].lower(), list(known), n=1)
    return f"Did you mean '{close[0]}'?" if close else ""


def _under(path: str) -> str:
    return f"under '{path}'" if path else "at the top"


def _unit(path: str) -> str:
    key = path.rpartition(".")[2]
    return next((unit for ending, unit in _UNITS.items() if key.endswith(ending)), "")
