"""Why a start, or a service, ended: the sentence, the page to read, and whether another start could do better. Pure."""

import signal
from dataclasses import dataclass

from spec_toolkit.engine.log import last_words
from spec_toolkit.errors import SpecError
from spec_toolkit.handover import ENDED_BY_PATCHES

# What another start could not mend, and the page for each kind of refusal, by how its rule begins.
_FINAL = ("patches.", "smoke.key", "smoke.tokenizer")
_START, LOST_PAGE, _PATCHES = (
    f"runbooks/{page}.md" for page in ("engine-does-not-start", "engine-lost", "patch-does-not-apply")
)
_PAGES = {
    "patches.": _PATCHES,
    "smoke.key": _PATCHES,
    "smoke.": "runbooks/speculation-is-off.md",
    "gateway.": LOST_PAGE,
    "engine.undead": LOST_PAGE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt ended."""

    text: str
    runbook: str
    exit_code: int | None = None
    final: bool = False  # another attempt could only end the same way


class EngineGone(Exception):  # noqa: N818 - what happened, turned into a Failure by the attempt
    """The engine ended or cannot be used; the text says what beyond its exit code."""

    def __init__(self, what: str, *, by_itself: bool = False, final: bool = False) -> None:
        super().__init__(what)
        self.by_itself = by_itself  # its exit code is its own
        self.final = final  # another start could only end the same way


def failure(gone: EngineGone, code: int, seconds: float, tail: list[str], *, ready: bool) -> Failure:
    """`code` is what the engine's keeper ended with, `tail` the log's last lines."""
    when = f"after {seconds:.0f} s" + ("" if ready else ", before it was ready")
    page = _PATCHES if code == ENDED_BY_PATCHES else LOST_PAGE if ready else _START
    # A code that our own kill made says nothing about the engine.
    what = exit_words(code) if gone.by_itself else str(gone)
    return Failure(
        text=f'engine: {what} {when}. Last words: "{last_words(tail)}". See {page}.',
        runbook=page,
        exit_code=code if gone.by_itself else None,
        final=gone.final or code == ENDED_BY_PATCHES,
    )


def refusal(refused: SpecError) -> Failure:
    """A check between the engine's own "ready" and ours said no."""
    rules = [finding.rule for finding in refused.findings]
    page = next((page for beginning, page in _PAGES.items() if rules[0].startswith(beginning)), _START)
    return Failure(
        text="; ".join(str(refused).splitlines()), runbook=page, final=any(rule.startswith(_FINAL) for rule in rules)
    )


def own_fault(error: Exception) -> Failure:
    """The supervisor itself failed."""
    text = f"supervisor: {type(error).__name__}: {error}. See {LOST_PAGE}."
    return Failure(text=text, runbook=LOST_PAGE, final=True)


def exit_words(code: int) -> str:
    """`exit code 137 (SIGKILL)`"""
    try:
        name = f" ({signal.Signals(code - 128).name})" if code > 128 else ""
    except ValueError:
        name = ""
    return f"exit code {code}{name}"
