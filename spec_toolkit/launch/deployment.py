"""One deployment's folder: the record of what runs, and how another process finds out. Touches the world.

A folder per deployment under the XDG state folder. The supervisor holds a lock on `owner.lock` for as long as it lives, so whether
a deployment runs is asked of the kernel, not of a process id that may belong to somebody else by now.
"""

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from spec_toolkit.errors import FactsError, RecipeError
from spec_toolkit.launch.events import Event

_LOCK_SECONDS = 2.0
_LOGS = ("engine", "gateway", "sidecar")  # each with the older ones it was rotated to
_ENGINES_KEPT = 8  # folders of engines that ended, for a bug report


class Keeper(Struct, frozen=True, kw_only=True):
    """Names one process for good: a number alone may belong to somebody else by now."""

    pid: int  # leads the session that what it keeps belongs to
    started: int  # clock ticks after boot, from /proc/<pid>/stat
    boot: str  # /proc/sys/kernel/random/boot_id


class Status(Struct, frozen=True, kw_only=True):
    """What `status` shows; written by the supervisor alone, whole, at every change."""

    name: str
    recipe: str  # the file's path, as given
    recipe_sha256: str
    phase: str = "starting"  # of engine.log.Phase, or restarting (no engine takes requests: they wait), stopping, stopped, failed
    mode: str = "full"  # terms.Mode: with what the engine that serves, or is to, was handed over; the sidecar moves it from there
    reason: str = ""  # why that mode is not full, or why it failed
    returning: str = (
        ""  # how far a speculating engine is that is started to take over, of engine.log.Phase; empty: none is
    )
    without: str = ""  # what of ours does not run any more, and why
    labels: tuple[str, ...] = ()  # words that go wherever its numbers go: lossy, simulated, rehearsal, unproven
    address: str = ""  # where clients go: to the gateway
    engine_address: str = ""  # of the engine that takes requests; empty: none does
    supervisor_pid: int = 0
    run: str = ""  # which start this is; another one has another
    keepers: tuple[Keeper, ...] = ()  # of its engines, gateway and sidecar
    attempts: int = 0  # engines started so far
    target_commit: str = ""  # what was launched, whether the recipe pinned it or the hub resolved it
    draft_commit: str = ""  # of a separate draft
    write_into_recipe: tuple[str, ...] = ()  # the lines that would pin what the recipe leaves open
    emitted_length: float | None = None  # of the smoke test; None: no speculation
    started_at: str = ""
    exit_code: int | None = None

    @property
    def serves(self) -> bool:
        """Whether an engine takes requests now."""
        return bool(self.address) and bool(self.engine_address)


def identify(pid: int) -> Keeper | None:
    """None where no such process runs."""
    try:
        started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None
    return Keeper(pid=pid, started=started, boot=boot_id())


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Folder:
    """The paths of one deployment, and reading and writing them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.recipe = path / "recipe.yaml"
        self.launch = path / "launch.json"  # what the supervisor is to do
        self.status_file = path / "status.json"
        self.events_file = path / "events.jsonl"
        self.engine_log = path / "engine.log"
        self.supervisor_log = path / "supervisor.log"
        self.engine_config = path / "engine.yaml"  # holds the admin key; 0600
        self.admin_key = path / "admin.key"  # 0600
        self.steps_config = path / "steps.json"  # the step counts the engine prepares
        self.limits = path / "limits.json"  # planning.limits.Limits; people edit it, the sidecar reads it again
        self.hold = path / "hold.json"  # a person pinned a rung; absent: nobody did
        self.policy_state = path / "policy.json"  # what the sidecar carries from one decision to the next
        self.decisions_file = path / "decisions.jsonl"
        self.sidecar_snapshot = path / "sidecar.json"  # what the sidecar sees, for `status`
        self.gateway_snapshot = path / "gateway.json"  # what the gateway counts, for `status`
        self.patch_list = path / "patches.json"
        self.engines = path / "engines"  # a folder each, by number
        self.owner_lock = path / "owner.lock"
        self.socket_note = path / "control.path"

    def create(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)

    def clear(self) -> None:
        """Forget an earlier run, so that nobody reads its end as this one's."""
        for file in (
            self.launch,  # first: without it nobody takes what is left for a deployment
            self.status_file,
            self.events_file,
            self.socket_note,
            self.supervisor_log,
            self.hold,
            self.limits,
            self.sidecar_snapshot,
            self.gateway_snapshot,
        ):
            file.unlink(missing_ok=True)
        for old in (old for name in _LOGS for old in self.path.glob(f"{name}.log*")):
            old.unlink()
        shutil.rmtree(self.engines, ignore_errors=True)

    def copy_patch_list(self, engine: int) -> Path:
        """A list of its own for this engine: reports are written beside it, and those of two engines must not mix."""
        own = self.engines / str(engine)
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir(mode=0o700, parents=True)
        write_private(own / self.patch_list.name, self.patch_list.read_bytes())
        shutil.rmtree(self.engines / str(engine - _ENGINES_KEPT), ignore_errors=True)
        return own / self.patch_list.name

    def log_of(self, service: str) -> Path:
        return self.path / f"{service}.log"

    def has_owner(self) -> bool:
        """True while a supervisor lives. A shared lock: those who ask do not see each other as an owner."""
        try:
            descriptor = os.open(self.owner_lock, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def own(self) -> int:
        """Take the owner's lock for the life of this process; the descriptor must be kept. BlockingIOError if it is taken."""
        descriptor = os.open(self.owner_lock, os.O_RDWR | os.O_CREAT, 0o600)
        _lock_within(descriptor, _LOCK_SECONDS)  # somebody may just be asking
        return descriptor

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Held while a command decides and starts, so that two of them do not start twice."""
        self.create()
        descriptor = os.open(self.path / "ask.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                _lock_within(descriptor, _LOCK_SECONDS)  # a `status` holds it for a moment
            except BlockingIOError:
                raise FactsError.of(
                    "deploy.busy",
                    self.name,
                    "another command is starting or replacing this deployment",
                    remedy=f"Wait for it, or watch it with `spec-toolkit status {self.name}`.",
                ) from None
            yield
        finally:
            os.close(descriptor)

    def status(self) -> Status | None:
        """FactsError where the file is there and is not ours: written by another version, or by hand."""
        try:
            return msgspec.json.decode(self.status_file.read_bytes(), type=Status)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise FactsError.of(
                "deploy.status-unreadable",
                str(self.status_file),
                f"is not a status of this version ({error})",
                remedy=f"If nothing of it runs any more, remove {self.path}.",
            ) from None

    def write_status(self, status: Status) -> None:
        write_private(self.status_file, msgspec.json.encode(status))

    def events(self) -> list[Event]:
        try:
            content = self.events_file.read_bytes()
        except FileNotFoundError:
            return []
        events = []
        for line in content.splitlines():
            with suppress(msgspec.DecodeError):  # a full disk leaves half a line
                events.append(msgspec.json.decode(line, type=Event))
        return events

    def append_event(self, event: Event) -> None:
        # One write of one line, on a line of its own even after one that a full disk cut short.
        descriptor = os.open(self.events_file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, (b"\n" if torn else b"") + msgspec.json.encode(event) + b"\n")
        finally:
            os.close(descriptor)


def _lock_within(descriptor: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def write_private(path: Path, content: bytes) -> None:
    """Whole or not at all, readable by the owner alone from its first byte on."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:  # mkstemp makes it 0600
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def encode(record: Any) -> bytes:
    """Any of our records as JSON; the one kind of value that JSON lacks is a path."""
    return msgspec.json.encode(record, enc_hook=_encode_path)


def _encode_path(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} does not go into JSON")


def write_json(path: Path, record: Any) -> None:
    write_private(path, msgspec.json.format(encode(record), indent=2))


def deployments_folder() -> Path:
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():  # as the XDG specification says: unset, empty and relative are the same
        base = Path.home() / ".local" / "state"
    return base / "spec-toolkit" / "deployments"


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def folder_of(name: str) -> Folder:
    if not _NAME.fullmatch(name):
        raise RecipeError.of(
            "deploy.name",
            "name",
            f"{name!r} cannot name a deployment",
            remedy="Use letters, digits, '_', '-' and '.', beginning with a letter or digit.",
        )
    return Folder(deployments_folder() / name)


def known() -> list[Folder]:
    root = deployments_folder()
    if not root.is_dir():
        return []
    return [Folder(path) for path in sorted(root.iterdir()) if (path / "launch.json").is_file()]


def existing(name: str) -> Folder:
    """The folder of a deployment that was made here; raises where there is none."""
    folder = folder_of(name)
    if not folder.launch.is_file():
        names = ", ".join(f.name for f in known())
        raise FactsError.of(
            "deploy.unknown",
            name,
            "no such deployment on this machine",
            remedy=f"Known: {names}." if names else "Start one with `spec-toolkit deploy RECIPE`.",
        )
    return folder
