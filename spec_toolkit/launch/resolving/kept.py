"""Whole resolutions that need not be worked out again: a recipe's plan takes longer than reading what came of it. Touches the disk.

What is kept follows from the engine as installed, from all of our own code and tables, and from what was asked; one that follows from
other files of this machine too, such as a model's folder, is not kept.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from spec_toolkit.launch.resolving.cache import Cache, cache_folder, engine_identity
from spec_toolkit.launch.resolving.records import Resolution
from spec_toolkit.shipped import shipped

_PACKAGE = Path(__file__).parents[2]
_NOT_OURS = frozenset({"__pycache__", "models"})


class Wanted(Struct, frozen=True, kw_only=True):
    """A recipe, or a command and the machines it is for."""

    recipe: Path | None = None
    command: str | None = None
    gpu: str | None = None
    count: int | None = None  # GPUs of one node; None: as the command says
    nodes: int | None = None


def read_kept(wanted: Wanted) -> Resolution | None:
    key = _key(wanted)
    return Cache(cache_folder()).read_all(key) if key is not None else None


def keep(wanted: Wanted, resolution: Resolution) -> None:
    key = _key(wanted)
    if key is not None:
        Cache(cache_folder()).write_all(key, resolution)


def _key(wanted: Wanted) -> str | None:
    """None where there is no engine."""
    engine = engine_identity()
    if engine is None:
        return None
    words = [str(wanted.recipe), wanted.command, wanted.gpu, wanted.count, wanted.nodes, str(Path.cwd())]
    digest = hashlib.sha256(engine.encode() + msgspec.json.encode(words))
    beside = sorted(wanted.recipe.parent.glob("evidence/**/*.json")) if wanted.recipe else []
    for file in [wanted.recipe, *beside] if wanted.recipe else []:
        with suppress(OSError):
            digest.update(file.read_bytes())
    for folder in (_PACKAGE, shipped("patches")):
        for stamp in sorted(_stamps(folder)):
            digest.update(stamp.encode())
    return digest.hexdigest()


def _stamps(folder: Path) -> Iterator[str]:
    """Of every file below that is code or data of ours."""
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _stamps(Path(entry.path)) if entry.name not in _NOT_OURS else ()
        elif entry.name.endswith((".py", ".yaml", ".json")):
            status = entry.stat()
            yield f"{entry.path}: {status.st_size} {status.st_mtime_ns}"
