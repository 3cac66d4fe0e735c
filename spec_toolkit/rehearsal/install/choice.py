"""What a set-up needs of the machine, what is missing, and where torch comes from. Pure: told what was found, it decides."""

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

GLIBC_FLOOR = (2, 34)  # SGLang's wheels are manylinux_2_34
CPU_FREE_GB, CUDA_FREE_GB = 2.5, 10.0  # free disk for a finished set-up and its downloads
DOWNLOADED = re.compile(r"^\s*Downloading \S+ \(([\d.]+) ?([A-Za-z]+)\)", re.MULTILINE)
MEGABYTES = {
    "b": 1e-6,
    "bytes": 1e-6,
    "kb": 1e-3,
    "kib": 1.024e-3,
    "mb": 1.0,
    "mib": 1.048576,
    "gb": 1e3,
    "gib": 1073.741824,
}


class Refused(Exception):  # noqa: N818 - it reads as what happened
    """The machine or the network does not allow it; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Source:
    """A place torch may come from, once looked at."""

    name: str
    usable: bool
    says: str  # what was found there
    arguments: tuple[str, ...] = ()  # for `pip install` and `uv pip install` alike


def machine_complaints(
    *, system: str, machine: str, libc: str | None, python: tuple[int, int], free_gb: float
) -> Iterator[str]:
    """`libc` as the C library names itself ("glibc 2.36"); None where it is another one."""
    if system != "Linux" or machine != "x86_64":
        yield f"machine: is {system} on {machine}; the CPU engine's wheels are for Linux on x86_64. [install.machine]"
        return
    found = re.match(r"glibc (\d+)\.(\d+)", libc or "")
    if not found or (int(found[1]), int(found[2])) < GLIBC_FLOOR:
        yield (
            f"C library: is {libc or 'not glibc'}; SGLang's wheels need glibc {GLIBC_FLOOR[0]}.{GLIBC_FLOOR[1]} or newer. "
            "Use Debian 12, Ubuntu 22.04 or a later one. [install.glibc]"
        )
    if python < (3, 11):
        yield (
            f"Python: is {python[0]}.{python[1]}; the toolkit is written for 3.11 or newer. "
            "Name one: make setup PYTHON=python3.11 [install.python]"
        )
    if free_gb < CPU_FREE_GB:
        yield f"disk: {free_gb:.1f} GB free where this checkout lies; a set-up needs {CPU_FREE_GB}. [install.disk]"


def is_cpu_build(version: str, requires: Sequence[str]) -> bool:
    """Told before 500 MB are fetched: by the local label, or where there is none by what the wheel depends on."""
    label = version.partition("+")[2]
    if label:
        return label.split(".")[0] == "cpu"
    gpu = re.compile(r"(nvidia|cuda|triton|pytorch-triton)\b")
    return not any(gpu.match(requirement) and "extra ==" not in requirement for requirement in requires)


def judge_wheel(report: Mapping[str, Any] | None, torch: str) -> Source:
    """`report` is pip's installation report with the indexes left out; None where pip found nothing or is not there."""
    found = report["install"] if report else []
    if not found:
        return Source("wheel", usable=False, says=f"pip finds no torch {torch} outside package indexes")
    url, metadata = found[0]["download_info"]["url"], found[0]["metadata"]
    if not is_cpu_build(metadata["version"], metadata.get("requires_dist", [])):
        return Source("wheel", usable=False, says=f"{url} is a GPU build")
    return Source("wheel", usable=True, says=url, arguments=("--no-deps", f"torch @ {url}"))


def judge_index(url: str, page: str | OSError, torch: str, python: tuple[int, int]) -> Source:
    """`page` is what the index lists for torch, or why it did not answer."""
    if isinstance(page, OSError):
        return Source("index", usable=False, says=f"{url} does not answer ({page})")
    wheel = rf"torch-{re.escape(torch)}(?:\+|%2B)cpu-cp{python[0]}{python[1]}-[^\"'<>\s#]*x86_64\.whl(?:#[^\"'<>\s]*)?"
    link = re.search(rf"href=[\"']?((?:[^\"'<>\s]*/)?{wheel})", page, re.IGNORECASE)
    if not link:
        wanted = f"torch {torch}+cpu for CPython {python[0]}.{python[1]}"
        return Source("index", usable=False, says=f"{url} answers, but has no {wanted}")
    # The file itself, not the index, is what pip and uv are given: which of several indexes wins differs between them.
    file = urljoin(f"{url.rstrip('/')}/torch/", html.unescape(link[1]))
    return Source("index", usable=True, says=url, arguments=("--no-deps", f"torch @ {file}"))


def judge_registry(lock: Path, torch: str, free_gb: float) -> Source:
    if free_gb < CUDA_FREE_GB:
        says = f"{free_gb:.1f} GB free where this checkout lies, and a CUDA build needs {CUDA_FREE_GB:.0f}"
        return Source("registry", usable=False, says=says)
    # With the CPU label excluded this is the registry's own build, even where pip would find the other one first.
    arguments = ("--constraint", str(lock), f"torch=={torch},!={torch}+cpu")
    return Source("registry", usable=True, says="the CUDA build with its libraries, about 3 GB", arguments=arguments)


def choose(probes: Mapping[str, Callable[[], Source]], forced: str, say: Callable[[str], None]) -> Source:
    """The first usable source; a later one is not even looked at. With `forced`, that one or none."""
    if forced and forced not in probes:
        raise Refused(
            f"TORCH_SOURCE: is {forced!r}. Use one of {', '.join(probes)}, or leave it out. [install.torch-source]"
        )
    for name in [forced] if forced else list(probes):
        source = probes[name]()
        say(f"torch from the {source.name}: {source.says}{'' if source.usable else '; not used'}")
        if source.usable:
            return source
    raise Refused(
        "torch: no place that was looked at has it. Connect this machine to a package registry, "
        "or put a CPU wheel where pip's find-links point. [install.torch-source]"
    )


def normal(name: str) -> str:
    """A package's name as its dist-info folder may spell it."""
    return re.sub(r"[-_.]+", "_", name).lower()


def read_lock(text: str) -> dict[str, str]:
    """Normal name to version."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {normal(name): version for name, version in pairs}


def missing(lock: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Requirements of the lock that are not in place. A local label (2.13.0+cpu) is not a difference."""
    return [f"{name}=={version}" for name, version in lock.items() if present.get(name, "").split("+")[0] != version]


def downloaded_mb(log: str) -> float:
    """What pip and uv say they download; uv names only files over about a megabyte."""
    return sum(float(size) * MEGABYTES[unit.lower()] for size, unit in DOWNLOADED.findall(log))
