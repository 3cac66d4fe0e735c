"""Rules about what is pinned. Pure; an open pin is resolved at deploy, which shows the line to write."""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, note, refuse
from spec_toolkit.facts.records import Checkpoint, EngineFacts
from spec_toolkit.recipe.schema import Recipe


def engine_version(recipe: Recipe, engine: EngineFacts) -> Iterator[Finding]:
    if recipe.engine.sglang != engine.version:
        why = f"patches, flags and tables here are made for {engine.version}"
        found = f"is {recipe.engine.sglang}"
        yield refuse(
            "pins.engine-version",
            "engine.sglang",
            found,
            why,
            f"Write {engine.version}, or use the toolkit made for that version.",
        )


def tokenizer(recipe: Recipe) -> Iterator[Finding]:
    if recipe.target.tokenizer is None:
        yield note(
            "pins.tokenizer", "target.tokenizer", "is left open", "a changed template or vocabulary would go unnoticed"
        )


def local_pins(recipe: Recipe, checkpoint: Checkpoint | None, content: str | None) -> Iterator[Finding]:
    """A local model's pins against what lies in its folder; `content` is the folder's content hash."""
    pinned = recipe.target.revision
    if content is not None and pinned is not None and pinned.startswith("sha256:") and pinned != content:
        found = f"is {_short(pinned)}, and the folder's content is {_short(content)}"
        yield refuse(
            "pins.target-content", "target.revision", found, "this is another model", f"Restore it, or write {content}."
        )
    wanted = recipe.target.tokenizer
    if checkpoint is not None and wanted is not None and wanted != checkpoint.tokenizer:
        found = f"is {_short(wanted)}, and the folder's tokenizer is {_short(checkpoint.tokenizer)}"
        why = "token ids may mean other words"
        yield refuse(
            "pins.tokenizer-differs", "target.tokenizer", found, why, f"Restore it, or write {checkpoint.tokenizer}."
        )


def evidence(recipe: Recipe) -> Iterator[Finding]:
    """What a file that is named has to say is the business of rules/evidence."""
    if not recipe.is_rehearsal and recipe.evidence is None:
        why = "nobody has measured here that speculation pays"
        yield note("pins.evidence", "evidence", "is left out", why, "The plan is unproven.")


def _short(digest: str) -> str:
    return digest[:19] + "…"
