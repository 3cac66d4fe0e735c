"""Sets values in a recipe's text and leaves every other character as it is: comments, order, quotes. Pure.

Each edit is made at the marks that the parser gave the nodes, never by writing the whole text anew. What comes out is read back: an edit
that would say anything but what was asked raises, and there is no text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import yaml
from msgspec import inspect
from yaml import CSafeLoader

from spec_toolkit.errors import RecipeError
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.recipe.source import printable
from spec_toolkit.recipe.tree import Group, Items, Node, Scalar, parse_tree
from spec_toolkit.recipe.words import render

Setting = str | int | float | bool | Enum | Sequence["Setting"] | None
Plain = str | int | float | bool | list["Plain"] | dict[str, "Plain"] | None

_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_COLON = re.compile(r"[ \t]*:")
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def set_values(text: str, values: Mapping[str, Setting], where: str = "recipe") -> str:
    """`values` by key path, "target.revision" or "engine.extra_args[0].value"; a key that is missing is put where the schema has it.

    RecipeError where the text is no recipe's, or is written in a way that only a person can edit.
    """
    for path, value in values.items():
        before = _read(text, where)
        edit = _Edit(text=text, parts=_parts(path), value=value, where=where)
        text = _set(edit)
        if _read(text, where) != _intended(before, edit.parts, _plain_of(value)):
            raise edit.by_hand()
    return text


def _read(text: str, where: str) -> Plain:
    root, findings = parse_tree(text, where)
    if findings:
        raise RecipeError(*findings)
    return _plain(root)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    text: str
    parts: Sequence[str | int]  # the path
    value: Setting
    where: str

    def by_hand(self) -> RecipeError:
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.parts).removeprefix(".")
        return RecipeError.of(
            "recipe.edit",
            self.where,
            f"{printable(path)} cannot be written into this text without changing what else it says",
            remedy="Write it by hand.",
        )


def _set(edit: _Edit) -> str:
    node = yaml.compose(edit.text, Loader=CSafeLoader)
    assert node is not None  # noqa: S101 - `_read` refuses an empty text
    key: yaml.Node | None = None
    for depth, part in enumerate(edit.parts):
        inner = _child(node, part)
        if inner is None:
            return _insert(edit, node, depth)
        key, node = inner
    return _replace(edit, key, node)


def _child(node: yaml.Node, part: str | int) -> tuple[yaml.Node | None, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode) and isinstance(part, str):
        return next(((key, value) for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return None, node.value[part]
    return None


def _replace(edit: _Edit, key: yaml.Node | None, node: yaml.Node) -> str:
    text, value = edit.text, edit.value
    start, end = node.start_mark.index, _end(text, node)
    if isinstance(node, yaml.ScalarNode):
        space = " " if start == end else ""  # nothing stands behind the colon
        return f"{text[:start]}{space}{render(value, style=node.style)}{text[end:]}"
    if isinstance(node, yaml.CollectionNode) and node.flow_style:
        return text[:start] + render(value) + text[end:]
    colon = _COLON.match(text, key.end_mark.index) if key else None
    first, behind = _line_start(text, start), _line_end(text, end)
    if colon is None or first < colon.end():  # the item of a list, or a list that begins in its key's line
        raise edit.by_hand()
    kept = "".join(line for line in text[first:behind].splitlines(keepends=True) if line.lstrip().startswith("#"))
    return f"{text[: colon.end()]} {render(value)}{text[colon.end() : first]}{kept}{text[behind:]}"


def _insert(edit: _Edit, node: yaml.Node, depth: int) -> str:
    """Puts a missing key into the mapping, behind the one that comes before it in the schema."""
    text, missing = edit.text, edit.parts[depth:]
    if not isinstance(node, yaml.MappingNode) or not all(isinstance(part, str) for part in missing):
        raise edit.by_hand()
    before = _before(node, str(missing[0]), [part for part in edit.parts[:depth] if isinstance(part, str)])
    keys = [render(part) for part in missing]
    if node.flow_style:
        inner = "".join(f"{key}: {{" for key in keys[:-1]) + f"{keys[-1]}: {render(edit.value)}" + "}" * (len(keys) - 1)
        place = node.start_mark.index + 1 if before is None else _end(text, before)
        return f"{text[:place]}{', ' if before else ''}{inner}{text[place:]}"
    newline = _newline(text)
    lines = [f"{' ' * (node.start_mark.column + 2 * level)}{key}:" for level, key in enumerate(keys)]
    lines[-1] += f" {render(edit.value)}"
    place = _line_end(text, _end(text, before) if before else node.end_mark.index)
    gap = newline if len(keys) > 1 and node.start_mark.column == 0 and _is_spaced(text) else ""  # groups stand apart
    head = text[:place] if _BREAK.match(text, place - 1) else text[:place] + newline
    return f"{head}{gap}{newline.join(lines)}{newline}{text[place:]}"


def _before(node: yaml.MappingNode, key: str, above: Sequence[str]) -> yaml.Node | None:
    """The value behind which a key belongs: of the last one written that the schema has before it, or else of the last one."""
    order = _order(above)
    written: dict[str, yaml.Node] = {name.value: value for name, value in node.value}
    if key in order:
        earlier = [name for name in order[: order.index(key)] if name in written]
        if earlier:
            return written[earlier[-1]]
    return list(written.values())[-1] if written else None


def _order(above: Sequence[str]) -> list[str]:
    """The schema's keys of the group with this path; none where the schema has no such group."""
    kind: inspect.Type = inspect.type_info(Recipe)
    for part in above:
        fields = kind.fields if isinstance(kind, inspect.StructType) else ()
        kind = next((one.type for one in fields if one.encode_name == part), inspect.AnyType())
        if isinstance(kind, inspect.VarTupleType):
            kind = kind.item_type
    return [one.encode_name for one in kind.fields] if isinstance(kind, inspect.StructType) else []


def _end(text: str, node: yaml.Node) -> int:
    """Where a node's last character is behind; the parser counts the blanks and comments behind a block as the block's."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(node, yaml.MappingNode) else last)
    end: int = node.end_mark.index
    if isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
        start: int = node.start_mark.index
        return start + len(text[start:end].rstrip())
    return end


def _line_start(text: str, place: int) -> int:
    breaks = [match.end() for match in _BREAK.finditer(text, 0, place)]
    return breaks[-1] if breaks else 0


def _line_end(text: str, place: int) -> int:
    """Behind the line break of the line that a place is in."""
    found = _BREAK.search(text, place)
    return found.end() if found else len(text)


def _newline(text: str) -> str:
    found = _BREAK.search(text)
    return found.group() if found else "\n"


def _is_spaced(text: str) -> bool:
    """Whether blank lines keep the groups of a recipe apart."""
    return any(not line.strip() for line in text.splitlines())


def _parts(path: str) -> list[str | int]:
    return [name or int(number) for name, number in _PART.findall(path)]


def _intended(data: Plain, parts: Sequence[str | int], value: Plain) -> Plain:
    if not parts:
        return value
    head, rest = parts[0], parts[1:]
    if isinstance(head, int):
        items = list(data) if isinstance(data, list) else []
        return [_intended(item, rest, value) if number == head else item for number, item in enumerate(items)]
    group = data if isinstance(data, dict) else {}
    return {**group, head: _intended(group.get(head), rest, value)}


def _plain(node: Node) -> Plain:
    match node:
        case Group():
            return {key: _plain(value) for key, value in node.values.items()}
        case Items():
            return [_plain(item) for item in node.items]
        case Scalar():
            return node.value
        case _:
            return None


def _plain_of(value: Setting) -> Plain:
    if isinstance(value, Enum):
        return _plain_of(value.value)
    if isinstance(value, str | int | float | bool | None):
        return value
    return [_plain_of(item) for item in value]
