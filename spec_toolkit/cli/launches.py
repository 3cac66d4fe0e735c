"""Reads the launch command or the manifest that a verb is given."""

import sys
from collections.abc import Callable
from pathlib import Path

from spec_toolkit.errors import RecipeError
from spec_toolkit.recipe.command import CommandLaunch, read_commands
from spec_toolkit.recipe.documents import LARGEST_BYTES
from spec_toolkit.recipe.manifest import PodLaunch
from spec_toolkit.recipe.pods import read_manifest
from spec_toolkit.recipe.source import printable, read_source

_STDIN = "-"


def of_command(pasted: str, opened: Callable[[str], None] = lambda _: None) -> tuple[CommandLaunch, ...]:
    """`opened` hears the name of each file that the command has read."""
    text = _stdin().decode("utf-8", "replace") if pasted == _STDIN else pasted

    def open_file(name: str) -> bytes:
        opened(name)
        return _read(_of_home(name))

    return read_commands(text, open_file=open_file)


def of_manifest(manifest: str) -> tuple[PodLaunch, ...]:
    if manifest == _STDIN:
        return read_manifest(_stdin(), "stdin")
    return read_manifest(_read(Path(manifest)), manifest)


def _stdin() -> bytes:
    """One byte more than may be read, so that what is too large is seen to be."""
    return sys.stdin.buffer.read(LARGEST_BYTES + 1)


def _of_home(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:
        where, found = printable(name), "is in the home of a user whom this machine does not have"
        raise RecipeError.of("recipe.file", where, found, remedy="Write the path out.") from None


def _read(path: Path) -> bytes:
    return read_source(path, largest=LARGEST_BYTES, why="")
