"""Any YAML file as documents of values that know their line: manifests, config files. Pure.

Unlike a recipe's tree it takes what such files hold: several documents, anchors, merges, tags (which are passed over). Built from the
parser's events, so that no nesting can exhaust the stack; a shared part is one node, and what a text would grow to with every reference
written out is counted while it is built and refused before it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml
from yaml import CSafeLoader

from spec_toolkit.engine.command_line.words import visible
from spec_toolkit.errors import RecipeError
from spec_toolkit.recipe.source import decode_source, printable
from spec_toolkit.recipe.tree import tag_of

LARGEST_BYTES = 256 * 1024
_DEEPEST = 60
_MOST_DOCUMENTS = 1000
_MOST_NODES = 60_000  # with every reference written out

Plain = str | int | float | bool | list["Plain"] | dict[str, "Plain"] | None
_TRUE = {"yes", "true", "on", "y"}


@dataclass(slots=True)
class Node:
    """A scalar (`raw` and what it is read as), a list or a group of keys."""

    line: int
    scalar: str | int | float | bool | None = None
    raw: str = ""
    items: list["Node"] | None = None
    keys: dict[str, "Node"] | None = None
    lines: dict[str, int] = field(default_factory=dict)  # of each key
    weight: int = 1  # nodes under it, references written out
    height: int = 1

    @property
    def value(self) -> Plain:
        if self.keys is not None:
            return {key: node.value for key, node in self.keys.items()}
        return self.scalar if self.items is None else [node.value for node in self.items]

    def get(self, *path: str) -> "Node | None":
        """The node under a path of keys; None where any of them is missing."""
        node: Node | None = self
        for key in path:
            node = node.keys.get(key) if node is not None and node.keys is not None else None
        return node

    def line_of(self, key: str) -> int:
        return self.lines.get(key, self.line)

    def text(self, *path: str) -> str | None:
        node = self.get(*path)
        if node is None or node.items is not None or node.keys is not None or node.scalar is None:
            return None
        return visible(node.raw)

    def number(self, *path: str) -> int | None:
        node = self.get(*path)
        if node is None or isinstance(node.scalar, bool):
            return None
        return node.scalar if isinstance(node.scalar, int) else None

    def truth(self, *path: str) -> bool:
        node = self.get(*path)
        return node is not None and node.scalar is True

    def each(self, *path: str) -> Iterator["Node"]:
        """The items of the list under a path; none where there is none."""
        node = self.get(*path)
        yield from node.items or () if node is not None else ()

    def pairs(self, *path: str) -> dict[str, str]:
        """Labels and the like: keys with a scalar each."""
        node = self.get(*path)
        keys = node.keys if node is not None and node.keys is not None else {}
        return {
            visible(key): visible(inner.raw)
            for key, inner in keys.items()
            if inner.items is None and inner.keys is None
        }


def read_documents(content: bytes, where: str) -> list[Node]:
    """RecipeError where it is no YAML, or a trap."""
    if len(content) > LARGEST_BYTES:
        raise RecipeError.of("manifest.size", where, f"is larger than {LARGEST_BYTES // 1024} KiB")
    text = decode_source(content, where)
    builder = _Builder(where)
    try:
        for event in yaml.parse(text, Loader=CSafeLoader):
            builder.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        remedy = "Render the template first (helm template, kustomize build)." if "{{" in text else ""
        at = f"{where}:{mark.line + 1}" if mark else where
        raise RecipeError.of("manifest.syntax", at, f"is not YAML: {printable(problem)}", remedy=remedy) from None
    return builder.documents


@dataclass(slots=True)
class _Open:
    node: Node
    key: str | None = None
    key_line: int = 0
    expects_key: bool = False
    anchor: str | None = None


class _Builder:
    def __init__(self, where: str) -> None:
        self.documents: list[Node] = []
        self._where = where
        self._open: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._unfinished: set[str] = set()

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        match event:
            case yaml.DocumentStartEvent():
                if len(self.documents) == _MOST_DOCUMENTS:
                    raise self._trap(line, f"holds more than {_MOST_DOCUMENTS:,} documents")
                self._anchors, self._unfinished = {}, set()
            case yaml.AliasEvent():
                self._place(self._referred(event.anchor or "", line), line)
            case yaml.ScalarEvent():
                node = Node(line, _scalar(event), event.value)
                self._remember(event.anchor, node)
                self._place(node, line)
            case yaml.MappingStartEvent():
                self._begin(Node(line, keys={}), event.anchor)
            case yaml.SequenceStartEvent():
                self._begin(Node(line, items=[]), event.anchor)
            case yaml.CollectionEndEvent():
                self._close()
            case _:
                pass

    def _begin(self, node: Node, anchor: str | None) -> None:
        if len(self._open) == _DEEPEST:
            raise self._trap(node.line, f"is nested more than {_DEEPEST} deep")
        if anchor:
            self._unfinished.add(anchor)
        self._open.append(_Open(node, expects_key=node.keys is not None, anchor=anchor))

    def _close(self) -> None:
        closed = self._open.pop()
        if closed.anchor:
            self._unfinished.discard(closed.anchor)
            self._remember(closed.anchor, closed.node)
        self._place(closed.node, closed.node.line)

    def _place(self, node: Node, line: int) -> None:
        if not self._open:
            self.documents.append(node)
            return
        top = self._open[-1]
        if top.expects_key:
            top.key, top.key_line, top.expects_key = node.raw, line, False
            return
        top.node.weight += node.weight
        if top.node.weight > _MOST_NODES:
            raise self._trap(line, f"grows to more than {_MOST_NODES:,} values with its references written out")
        top.node.height = max(top.node.height, node.height + 1)
        if top.node.height > _DEEPEST:
            raise self._trap(line, f"is nested more than {_DEEPEST} deep")
        if top.node.items is not None:
            top.node.items.append(node)
        elif top.node.keys is not None:
            _put(top.node, top.key or "", node, top.key_line)
            top.expects_key = True

    def _remember(self, anchor: str | None, node: Node) -> None:
        if anchor:
            self._anchors[anchor] = node

    def _referred(self, anchor: str, line: int) -> Node:
        node = self._anchors.get(anchor)
        if node is None or anchor in self._unfinished:
            raise self._trap(line, f"refers to '*{printable(anchor, 40)}', which stands for nothing finished")
        return node

    def _trap(self, line: int, found: str) -> RecipeError:
        return RecipeError.of("manifest.form", f"{self._where}:{line}", found)


def _put(group: Node, key: str, node: Node, line: int) -> None:
    keys = group.keys if group.keys is not None else {}
    if key != "<<":
        keys[key] = node
        group.lines[key] = line
        return
    for merged in [node] if node.items is None else node.items:
        for inner, value in (merged.keys or {}).items():
            if inner not in keys:
                keys[inner] = value
                group.lines[inner] = merged.line_of(inner)


def _scalar(event: yaml.ScalarEvent) -> str | int | float | bool | None:
    raw = event.value
    tag = tag_of(raw) if event.implicit[0] else "str"
    try:
        match tag:
            case "null":
                return None
            case "bool":
                return raw.lower() in _TRUE
            case "int":
                return int(raw.replace("_", ""), 0)
            case "float":
                return float(raw.replace("_", ""))
            case _:
                return raw
    except ValueError:  # 1:30, 017: a number to YAML alone
        return raw
