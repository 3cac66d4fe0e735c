"""Shorthand for findings, one function a verdict, so that a rule reads as what it says. Pure."""

from spec_toolkit.errors import Change, Finding, Verdict


def refuse(rule: str, where: str, found: str, why: str = "", remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.REFUSE, where=where, found=found, why=why, remedy=remedy)


def correct(  # noqa: PLR0913, PLR0917 - the parts of a sentence, in its order, and what follows from it
    rule: str, where: str, found: str, why: str = "", remedy: str = "", changes: tuple[Change, ...] = ()
) -> Finding:
    """`changes`: what the plan uses instead, by the engine's argument; empty for a recipe's own keys, which `plan` derives from."""
    return Finding(
        rule=rule, verdict=Verdict.CORRECT, where=where, found=found, why=why, remedy=remedy, changes=changes
    )


def warn(rule: str, where: str, found: str, why: str = "", remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.WARN, where=where, found=found, why=why, remedy=remedy)


def note(rule: str, where: str, found: str, why: str = "", remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.NOTE, where=where, found=found, why=why, remedy=remedy)
