"""How the toolkit says no. Pure.

Two kinds. A *finding* is a value: everything wrong with a recipe is collected and shown at once. An *error* is raised where the
world refuses, and its class says what the caller does next. Both are made of the same sentence:
`where: what was found; why that cannot hold. What to do. [rule]`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

Change = tuple[str, str | int | float | bool | tuple[int, ...] | None]  # what, and its value; None: left out


class Verdict(Enum):
    REFUSE = "refuse"  # would not start, or would answer wrongly
    CORRECT = "correct"  # only one value can be meant; the plan uses it and says so
    WARN = "warn"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)  # no struct: `--help` loads this room and no library
class Finding:
    """One thing there is to say about a recipe, a machine or an engine."""

    rule: str  # dotted words, stable: "shape.chain-width"
    verdict: Verdict
    where: str  # "recipes/x.yaml:9" or "draft.num_steps"
    found: str  # what stands there, with its unit
    why: str = ""  # why that cannot hold; empty where the finding says it
    remedy: str = ""  # what to do, a sentence
    changes: tuple[Change, ...] = ()  # by the engine's argument: what is planned instead, of a correction

    def sentence(self) -> str:
        reason = f"; {self.why}" if self.why else ""
        text = f"{self.where}: {self.found}{reason}"
        remedy = f" {self.remedy}" if self.remedy else ""
        return f"{text}{'' if text.endswith(('?', '.')) else '.'}{remedy} [{self.rule}]"


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


class SpecError(Exception):
    """Something refused; carries at least one finding, and the exit code the command ends with."""

    exit_code = 3

    def __init__(self, *findings: Finding) -> None:
        self.findings: Sequence[Finding] = findings
        super().__init__("\n".join(f.sentence() for f in findings))

    @classmethod
    def of(cls, rule: str, where: str, found: str, *, why: str = "", remedy: str = "") -> Self:
        return cls(Finding(rule=rule, verdict=Verdict.REFUSE, where=where, found=found, why=why, remedy=remedy))


class RecipeError(SpecError):
    """The file cannot be read as a recipe: fix the file."""

    exit_code = 2


class FactsError(SpecError):
    """The world did not answer (no config, no GPU, no hub): fix the machine or the pin."""


class EngineError(SpecError):
    """The engine refused, died or hung: read the runbook the message names."""


class ActError(SpecError):
    """The engine was asked for a change and it did not take."""
