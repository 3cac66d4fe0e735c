"""Rules about the commits a launch follows. Pure. Findings keep the name `pins`, as a recipe's pins are what is missing."""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, refuse, warn
from spec_toolkit.facts.checkpoint import is_folder
from spec_toolkit.planning.situation import Situation


def engine_version(situation: Situation) -> Iterator[Finding]:
    """Of a command or a pod, whose engine nobody here starts: a recipe for another version is refused by its own rule."""
    pinned, known = situation.pins.sglang, situation.engine.version
    if pinned is not None and pinned.removeprefix("v") != known:
        why = f"rules and tables here are of {known}, so what is said of it may not hold there"
        yield warn("pins.engine-version", "pins.sglang", f"is {pinned}", why, f"Use {known}, or check it there.")


def target_revision(situation: Situation) -> Iterator[Finding]:
    model, revision = situation.arguments.model_path, situation.arguments.revision
    if model is None:
        return
    if revision is not None:
        yield from _of_its_kind("revision", model, revision)
    elif not is_folder(model):
        why = "the model may change under this name"
        yield warn(
            "pins.target-revision", "revision", "is left open", why, "Write the commit; `deploy` shows the line."
        )


def draft_revision(situation: Situation) -> Iterator[Finding]:
    """A head in the target's checkpoint follows its revision; any draft path, even the target's own, follows the branch instead."""
    asked = situation.arguments
    draft, revision, target = asked.speculative_draft_model_path, asked.speculative_draft_model_revision, asked.revision
    where = "speculative_draft_model_revision"
    if draft is None and revision is not None:
        why = "this draft ships in the target's checkpoint and has no revision of its own"
        yield correct(
            "pins.draft-revision",
            where,
            "is written",
            why,
            "Planned without; pin the target's revision.",
            ((where, None),),
        )
    elif draft is not None and revision is not None:
        yield from _of_its_kind(where, draft, revision)
    elif draft is not None and not is_folder(draft):
        why = "with a draft path the engine follows branch 'main', and a draft made for another target accepts next to nothing"
        if target is None:
            yield warn("pins.draft-revision", where, "is left open", why, "Write the commit.")
        else:
            found = f"is left open, and the target's is {target[:12]}"
            yield refuse("pins.draft-revision", where, found, why, "Write the commit.")


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


RULES = (target_revision, draft_revision)
COMMAND_RULES = (engine_version,)
