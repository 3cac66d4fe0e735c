"""Writes spec_toolkit/engine/command_line/flags.json from the parser of the installed engine: `python tests/engine/command_line/write_flags.py`.

Prints the text instead with `-`. Importing the engine takes ten seconds; where it has no GPU, the rehearsal's stand-ins take the place of
what it imports for one.
"""

# ruff: noqa: T201 - a command that prints what it found

import argparse
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "spec_toolkit/engine/command_line/flags.json"

KINDS = {
    "str": "text",
    "int": "int",
    "float": "float",
    "human_readable_int": "size",
    "loads": "json",
    "json_list_type": "json",
    "nullable_str": "text",
    "parse_cuda_graph_backend_arg": "text",
    "parse_cuda_graph_config_arg": "json",
}
TAKES = {None: "one", 0: "none", "+": "many", "*": "any", "?": "maybe"}
SWITCHES = {"_StoreTrueAction", "DeprecatedStoreTrueAction", "BooleanOptionalAction"}
VALUED = {"_StoreAction", "LoRAPathAction", "DeprecatedStoreConstAction", "_HelpAction"}


def row(action: argparse.Action) -> dict[str, object]:
    """One flag; what is as usual is left out."""
    action_kind, kind = type(action).__name__, getattr(action.type, "__name__", "str")
    if action_kind not in SWITCHES | VALUED or (action.type and kind not in KINDS):
        raise SystemExit(
            f"{action.option_strings}: an action or a type ({action_kind}, {kind}) that the table has no word for"
        )
    flag: dict[str, object] = {"names": action.option_strings, "dest": action.dest, "takes": TAKES[action.nargs]}
    if action_kind == "BooleanOptionalAction":
        flag["negatable"] = True
    if KINDS[kind] != "text":
        flag["type"] = KINDS[kind]
    if action.choices is not None:
        removed = {"tc_piecewise"} if kind == "parse_cuda_graph_backend_arg" else set()
        flag["choices"] = [choice for choice in map(str, action.choices) if choice not in removed]
        if isinstance(action.choices, set):
            flag["choices"] = sorted(flag["choices"])
    if getattr(action, "const_value", None) is not None:
        flag["stores"] = action.const_value
    if isinstance(action.nargs, str) and action.nargs == "?":
        flag["stores"] = action.const
    said = re.search(r"^\(Deprecated: use ([^)]+)\)", action.help or "")
    if instead := getattr(action, "new_flag", None) or (said and said[1]):
        flag["instead"] = instead
    # The engine's own merger of --config takes switches, and flags of one value or stored as they come.
    if not (action_kind in {"_StoreTrueAction", "_StoreAction"} or action.nargs is None):
        flag["in_config"] = False
    return flag


def render() -> str:
    if importlib.util.find_spec("triton") is None:
        sys.path.insert(0, str(ROOT / "spec_toolkit/rehearsal/path"))
        os.environ |= {"SGLANG_USE_CPU_ENGINE": "1", "TORCHDYNAMO_DISABLE": "1"}
    from sglang.srt.server_args import ServerArgs
    from sglang.version import __version__

    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    rows = [json.dumps(row(action)) for action in parser._actions]
    return f'{{"sglang": "{__version__}", "flags": [\n' + ",\n".join(rows) + "\n]}\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        print(render(), end="")
    else:
        TABLE.write_text(render(), encoding="utf-8")
