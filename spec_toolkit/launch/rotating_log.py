"""A log that a year of serving does not fill a disk with. Touches the disk."""

import os
from contextlib import suppress
from pathlib import Path

LOG_BYTES = 64 * 2**20  # of one log file; then it is rotated
LOG_FILES = 3


class RotatingLog:
    """engine.log, then engine.log.1 (older), up to LOG_FILES files of LOG_BYTES."""

    def __init__(self, path: Path, *, most_bytes: int = LOG_BYTES, files: int = LOG_FILES) -> None:
        self._path, self._most_bytes, self._files = path, most_bytes, files
        self._open()

    def write(self, line: bytes) -> None:
        if self._written and self._written + len(line) > self._most_bytes:
            self._rotate()
        os.write(self._descriptor, line)
        self._written += len(line)

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._written = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        """The old file is closed last: whatever fails before, lines still go somewhere, and to no descriptor of others."""
        for number in range(self._files - 1, 0, -1):
            newer = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            with suppress(FileNotFoundError):
                newer.replace(self._path.with_name(f"{self._path.name}.{number}"))
        full = self._descriptor
        self._open()
        os.close(full)
