"""A recipe's text as a tree in which every key and value knows its line. Pure.

The tree is built from the parser's events, one after the other, so that no depth of nesting can exhaust the stack. What recipes do
without is refused: aliases (a few lines of them make a gigabyte), tags, a second document. Plain words are read as YAML 1.1 reads
them, since editors and other tools do; but a word that only YAML takes for a truth, a date or a number is kept as a surprise, which
fits no key: nobody who writes `no`, `1:30` or `017` means what YAML makes of it.
"""

import math
import re
from dataclasses import dataclass, field

import yaml

from spec_toolkit.errors import Finding, RecipeError, Verdict
from spec_toolkit.recipe.source import printable

try:
    from yaml import CSafeLoader
except ImportError as error:  # the pure-Python parser takes five times as long
    raise ImportError(
        "PyYAML has no libyaml here. Install its wheel, or libyaml's headers before building it."
    ) from error

_DEEPEST = 8  # a recipe is at most five deep: engine, extra_args, an entry, its key, its value
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")  # 18 digits: more is no count of anything
_REAL = re.compile(r"[-+]?[0-9]{1,30}\.[0-9]{0,30}([eE][-+][0-9]{1,3})?")
_READ_AS = {
    "bool": "a truth value",
    "int": "a number",
    "float": "a number",
    "timestamp": "a date",
    "merge": "a merge",
    "value": "a default",
}

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One value and what it is in words; `surprise` where YAML reads it as something nobody means."""

    line: int
    raw: str
    value: Value
    kind: str
    surprise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    line: int
    items: list["Node"] = field(default_factory=list)
    kind: str = "a list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Keys with their values; a key's own line stands in `lines`."""

    line: int
    values: dict[str, "Node"] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    kind: str = "a group of keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Something already complained of; whoever meets it says nothing more."""

    line: int
    kind: str = "refused"


Node = Scalar | Items | Group | Refused


def parse_tree(text: str, where: str) -> tuple[Group, list[Finding]]:
    """The tree and what is wrong with its form; RecipeError where there is no tree to go on with."""
    builder = _Builder(where)
    try:
        for event in yaml.parse(text, Loader=CSafeLoader):
            builder.take(event)
    except yaml.YAMLError as error:
        raise RecipeError(*builder.findings, _not_yaml(error, text, where)) from None
    root = builder.root
    if root is None or (isinstance(root, Scalar) and root.value is None):
        raise RecipeError(builder.refusal("recipe.file", 1, "is empty", "A recipe begins with 'summary:'."))
    if not isinstance(root, Group):
        found = f"the whole file is {root.kind}; a group of keys (summary, target, draft, ...) is needed"
        raise RecipeError(*builder.findings, builder.refusal("recipe.kind", root.line, found, ""))
    return root, builder.findings


@dataclass(slots=True)
class _Open:
    """A group or list whose end has not come yet."""

    node: Group | Items
    expects_key: bool
    key: str | None = None  # None: the key was refused, and its value goes with it


class _Builder:
    """Takes the parser's events one by one."""

    def __init__(self, where: str) -> None:
        self.root: Node | None = None
        self.findings: list[Finding] = []
        self._where = where
        self._open: list[_Open] = []
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    remedy = "One file is one recipe: put it into a file of its own."
                    raise RecipeError(
                        *self.findings, self.refusal("recipe.documents", line, "a second document starts", remedy)
                    )
            case yaml.AliasEvent():
                self._complain(
                    "recipe.alias", line, f"refers to '*{printable(event.anchor or '', 40)}'", "Write the value out."
                )
                self._place(Refused(line=line))
            case yaml.ScalarEvent():
                self._place(Refused(line=line) if self._is_marked(event, line) else _scalar(event, line))
            case yaml.CollectionStartEvent():
                self._is_marked(event, line)
                self._begin(Group(line=line) if isinstance(event, yaml.MappingStartEvent) else Items(line=line))
            case yaml.CollectionEndEvent():
                self._open.pop()
            case _:
                pass  # stream and document ends say nothing

    def refusal(self, rule: str, line: int, found: str, remedy: str) -> Finding:
        return Finding(rule=rule, verdict=Verdict.REFUSE, where=f"{self._where}:{line}", found=found, remedy=remedy)

    def _complain(self, rule: str, line: int, found: str, remedy: str) -> None:
        self.findings.append(self.refusal(rule, line, found, remedy))

    def _is_marked(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, line: int) -> bool:
        """Complains of an anchor or a tag; tells whether the tag takes the value's meaning away."""
        if event.anchor:
            self._complain(
                "recipe.alias",
                line,
                f"sets the anchor '&{printable(event.anchor, 40)}'",
                "Recipes have none: delete it.",
            )
        tag = event.tag
        if tag:
            self._complain(
                "recipe.tag", line, f"carries the tag '{printable(tag, 60)}'", "Recipes have none: delete it."
            )
        return bool(tag)

    def _begin(self, node: Group | Items) -> None:
        self._place(node)
        if len(self._open) == _DEEPEST:
            raise RecipeError(
                *self.findings,
                self.refusal("recipe.depth", node.line, f"is nested more than {_DEEPEST} deep", "Recipes are flat."),
            )
        self._open.append(_Open(node, expects_key=isinstance(node, Group)))

    def _place(self, node: Node) -> None:
        if not self._open:
            self.root = node
            return
        top = self._open[-1]
        if isinstance(top.node, Items):
            top.node.items.append(node)
        elif top.expects_key:
            top.key = self._take_key(top.node, node)
            top.expects_key = False
        else:
            if top.key is not None:
                top.node.values[top.key] = node
            top.expects_key = True

    def _take_key(self, group: Group, node: Node) -> str | None:
        if not isinstance(node, Scalar):
            if not isinstance(node, Refused):
                self._complain("recipe.kind", node.line, f"a key is {node.kind}; a word is needed", "")
            return None
        if node.raw in group.lines:
            remedy = f"It stands in line {group.lines[node.raw]} already; keep one."
            self._complain(
                "recipe.duplicate-key", node.line, f"the key '{printable(node.raw, 60)}' is written twice", remedy
            )
            return None
        group.lines[node.raw] = node.line
        return node.raw


def _scalar(event: yaml.ScalarEvent, line: int) -> Scalar:
    raw = event.value
    is_plain = event.implicit[0]
    tag = tag_of(raw) if is_plain else "str"
    shown = printable(raw, 60)
    value: Value = raw
    if tag == "str":
        return Scalar(line=line, raw=raw, value=raw, kind=f"the text '{shown}'" if raw else "an empty text")
    if tag == "null":
        return Scalar(line=line, raw=raw, value=None, kind="nothing" if not raw else f"'{shown}' (nothing)")
    if tag == "bool" and raw.lower() in {"true", "false"}:
        return Scalar(line=line, raw=raw, value=raw.lower() == "true", kind=raw.lower())
    if tag == "int" and _DECIMAL.fullmatch(raw):
        return Scalar(line=line, raw=raw, value=int(raw), kind=raw)
    if tag == "float" and _REAL.fullmatch(raw) and math.isfinite(value := float(raw)):
        return Scalar(line=line, raw=raw, value=value, kind=raw)
    return Scalar(line=line, raw=raw, value=raw, kind=_surprise(tag, raw, shown), surprise=True)


def _surprise(tag: str, raw: str, shown: str) -> str:
    if tag == "int" and raw.lstrip("+-").isdigit() and not raw.lstrip("+-").startswith("0"):
        return f"a number of {len(raw.lstrip('+-'))} digits"
    if tag == "float" and (raw.lower().lstrip("+-") in {".inf", ".nan"} or _REAL.fullmatch(raw)):
        return f"'{shown}', which is no finite number"
    return f"'{shown}', which YAML reads as {_READ_AS.get(tag, tag)}"


def tag_of(plain: str) -> str:
    """How YAML 1.1 reads a word without quotes: str, null, bool, int, float, timestamp, merge or value."""
    resolvers = CSafeLoader.yaml_implicit_resolvers.get(plain[:1], ())
    return next((tag.rpartition(":")[2] for tag, pattern in resolvers if pattern.match(plain)), "str")


def _not_yaml(error: yaml.YAMLError, text: str, where: str) -> Finding:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = mark.line + 1 if mark else 1
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    context = getattr(error, "context", None)
    lines = text.split("\n")
    is_tab = 0 < line <= len(lines) and "\t" in lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]
    return Finding(
        rule="recipe.syntax",
        verdict=Verdict.REFUSE,
        where=f"{where}:{line}",
        found=f"is not YAML: {printable(problem)}",
        why=printable(context) if context else "",
        remedy="Indent with spaces, not tabs." if is_tab else "",
    )
