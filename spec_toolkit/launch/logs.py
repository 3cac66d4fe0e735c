"""Reading an engine's log while it is written and rotated. Touches the disk."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from spec_toolkit.launch.deployment import Folder

_BACKWARD_BYTES = 64 * 1024
_LOOK_SECONDS = 0.2


def last_lines(log: Path, count: int) -> tuple[str, int]:
    """The last `count` lines, and where the file ended, for `follow_lines`; empty where there is no log yet."""
    if count < 1 or not log.exists():
        return "", log.stat().st_size if log.exists() else 0
    with log.open("rb") as file:
        end = start = file.seek(0, os.SEEK_END)
        block = b""
        while start > 0 and block.count(b"\n") <= count:
            step = min(_BACKWARD_BYTES, start)
            start -= step
            file.seek(start)
            block = file.read(step) + block
    return b"".join(block.splitlines(keepends=True)[-count:]).decode(errors="replace"), end


def follow_lines(folder: Folder, position: int) -> Iterator[str]:
    """Whole lines from `position` on, across rotations, until the deployment's supervisor is gone."""
    pending = b""
    file: BinaryIO | None = None
    try:
        while True:
            alive = folder.has_owner()  # before reading: its last lines are then read
            if file is None and folder.engine_log.exists():
                file = folder.engine_log.open("rb")
                file.seek(position)
            if file is not None:
                # Before reading: a file that is rotated by now gets no line any more, so that one reading is the last.
                rotated = not folder.engine_log.exists() or not _is_same(file, folder.engine_log)
                *lines, pending = (pending + file.read()).split(b"\n")
                yield from (line.decode(errors="replace") + "\n" for line in lines)
                if rotated:
                    file.close()
                    file, position = None, 0
                    continue
            if not alive:
                return
            time.sleep(_LOOK_SECONDS)
    finally:
        if file is not None:
            file.close()


def _is_same(file: BinaryIO, path: Path) -> bool:
    return os.path.samestat(os.fstat(file.fileno()), path.stat())
