"""Findings about a command line, one function a verdict. Pure."""

from spec_toolkit.engine.command_line.words import without_secrets
from spec_toolkit.errors import Finding, Verdict

_LONGEST = 80  # characters of a word that a message shows


def refuse(rule: str, where: str, found: str, why: str = "", remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.REFUSE, where=where, found=found, why=why, remedy=remedy)


def correct(rule: str, where: str, found: str, why: str = "", remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.CORRECT, where=where, found=found, why=why, remedy=remedy)


def warn(rule: str, where: str, found: str, why: str = "", remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.WARN, where=where, found=found, why=why, remedy=remedy)


def note(rule: str, where: str, found: str, why: str = "", remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.NOTE, where=where, found=found, why=why, remedy=remedy)


def shown(text: str) -> str:
    """A word as it may stand in a message: printable, short, without what looks like a key."""
    clean = "".join(c if c.isprintable() else "�" for c in without_secrets(text[:4096])[: _LONGEST + 1])
    return clean if len(clean) <= _LONGEST else clean[: _LONGEST - 1] + "…"
