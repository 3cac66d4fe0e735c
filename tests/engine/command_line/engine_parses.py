"""Parses lines as the installed engine's launcher does: JSON lists of words on standard input, one a line; what it makes of each comes out.

A process of its own, for importing the engine takes ten seconds and stand-ins where there is no GPU.
"""

# ruff: noqa: T201 - a command that prints what it found

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class Refusing(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise ValueError(message)


def main() -> None:
    if importlib.util.find_spec("triton") is None:
        sys.path.insert(0, str(ROOT / "spec_toolkit/rehearsal/path"))
        os.environ |= {"SGLANG_USE_CPU_ENGINE": "1", "TORCHDYNAMO_DISABLE": "1"}
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

    parser = Refusing(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    for action in parser._actions:
        action.default = argparse.SUPPRESS  # so that what is found was written
    for line in sys.stdin:
        words = json.loads(line)
        try:
            merged = ConfigArgumentMerger(parser).merge_config_with_args(words) if "--config" in words else words
            print(json.dumps({"values": vars(parser.parse_args(merged))}))
        except Exception as error:  # noqa: BLE001 - the engine would end with it
            print(json.dumps({"refused": f"{type(error).__name__}: {error}"}))


if __name__ == "__main__":
    main()
