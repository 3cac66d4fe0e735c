"""Shorthand for findings, one function a verdict, so that a rule reads as what it says. Pure."""

from spec_toolkit.errors import Finding, Verdict


def refuse(rule: str, where: str, found: str, why: str = "", remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.REFUSE, where=where, found=found, why=why, remedy=remedy)


def correct(rule: str, where: str, found: str, why: str = "", remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.CORRECT, where=where, found=found, why=why, remedy=remedy)


def warn(rule: str, where: str, found: str, why: str = "", remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.WARN, where=where, found=found, why=why, remedy=remedy)


def note(rule: str, where: str, found: str, why: str = "", remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.NOTE, where=where, found=found, why=why, remedy=remedy)
