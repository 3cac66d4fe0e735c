"""The draft that a launch command asks for, as a recipe has it. Pure."""

import re

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.engine.command_line.say import shown
from spec_toolkit.errors import Finding, note, warn
from spec_toolkit.recipe.schema import Draft
from spec_toolkit.terms import Acceptance, Method

_METHODS = {
    "EAGLE": Method.MTP,
    "NEXTN": Method.MTP,
    "EAGLE3": Method.EAGLE3,
    "FROZEN_KV_MTP": Method.FROZEN_KV_MTP,
    "STANDALONE": Method.STANDALONE,
    "NGRAM": Method.NGRAM,
    "DFLASH": Method.DFLASH,
    "DSPARK": Method.DSPARK,
}
_STEPPING = frozenset({Method.MTP, Method.EAGLE3, Method.FROZEN_KV_MTP, Method.STANDALONE})
_COMMIT = re.compile(r"[0-9a-f]{40}|sha256:[0-9a-f]{64}")
_WORD = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def draft_of(asked: Arguments, usual: tuple[int, int, int] | None, findings: list[Finding]) -> Draft:
    """`usual`: steps, topk and width that the engine takes for the model where the command names none."""
    algorithm = (asked.speculative_algorithm or "NONE").upper()
    method = method_of(algorithm)
    if method is Method.NONE:
        if algorithm != "NONE":
            found, why = f"is {shown(algorithm)}", "a recipe has no method for it"
            findings.append(warn("init.algorithm", "draft.method", found, why, "Written without speculation."))
        return Draft(method=Method.NONE)
    model = asked.speculative_draft_model_path
    separate = model if model != asked.model_path else None
    if method is Method.MTP and separate and "assistant" in separate.lower():
        method = Method.FROZEN_KV_MTP  # the engine turns it into this by what the draft's config.json says
    steps, topk, width = _shape(asked, method, usual, findings)
    return Draft(
        method=method,
        model=place_of(separate) if separate else "same",
        revision=commit_of(asked.speculative_draft_model_revision, "draft.revision", findings) if separate else None,
        num_steps=steps,
        topk=topk,
        num_draft_tokens=width,
        block_tokens=asked.speculative_dspark_block_size if method is Method.DSPARK else None,
        acceptance=_acceptance(asked),
        accept_threshold_single=below_one(asked.speculative_accept_threshold_single),
        accept_threshold_accumulated=below_one(asked.speculative_accept_threshold_acc),
        moe_runner_backend=_of_the_draft(asked.speculative_moe_runner_backend),
        moe_a2a_backend=_of_the_draft(asked.speculative_moe_a2a_backend),
    )


def method_of(algorithm: str) -> Method:
    """NONE where a recipe has no method for it."""
    return _METHODS.get(algorithm.upper(), Method.NONE)


def _shape(
    asked: Arguments, method: Method, usual: tuple[int, int, int] | None, findings: list[Finding]
) -> tuple[int | None, int, int | None]:
    """Steps, topk, width; the width of a chain follows from its steps and is left out."""
    steps, topk, width = asked.speculative_num_steps, asked.speculative_eagle_topk, asked.speculative_num_draft_tokens
    if method not in _STEPPING:
        return None, topk or 1, width if method is not Method.DSPARK else None
    if steps is None and usual is not None:
        steps, topk, width = usual
        found = f"are written as the engine's own choice for this model: {steps} steps, topk {topk}"
        findings.append(note("init.shape", "draft.num_steps", found))
    return steps, topk or 1, width if (topk or 1) > 1 else None


def _acceptance(asked: Arguments) -> Acceptance:
    if asked.speculative_use_rejection_sampling:
        return Acceptance.REJECTION
    written = (asked.speculative_accept_threshold_single, asked.speculative_accept_threshold_acc)
    return Acceptance.RELAXED if any(below_one(value) is not None for value in written) else Acceptance.TARGET_ONLY


def commit_of(revision: str | None, where: str, findings: list[Finding]) -> str | None:
    if revision is None or _COMMIT.fullmatch(revision):
        return revision
    found, why = f"is '{shown(revision)}', a name that can move", "a recipe holds a commit"
    findings.append(warn("init.revision", where, found, why, "Left open: `spec-toolkit pin` writes it."))
    return None


def place_of(model: str) -> str:
    """A folder's name is told from a repository's by how it begins."""
    is_repository = re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", model)
    return model if is_repository or model.startswith(("/", "./", "../", "~/")) else f"./{model}"


def below_one(number: float | None) -> float | None:
    return number if number is not None and 0 < number < 1 else None


def _of_the_draft(word: str | None) -> str | None:
    """Left open, the draft has what the target has: auto and none are choices."""
    return word if word is not None and _WORD.fullmatch(word) else None


def named(word: str | None) -> str | None:
    """None for what only says that the engine should choose."""
    return word if word is not None and word not in {"auto", "none"} and _WORD.fullmatch(word) else None
