"""One archive of everything a bug report needs, with secrets struck. Touches the disk."""

import io
import os
import platform
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import msgspec

from spec_toolkit.facts.machine import read_machine
from spec_toolkit.launch.deployment import Folder

_SECRET_FILES = frozenset({"admin.key", "engine.yaml"})
_STRUCK = b"<redacted>"


def write_bundle(folder: Folder, to: Path) -> list[str]:
    """Write the archive `to` (readable by its owner alone); returns the names in it.

    The two files that hold the admin key are left out, and the key is struck wherever else it should stand.
    """
    key = folder.admin_key.read_bytes().strip() if folder.admin_key.exists() else b""
    descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        return _write(folder, key, descriptor)
    except BaseException:
        to.unlink()  # half an archive would only stand in the next one's way
        raise


def _write(folder: Folder, key: bytes, descriptor: int) -> list[str]:
    names = []
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in _contents(folder):
            clean = content.replace(key, _STRUCK) if key else content
            entry = tarfile.TarInfo(f"{folder.name}/{name}")
            entry.size, entry.mode = len(clean), 0o600
            archive.addfile(entry, io.BytesIO(clean))
            names.append(name)
    return names


def _contents(folder: Folder) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.path.rglob("*")):
        left_out = path.name in _SECRET_FILES or path.name.startswith(".") or path.suffix == ".lock"
        if path.is_file() and not path.is_symlink() and not left_out:
            with suppress(FileNotFoundError):  # rotated away, or replaced, since it was listed
                yield str(path.relative_to(folder.path)), path.read_bytes()
    yield "machine.json", msgspec.json.format(msgspec.json.encode(read_machine()), indent=2)
    yield "versions.txt", _versions().encode()


def _versions() -> str:
    installed = sorted(f"{dist.name}=={dist.version}" for dist in metadata.distributions())
    return "\n".join([f"python {platform.python_version()} on {platform.platform()}", *installed, ""])
