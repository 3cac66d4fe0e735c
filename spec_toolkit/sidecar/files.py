"""The files between the sidecar, people and the sidecar that comes next. Touches the disk."""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from spec_toolkit.launch.deployment import Folder, write_private
from spec_toolkit.sidecar.records import Carried, Snapshot, Taken

_Record = TypeVar("_Record", bound=msgspec.Struct)
_LARGEST_BYTES = 2**20  # of decisions.jsonl, and of the one before it: some thousand decisions each


class Watched(Generic[_Record]):
    """A file that people edit while we run. What cannot be read changes nothing but `problem`."""

    def __init__(self, path: Path, kind: type[_Record]) -> None:
        self._path = path
        self._kind = kind
        self._seen: tuple[int, int, int] | None = None
        self.record: _Record | None = None  # the last one that was good
        self.problem = ""  # why what stands there now is not in force; empty while it is
        self.absent = True

    def refresh(self) -> bool:
        """Whether the file changed since the last call: told once, however often it is looked at."""
        found = self._look()
        if found == self._seen:
            return False
        first, self._seen = self._seen is None, found
        self.absent = found is None
        if found is None:
            self.problem = ""
            return not first
        try:
            self.record = msgspec.json.decode(self._path.read_bytes(), type=self._kind)
            self.problem = ""
        except FileNotFoundError:  # just now
            self.absent, self._seen = True, None
        except (msgspec.DecodeError, OSError) as error:
            kept = "what was in force stays" if self.record else "nothing is in force"
            said = "; ".join(str(error).splitlines())
            self.problem = (
                f"{self._path.name}: {said}; {kept}. Mend it; it is read again when it changes. [sidecar.unreadable]"
            )
        return True

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def read_carried(folder: Folder) -> tuple[Carried | None, str]:
    """What the last sidecar left, or why there is nothing to carry on with; empty where there never was."""
    try:
        return msgspec.json.decode(folder.policy_state.read_bytes(), type=Carried), ""
    except FileNotFoundError:
        return None, ""
    except (msgspec.DecodeError, OSError) as error:
        return None, f"{folder.policy_state.name}: {error}; starting from what the engine says. [sidecar.unreadable]"


def write_carried(folder: Folder, carried: Carried, before: Carried | None) -> None:
    """To the disk where it matters; what was merely measured need not survive a power cut, and changes every second."""
    content = msgspec.json.encode(carried)
    if before is None or _without_measures(carried) != _without_measures(before):
        write_private(folder.policy_state, content)
    else:
        replace_file(folder.policy_state, content)


def _without_measures(carried: Carried) -> Carried:
    state = msgspec.structs.replace(carried.state, lengths=())
    return msgspec.structs.replace(carried, state=state, written_s=0.0)


def write_snapshot(folder: Folder, snapshot: Snapshot) -> None:
    replace_file(folder.sidecar_snapshot, msgspec.json.encode(snapshot))


def replace_file(path: Path, content: bytes) -> None:
    """Whole or not at all, mode 0600, in no hurry to reach the disk."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def append_decision(folder: Folder, taken: Taken) -> None:
    path = folder.decisions_file
    with suppress(FileNotFoundError):
        if path.stat().st_size >= _LARGEST_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, msgspec.json.encode(taken) + b"\n")
    finally:
        os.close(descriptor)


def try_writing(write: Callable[[], None]) -> str:
    """A full disk loses what is written down, never the loop. What was wrong; empty where nothing was."""
    try:
        write()
    except OSError as error:
        return f"{error.filename or 'the deployment folder'}: {error.strerror or error}"
    return ""
