"""Where the data folders of this project lie: at the top of a checkout, inside the package once installed."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(folder: str) -> Path:
    """The absolute path of `recipes`, `patches` or `runbooks`."""
    installed = _PACKAGE / "_shipped" / folder
    return installed if installed.is_dir() else _PACKAGE.parent / folder


def rehearsal() -> Path:
    """The CPU engine's folder. It is reached by path only: importing it raises, and no parent of it is ever on a path."""
    return _PACKAGE / "rehearsal"
