"""Installed Python packages against what one of them requires: metadata alone, nothing is imported. Touches site-packages.

Comparison is of release numbers, as `==`, `>=`, `<=`, `<`, `>` and `!=` with plain versions ask for it; a build's local part ("+cu130")
and what comes after a release ("rc1", ".post2") count only in `==`. A requirement of another form is said to be unread, never guessed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?\s*(?:;\s*(.*))?$")
_CLAUSE = re.compile(r"^\s*(==|>=|<=|!=|<|>)\s*([A-Za-z0-9.+!-]+)\s*$")
_RELEASE = re.compile(r"^v?(\d+(?:\.\d+)*)(.*)$")


@dataclass(frozen=True, slots=True)
class Requirement:
    name: str  # normalised: sglang-kernel, flashinfer-python
    clauses: tuple[tuple[str, str], ...]  # ("==", "0.4.10"); empty: any version
    readable: bool  # False: it says more than such clauses
    marker: str  # when it holds: 'extra == "test"'; empty: always

    @property
    def spelled(self) -> str:
        return ",".join(f"{operator}{version}" for operator, version in self.clauses) or "any version"

    @property
    def is_exact(self) -> bool:
        return any(operator == "==" for operator, _ in self.clauses)


@dataclass(frozen=True, slots=True)
class Installed:
    requirement: Requirement
    version: str | None  # None: not installed

    @property
    def fits(self) -> bool | None:
        """None where the requirement or the version cannot be read."""
        if self.version is None:
            return False
        if not self.requirement.readable:
            return None
        answers = [_holds(self.version, *clause) for clause in self.requirement.clauses]
        return False if False in answers else None if None in answers else True


def parse_requirement(text: str) -> Requirement | None:
    """None for what names no package. Pure."""
    match = _REQUIREMENT.match(text)
    if match is None:
        return None
    name, said, marker = match.groups()
    parts = [part for part in said.split(",") if part.strip()]
    clauses = [clause.groups() for part in parts if (clause := _CLAUSE.match(part))]
    return Requirement(
        name=re.sub(r"[-_.]+", "-", name).lower(),
        clauses=tuple((str(operator), str(version)) for operator, version in clauses),
        readable=len(clauses) == len(parts),
        marker=(marker or "").strip(),
    )


def required_by(package: str) -> tuple[Installed, ...] | None:
    """What a package requires whatever the platform and without extras, with what is there; None where it is not installed."""
    try:
        texts = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return None
    wanted = (parse_requirement(text) for text in texts)
    return tuple(
        Installed(each, installed_version(each.name)) for each in wanted if each is not None and not each.marker
    )


def named_beginning(package: str, beginning: str) -> tuple[Installed, ...]:
    """Those of a package's requirements, on whatever platform, whose name begins so."""
    try:
        texts: Iterable[str] = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return ()
    wanted = (parse_requirement(text) for text in texts)
    return tuple(
        Installed(each, installed_version(each.name))
        for each in wanted
        if each is not None and each.name.startswith(beginning) and "extra" not in each.marker
    )


def installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def torch_cuda() -> str | None:
    """The CUDA that the installed torch is built for, "13.0"; "" for a CPU build; None where nobody can tell.

    Read from its version file: importing torch takes seconds and, on a machine without a GPU, may end the process.
    """
    try:
        file = metadata.distribution("torch").locate_file("torch/version.py")
        text = Path(str(file)).read_text("utf-8")
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return None
    said = re.search(r"^cuda\s*(?::[^=\n]*)?=\s*(?:['\"]([0-9.]+)['\"]|(None))\s*$", text, re.MULTILINE)
    return None if said is None else said.group(1) or ""


def _holds(version: str, operator: str, wanted: str) -> bool | None:
    found, asked = _RELEASE.match(version), _RELEASE.match(wanted)
    if found is None or asked is None:
        return None
    if operator in {"==", "!="}:
        local = found.group(2) if "+" in wanted else found.group(2).partition("+")[0]
        same = (_numbers(found.group(1)), local) == (_numbers(asked.group(1)), asked.group(2))
        return same if operator == "==" else not same
    have, want = _numbers(found.group(1)), _numbers(asked.group(1))
    return {">=": have >= want, "<=": have <= want, "<": have < want, ">": have > want}[operator]


def _numbers(release: str) -> tuple[int, ...]:
    """1.2 and 1.2.0 are one release."""
    numbers = [int(part) for part in release.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
