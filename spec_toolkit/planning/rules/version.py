"""Compares versions of the engine, `0.5.15.post1` and the like. Pure; what is no released version is None and proves nothing."""

import re

_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)(?:rc(\d+))?(?:\.?post(\d+))?(?:\.?dev\d+)?(?:\+[\w.]+)?", re.IGNORECASE)
_FINAL = 10**6  # where no release candidate is named: after all of them

Release = tuple[tuple[int, ...], int, int]


def release_of(version: str | None) -> Release | None:
    """Numbers, candidate, post; in the order in which they were released."""
    found = _RELEASE.fullmatch(version.strip()) if version is not None else None
    if found is None:
        return None
    numbers = tuple(int(number) for number in found[1].split("."))
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers, int(found[2]) if found[2] else _FINAL, int(found[3] or 0)


def is_before(version: str | None, release: str) -> bool:
    """Whether it is known to be an older one."""
    pinned, other = release_of(version), release_of(release)
    return pinned is not None and other is not None and pinned < other


def is_after(version: str | None, release: str) -> bool:
    """Whether it is known to be a newer one."""
    pinned, other = release_of(version), release_of(release)
    return pinned is not None and other is not None and pinned > other


def is_same(version: str | None, release: str) -> bool:
    return release_of(version) is not None and release_of(version) == release_of(release)
