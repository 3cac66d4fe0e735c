"""Reads a patch.yaml. A patch is written by one of us and reviewed, so reading is strict: every complaint has `file:line`.

Touches the disk; what it returns is plain.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import yaml

from spec_toolkit.errors import EngineError, Finding, Verdict
from spec_toolkit.handover import HookType, Role

_PLACE = re.compile(r" - at `(?P<path>\$.*)`$")
_UNKNOWN = re.compile(r"unknown field `(?P<key>[^`]*)`")


class AppliesTo(Enum):
    """Which launches a patch belongs to."""

    EVERY_DEPLOYMENT = "every deployment"
    REHEARSAL = "rehearsal"  # the CPU engine only
    ON_REQUEST = "on request"  # recipes that name it


class Standing(Enum):
    """What is known of a patch under a feature of the engine. The label is shown wherever patches are."""

    NOT_TOUCHED = "not touched"
    PROVEN_ON_CPU = "proven on CPU"
    PROVEN_ON_GPU = "proven on GPU"
    UNPROVEN_ON_GPU = "unproven on GPU"


class Family(Enum):
    DEEPSEEK = "deepseek"
    GLM5 = "glm5"
    GEMMA4 = "gemma4"


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Holder(_Strict, frozen=True, kw_only=True):
    """Something of the engine's that keeps the unhooked function and does no harm."""

    holder: str  # as the plugin names it: a module global, a class, a default argument
    why: str


class Target(_Strict, frozen=True, kw_only=True):
    target: str  # dotted, from the engine's top package down
    fingerprint: str  # of the source this was written against, see spec_toolkit.fingerprint
    hook: str  # function in the folder's hooks.py
    type: HookType
    roles: tuple[Role, ...]
    may_keep: tuple[Holder, ...] = ()


class Relied(_Strict, frozen=True, kw_only=True):
    """A definition of the engine's that the hooks lean on without hooking it."""

    target: str  # dotted, as a target's
    fingerprint: str
    why: str  # what the hooks take for granted of it


class Behaviour(_Strict, frozen=True, kw_only=True):
    standing: Standing
    note: str = ""


class Behaviours(_Strict, frozen=True, kw_only=True):
    overlap: Behaviour
    graphs: Behaviour


class PatchFile(_Strict, frozen=True, kw_only=True):
    """The keys of a patch.yaml."""

    id: str
    reason: str
    upstream: tuple[str, ...]  # links to the issue or pull request; empty where none was found
    applies_to: AppliesTo
    families: tuple[Family, ...]
    behaviour: Behaviours
    drop_when: str
    targets: tuple[Target, ...]
    relies_on: tuple[Relied, ...] = ()


def read_patch_file(path: Path) -> PatchFile:
    """EngineError with one finding per problem."""
    try:
        # libyaml's: eight files took Python's own parser a quarter of a second, and every `plan` reads them.
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        content = yaml.CSafeLoader("").construct_document(root) if root else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise EngineError(_bad(path, _first_line(error))) from None
    if root is None or content is None:
        raise EngineError(_bad(path, "is empty", remedy="Write the patch's keys or remove the folder."))
    lines: dict[str, int] = {}
    twice = list(_index(root, "$", lines))
    if twice:
        raise EngineError(*(_bad(f"{path}:{line}", f"key '{key}' is written twice") for key, line in twice))
    try:
        return msgspec.convert(content, PatchFile)
    except msgspec.ValidationError as error:
        raise EngineError(_explain(path, str(error), lines)) from None


def _index(node: yaml.Node, path: str, lines: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Fill in the line of each path, spelled as msgspec spells it, and yield each key that stands twice."""
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in seen:
                yield key.value, line
            seen.add(key.value)
            lines[f"{path}.{key.value}"] = line
            yield from _index(value, f"{path}.{key.value}", lines)
    elif isinstance(node, yaml.SequenceNode):
        for place, item in enumerate(node.value):
            yield from _index(item, f"{path}[{place}]", lines)


def _explain(path: Path, message: str, lines: dict[str, int]) -> Finding:
    """The decoder's sentence with the line it means, and the key that was probably meant."""
    place = _PLACE.search(message)
    where = place["path"] if place else "$"
    found = _PLACE.sub("", message)
    remedy = ""
    if unknown := _UNKNOWN.search(found):
        where = f"{where}.{unknown['key']}"
        near = get_close_matches(unknown["key"], _known_keys(), n=1)
        remedy = f"Did you mean '{near[0]}'?" if near else ""
    return _bad(f"{path}:{lines.get(where, 1)}", f"{found[0].lower()}{found[1:]}", remedy=remedy)


def _known_keys() -> list[str]:
    records: tuple[type[_Strict], ...] = (PatchFile, Target, Holder, Relied, Behaviours, Behaviour)
    return [name for record in records for name in record.__struct_fields__]


def _first_line(error: Exception) -> str:
    mark: Any = getattr(error, "problem_mark", None)
    line = f", line {mark.line + 1}" if mark else ""
    problem = getattr(error, "problem", None) or getattr(error, "strerror", None) or str(error)
    return f"cannot be read{line}: {str(problem).splitlines()[0]}"


def _bad(where: Path | str, found: str, *, remedy: str = "") -> Finding:
    return Finding(
        rule="patches.file",
        verdict=Verdict.REFUSE,
        where=str(where),
        found=found,
        why="a patch that is not understood is not applied",
        remedy=remedy or "Correct the file.",
    )
