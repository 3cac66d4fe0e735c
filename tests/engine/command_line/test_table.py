import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.engine.command_line.table import flag_table
from spec_toolkit.engine.flags import Flag
from spec_toolkit.facts.known import load_tables

WRITER = Path(__file__).with_name("write_flags.py")
TABLE = Path(__file__).resolve().parents[3] / "spec_toolkit/engine/command_line/flags.json"
KINDS = {"text": "str", "json": "str", "int": "int", "size": "int", "float": "float"}


@pytest.mark.engine
def test_the_table_is_what_the_installed_engines_parser_says():
    written = subprocess.run([sys.executable, WRITER, "-"], capture_output=True, text=True, check=True)
    assert written.stdout == TABLE.read_text()


def test_the_table_is_of_the_pinned_engine():
    assert flag_table().version == load_tables().engine.version


def test_every_flag_a_launch_is_given_is_in_the_table():
    assert {flag.value for flag in Flag} <= set(flag_table().by_name)


@pytest.mark.parametrize(
    "field", [f for f in msgspec.structs.fields(Arguments) if f.name != "others"], ids=lambda f: f.name
)
def test_every_argument_is_a_destination_of_the_parser_and_of_its_type(field):
    row = next(row for row in flag_table().by_name.values() if row.dest == field.name)
    kind = "bool" if row.takes == "none" else KINDS[row.type]
    wanted = f"tuple[{kind}, ...] | None" if row.takes in {"many", "any"} else f"{kind} | None"
    assert str(field.type).replace("<class '", "").replace("'>", "") == wanted
