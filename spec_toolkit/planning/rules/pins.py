"""Rules about what is pinned. Pure; an open pin is resolved at deploy, which shows the line to write."""

from collections.abc import Iterator

from spec_toolkit.errors import Finding
from spec_toolkit.facts.checkpoint import is_folder
from spec_toolkit.facts.records import Checkpoint, EngineFacts
from spec_toolkit.planning.finding import correct, note, refuse, warn
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


def target_revision(recipe: Recipe) -> Iterator[Finding]:
    if recipe.target.revision is None:
        why = "the model may change under the recipe's name"
        yield warn("pins.target-revision", "target.revision", "is left open", why, "`deploy` shows the line to write.")
    else:
        yield from _of_its_kind("target.revision", recipe.target.model, recipe.target.revision)


def draft_revision(recipe: Recipe) -> Iterator[Finding]:
    draft = recipe.draft
    if draft.model == "same":
        if draft.revision is not None:
            why = "this draft ships in the target's checkpoint and has no revision of its own"
            yield correct(
                "pins.draft-revision", "draft.revision", "is written", why, "Planned without; pin target.revision."
            )
    elif draft.revision is None:
        yield warn(
            "pins.draft-revision",
            "draft.revision",
            "is left open",
            "with a separate draft model the engine would follow branch 'main', and a draft made for another target accepts next to nothing",
            "Write the commit.",
        )
    else:
        yield from _of_its_kind("draft.revision", draft.model, draft.revision)


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


def _of_its_kind(where: str, model: str, revision: str) -> Iterator[Finding]:
    is_hub = not is_folder(model)
    is_commit = not revision.startswith("sha256:")
    if is_hub and not is_commit:
        yield refuse(
            "pins.revision-kind",
            where,
            "is a content hash",
            f"{model} is a hub repository",
            "Write a commit of 40 hexadecimal digits.",
        )
    elif is_commit and not is_hub:
        yield refuse(
            "pins.revision-kind", where, "is a commit", f"{model} is a folder", "Write its content hash, sha256:..."
        )


def _short(digest: str) -> str:
    return digest[:19] + "…"
