"""Every flag of the engine: names, arity, type, choices. Read from flags.json, which tests/engine/command_line/write_flags.py takes from the
engine's own parser.
"""

import functools
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

_FILE = Path(__file__).with_name("flags.json")


class FlagRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: tuple[str, ...]  # the first is the engine's own spelling
    dest: str  # where the parser puts the value: a field of the engine's arguments
    takes: str  # none, one, many (one or more), any, maybe (none or one)
    type: str = "text"  # int, float, size (an integer, or 25.6k, 1Ki), json
    choices: tuple[str, ...] = ()  # empty: anything
    negatable: bool = False  # the second name says no
    stores: str | bool | None = None  # what is meant where no value is given, or whatever the value
    instead: str = ""  # still taken, with a warning that this is its successor
    in_config: bool = True  # a file of --config may hold it

    def name_for(self, written: str) -> str:
        """The engine's own spelling of a name, which for `--no-…` is another one."""
        return written if self.negatable else next((name for name in self.names if name.startswith("--")), written)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    sglang: str
    flags: tuple[FlagRow, ...]


class FlagTable(Struct, frozen=True, kw_only=True):
    version: str  # of the engine it was read from
    by_name: Mapping[str, FlagRow]
    in_order: tuple[str, ...]  # the names, sorted

    def beginning_with(self, prefix: str) -> tuple[str, ...]:
        start = bisect_left(self.in_order, prefix)
        return self.in_order[start : bisect_left(self.in_order, prefix + "\uffff", start)]


@functools.cache
def flag_table() -> FlagTable:
    file = msgspec.json.decode(_FILE.read_bytes(), type=_File)
    by_name = {name: row for row in file.flags for name in row.names}
    return FlagTable(version=file.sglang, by_name=by_name, in_order=tuple(sorted(by_name)))
