"""What this machine has: GPUs, cores, memory. Touches processes and /proc; what they say is parsed by pure functions."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from spec_toolkit.facts.records import Gpu, Machine

_QUERY = ["--query-gpu=index,uuid,name,memory.total,driver_version", "--format=csv,noheader,nounits"]


def read_machine(environment: Mapping[str, str] = os.environ, *, deadline_seconds: float = 10.0) -> Machine:
    """Never fails: what does not answer is said in `origin`."""
    present, driver, origin = _read_gpus(deadline_seconds)
    gpus = visible(present, environment.get("CUDA_VISIBLE_DEVICES"))
    return Machine(
        gpus=gpus,
        hidden_gpus=len(present) - len(gpus),
        driver=driver,
        cores=len(os.sched_getaffinity(0)),
        memory_mib=_read_memory_mib(),
        origin=origin,
    )


def parse_nvidia_smi(text: str) -> tuple[tuple[Gpu, ...], str | None]:
    """GPUs and driver version from nvidia-smi's lines `index, uuid, name, MiB, driver`; lines of another form are no GPU."""
    gpus: list[Gpu] = []
    driver = None
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5 or not fields[0].isdigit():
            continue
        index, uuid, name, memory, driver = fields
        # "[N/A]" where CPU and GPU share their memory
        gpus.append(Gpu(index=int(index), uuid=uuid, name=name, memory_mib=int(memory) if memory.isdigit() else None))
    return tuple(gpus), driver


def visible(gpus: tuple[Gpu, ...], setting: str | None) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves, in its order; as CUDA does, it is read up to the first entry that names none."""
    if setting is None:
        return gpus
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in setting.split(",")):
        named = [
            gpu
            for gpu in gpus
            if entry and (entry == str(gpu.index) or (len(entry) > 4 and gpu.uuid.startswith(entry)))
        ]
        if len(named) != 1 or named[0] in chosen:
            break
        chosen += named
    return tuple(chosen)


def parse_driver_files(texts: list[str]) -> tuple[Gpu, ...]:
    """GPUs from the files /proc/driver/nvidia/gpus/*/information; they do not tell the memory."""
    gpus = []
    for index, text in enumerate(texts):
        fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
        gpus.append(
            Gpu(index=index, uuid=fields.get("GPU UUID", ""), name=fields.get("Model", "unknown"), memory_mib=None)
        )
    return tuple(gpus)


def parse_meminfo_mib(meminfo: str, container_limit: str | None) -> int | None:
    """MiB from /proc/meminfo, or the container's limit in bytes ("max": none) where that is less."""
    total = next((int(line.split()[1]) // 1024 for line in meminfo.splitlines() if line.startswith("MemTotal:")), None)
    limit = int(container_limit) // 2**20 if container_limit and container_limit.strip().isdigit() else None
    known = [value for value in (total, limit) if value is not None]
    return min(known, default=None)


def _read_gpus(deadline_seconds: float) -> tuple[tuple[Gpu, ...], str | None, str]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return *_read_driver_files(), "no nvidia-smi on the path"
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed command, found on the path
            [command, *_QUERY],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return *_read_driver_files(), f"nvidia-smi did not answer within {deadline_seconds:g} s"
    except OSError as error:
        return *_read_driver_files(), f"nvidia-smi did not start ({error.strerror})"
    gpus, driver = parse_nvidia_smi(answer.stdout)
    if answer.returncode != 0 or not gpus:
        lines = (answer.stdout + answer.stderr).strip().splitlines()
        said = lines[0][:120] if lines else "nothing"
        return *_read_driver_files(), f"nvidia-smi ended with {answer.returncode} and said {said!r}"
    return gpus, driver, "nvidia-smi"


def _read_driver_files() -> tuple[tuple[Gpu, ...], str | None]:
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return parse_driver_files([file.read_text("utf-8", errors="replace") for file in files]), None


def _read_memory_mib() -> int | None:
    try:
        meminfo = Path("/proc/meminfo").read_text("utf-8")
    except OSError:
        return None
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text("utf-8")
    except OSError:
        limit = None
    return parse_meminfo_mib(meminfo, limit)
