"""Reads the launch command or the manifest that a verb is given."""

import sys
from collections.abc import Callable
from pathlib import Path

from spec_toolkit.recipe.command import CommandLaunch, read_commands
from spec_toolkit.recipe.documents import LARGEST_BYTES
from spec_toolkit.recipe.manifest import PodLaunch
from spec_toolkit.recipe.pods import read_manifest
from spec_toolkit.recipe.source import read_source

_STDIN = "-"


def of_command(pasted: str, opened: Callable[[str], None] = lambda _: None) -> tuple[CommandLaunch, ...]:
    """`opened` hears the name of each file that the command has read."""
    text = _stdin().decode("utf-8", "replace") if pasted == _STDIN else pasted

    def open_file(name: str) -> bytes:
        opened(name)
        return _read(Path(name).expanduser())

    return read_commands(text, open_file=open_file)


def of_manifest(manifest: str) -> tuple[PodLaunch, ...]:
    if manifest == _STDIN:
        return read_manifest(_stdin(), "stdin")
    return read_manifest(_read(Path(manifest)), manifest)


def _stdin() -> bytes:
    """One byte more than may be read, so that what is too large is seen to be."""
    return sys.stdin.buffer.read(LARGEST_BYTES + 1)


def _read(path: Path) -> bytes:
    return read_source(path, largest=LARGEST_BYTES, why="")
