"""What crosses between the launcher and the engine's processes about patches: the list going in, one report per process coming back.

Pure: records and their JSON. It stands in the lowest layer because the writer (`engine.patches`) and the reader (`plugin`) may not
import each other; the standard library is enough, since the plugin must carry nothing into the engine.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

LIST_VARIABLE = "SPEC_TOOLKIT_PATCHES"  # environment: path of the list; unset means that the plugin does nothing
RANKS_AFTER_FAULT_VARIABLE = "SPEC_TOOLKIT_RANKS_AFTER_DRAFT_FAULT"  # environment: a terms.RanksAfterFault; unset: vote
ENDED_BY_PATCHES = 78  # exit status of an engine process that would have run half-patched (EX_CONFIG of sysexits.h)
PLUGIN_NAME = "spec_toolkit"  # our entry point, as the engine's plugin whitelist spells it
RANKS = ("dp", "pp", "tp")  # the order they have in a process' name


class Role(Enum):
    """Kinds of engine process that load plugins."""

    LAUNCHER = "launcher"  # argument resolution, HTTP server and tokenizer manager: one process
    SCHEDULER = "scheduler"  # one per rank
    DETOKENIZER = "detokenizer"
    DP_CONTROLLER = "dp_controller"  # only where there is more than one data-parallel rank


class HookType(Enum):
    """How a hook meets its target; the engine's own words."""

    AROUND = "around"  # hook(original, *args, **kwargs) -> result
    BEFORE = "before"  # hook(*args, **kwargs) -> (args, kwargs) or None
    AFTER = "after"  # hook(result, *args, **kwargs) -> result or None
    REPLACE = "replace"  # hook(*args, **kwargs) -> result


@dataclass(frozen=True, slots=True, kw_only=True)
class Relied:
    """A definition of the engine's that hooks lean on without hooking it."""

    target: str  # dotted, as a hook's
    fingerprint: str  # SHA-256 of the source the hooks were written for


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedHook:
    """One hook on one target, resolved: nothing is left to be looked up inside the engine."""

    patch: str  # id of the patch it belongs to
    target: str  # dotted, from the engine's top package down
    fingerprint: str  # SHA-256 of the source it was written against
    file: str  # absolute path of hooks.py
    file_sha256: str
    function: str  # name in that file
    type: HookType
    roles: tuple[Role, ...]
    may_keep: tuple[str, ...] = ()  # holders known to keep the unhooked function without calling it
    relies_on: tuple[Relied, ...] = ()  # the whole patch's


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One engine process saying which hooks it runs; written after every one was seen in place."""

    role: Role
    ranks: dict[str, int]  # of RANKS, those the process has
    pid: int
    list_sha256: str  # of the list's bytes
    applied: tuple[str, ...]  # targets hooked for this role
    inherited: tuple[
        str, ...
    ] = ()  # targets of other roles that are hooked too, because this process was forked from one

    def name(self) -> str:
        """`scheduler-pp0-tp1`: what the process is, without its pid."""
        return process_name(self.role, self.ranks)


def process_name(role: Role, ranks: dict[str, int]) -> str:
    return "-".join([role.value, *(f"{rank}{ranks[rank]}" for rank in RANKS if rank in ranks)])


def report_folder(patch_list: Path) -> Path:
    return patch_list.with_name(f"{patch_list.name}.d")


def list_sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def encode_list(hooks: tuple[HandedHook, ...]) -> bytes:
    return json.dumps([asdict(hook) for hook in hooks], default=_enum_value, indent=1).encode()


def decode_list(content: bytes) -> tuple[HandedHook, ...]:
    """Raises ValueError, KeyError or TypeError where the bytes are not a list that `encode_list` wrote."""
    items = json.loads(content)
    if not isinstance(items, list):
        raise TypeError(f"a patch list is a list, not {type(items).__name__}")
    return tuple(_handed_hook(item) for item in items)


def encode_report(report: Report) -> bytes:
    return json.dumps(asdict(report), default=_enum_value).encode()


def decode_report(content: bytes) -> Report:
    """Raises ValueError, KeyError or TypeError where the bytes are not a report."""
    item = json.loads(content)
    return Report(
        **{
            **item,
            "role": Role(item["role"]),
            "applied": tuple(item["applied"]),
            "inherited": tuple(item["inherited"]),
        }
    )


def _handed_hook(item: dict[str, Any]) -> HandedHook:
    return HandedHook(
        **{
            **item,
            "type": HookType(item["type"]),
            "roles": tuple(Role(role) for role in item["roles"]),
            "may_keep": tuple(item["may_keep"]),
            "relies_on": tuple(Relied(**relied) for relied in item["relies_on"]),
        }
    )


def _enum_value(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} does not travel in a patch list")
