"""What an engine would find on this machine beside its GPUs: packages, memory that is held, room, limits, hub. Touches the world.

Every command and every request has a deadline, and what does not answer is None. nvidia-smi's lines are parsed by pure functions.
"""

import os
import resource
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spec_toolkit.facts.machine import read_machine, visible
from spec_toolkit.facts.packages import Installed, installed_version, named_beginning, required_by, torch_cuda
from spec_toolkit.facts.records import Gpu, Machine
from spec_toolkit.facts.web import in_time, send

_MEMORY = ("--query-gpu=index,uuid,name,memory.used,memory.free", "--format=csv,noheader,nounits")
_HOLDERS = ("--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader,nounits")
_HUB = "https://huggingface.co"


@dataclass(frozen=True, slots=True)
class Held:
    """Memory of one GPU, MiB."""

    gpu: Gpu
    used: int
    free: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of a GPU."""

    gpu_uuid: str
    pid: int
    name: str
    used: int | None  # MiB; not told to a container, or by another driver model


@dataclass(frozen=True, slots=True)
class Room:
    path: Path
    total: int  # bytes
    free: int  # bytes, for us


@dataclass(frozen=True, slots=True)
class Hub:
    address: str
    asked: bool  # False: HF_HUB_OFFLINE forbids it
    said: int | str  # HTTP status, or why there was none


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    machine: Machine
    held: tuple[Held, ...] | None  # of visible GPUs; None: nvidia-smi does not tell
    holders: tuple[Holder, ...] | None  # of any GPU
    engine: str | None  # version of the installed SGLang
    required: tuple[Installed, ...] | None  # by it; None: it is not installed
    nccl: tuple[Installed, ...]  # by the installed torch
    torch_cuda: str | None  # that torch is built for; "": a CPU build
    shared_memory: Room | None
    open_files: tuple[int, int]  # soft and hard limit; -1: none
    hub: Hub
    cache: Room | None  # where the hub's downloads go


def read_environment(environment: Mapping[str, str] = os.environ, *, deadline_seconds: float = 10.0) -> Environment:
    """Never fails."""
    return Environment(
        machine=read_machine(environment, deadline_seconds=deadline_seconds),
        held=_held(environment, deadline_seconds),
        holders=_holders(deadline_seconds),
        engine=installed_version("sglang"),
        required=required_by("sglang"),
        nccl=named_beginning("torch", "nvidia-nccl"),
        torch_cuda=torch_cuda(),
        shared_memory=room(Path("/dev/shm")),  # noqa: S108 - the engine's processes meet there
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        hub=_hub(environment, deadline_seconds),
        cache=_cache(environment),
    )


def parse_held(text: str) -> tuple[Held, ...]:
    """From lines `index, uuid, name, used MiB, free MiB`; a GPU that shares its memory with the CPU tells neither. Pure."""
    rows = ([field.strip() for field in line.split(",")] for line in text.splitlines())
    return tuple(
        Held(Gpu(index=int(row[0]), uuid=row[1], name=row[2], memory_mib=None), int(row[3]), int(row[4]))
        for row in rows
        if len(row) == 5 and row[0].isdigit() and row[3].isdigit() and row[4].isdigit()
    )


def parse_holders(text: str) -> tuple[Holder, ...]:
    """From lines `uuid, pid, name, MiB`; a name may hold commas. Pure."""
    holders = []
    for line in text.splitlines():
        uuid, _, rest = line.partition(",")
        pid, _, rest = rest.partition(",")
        name, _, used = rest.rpartition(",")
        if uuid.strip().startswith("GPU-") and pid.strip().isdigit():
            memory = int(used) if used.strip().isdigit() else None
            holders.append(Holder(uuid.strip(), int(pid), name.strip(), memory))
    return tuple(holders)


def room(path: Path) -> Room | None:
    """Of the file system that a folder is on, or would be on: the nearest one above it that is there."""
    for folder in (path, *path.parents):
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        return Room(path, found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
    return None


def _held(environment: Mapping[str, str], deadline_seconds: float) -> tuple[Held, ...] | None:
    text = _nvidia_smi(_MEMORY, deadline_seconds)
    held = parse_held(text) if text is not None else ()
    if not held:
        return None
    seen = visible(tuple(each.gpu for each in held), environment.get("CUDA_VISIBLE_DEVICES"))
    return tuple(each for each in held if each.gpu in seen)


def _holders(deadline_seconds: float) -> tuple[Holder, ...] | None:
    text = _nvidia_smi(_HOLDERS, deadline_seconds)
    return None if text is None else parse_holders(text)


def _nvidia_smi(arguments: tuple[str, ...], deadline_seconds: float) -> str | None:
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed command, found on the path
            [command, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (subprocess.TimeoutExpired, OSError):
        return None
    return answer.stdout if answer.returncode == 0 else None


def _hub(environment: Mapping[str, str], deadline_seconds: float) -> Hub:
    address = (environment.get("HF_ENDPOINT") or _HUB).rstrip("/")
    if environment.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return Hub(_without_login(address), asked=False, said="HF_HUB_OFFLINE is set")
    said = in_time(lambda: _status(f"{address}/api/models?limit=1", deadline_seconds), deadline_seconds)
    return Hub(
        _without_login(address),
        asked=True,
        said=said if said is not None else f"no answer within {deadline_seconds:g} s",
    )


def _without_login(address: str) -> str:
    """An address may carry a name and a password; what is shown does not."""
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def _status(address: str, timeout_seconds: float) -> int | str:
    try:
        return send("GET", address, {}, timeout_seconds).status
    except OSError as error:
        reason = getattr(error, "reason", error)
        return str(getattr(reason, "strerror", None) or type(reason).__name__)
    except Exception as error:  # noqa: BLE001 - an address that is none, or an answer that is no HTTP
        return type(error).__name__


def _cache(environment: Mapping[str, str]) -> Room | None:
    """As huggingface_hub finds it, without its import."""
    home = environment.get("HF_HOME") or f"{environment.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    cache = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    try:
        return room(Path(cache).expanduser())
    except RuntimeError:  # a home that cannot be found
        return None
