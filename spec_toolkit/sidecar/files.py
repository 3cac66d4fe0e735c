"""The files between the sidecar, people and the sidecar that comes next. Touches the disk."""

import errno
import os
import stat
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
_LARGEST_EDITED_BYTES = 2**20  # what people write is a thousandth of it; decoding more would hold the loop up


class Watched(Generic[_Record]):
    """A file that people edit while we run. What cannot be read changes nothing but `problem`."""

    def __init__(self, path: Path, kind: type[_Record], in_force: _Record | None = None) -> None:
        """`in_force`: what whoever watched it before us had read of it."""
        self._path = path
        self._kind = kind
        self._seen: tuple[int, int, int] | None = None
        self.record = in_force  # the last one that was good
        self.problem = ""  # why what stands there now is not in force; empty while it is
        self.absent = True

    def refresh(self) -> bool:
        """Whether there is something new since the last call: told once, however often it is looked at."""
        before = self.problem
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen == self._seen:
                return False
            content = read_edited(self._path)
        except FileNotFoundError:
            was, self.absent, self._seen, self.problem = self.absent, True, None, ""
            return not was or before != ""
        except OSError as error:  # it may be there and good: neither gone nor changed, and looked at again
            self.absent, self._seen, self.problem = False, None, self._unread(str(error), "as soon as it can be")
            return self.problem != before
        self.absent, self._seen = False, seen
        try:
            self.record, self.problem = msgspec.json.decode(content, type=self._kind), ""
        except msgspec.DecodeError as error:
            said = "; ".join(str(error).splitlines())
            self.problem = self._unread(said, "when it changes")
        return True

    def _unread(self, said: str, again: str) -> str:
        kept = "what was in force stays" if self.record else "nothing is in force"
        return f"{self._path.name}: {said}; {kept}. Mend it; it is read again {again}. [sidecar.unreadable]"


def read_edited(path: Path) -> bytes:
    """Never waits: people put files there, and a named pipe would hold whoever opens it until somebody writes."""
    with open(path, "rb", opener=_open_at_once) as file:  # Path.open takes no opener
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Is no regular file", str(path))
        content = file.read(_LARGEST_EDITED_BYTES + 1)
    if len(content) > _LARGEST_EDITED_BYTES:
        raise OSError(errno.EFBIG, f"Is larger than {_LARGEST_EDITED_BYTES} bytes", str(path))
    return content


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


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
