"""Rules about what goes with what: method, acceptance, policy, flags. Pure."""

from collections.abc import Iterator

from msgspec.structs import replace

from spec_toolkit.errors import Finding, correct, note, refuse, warn
from spec_toolkit.facts.model import Model
from spec_toolkit.facts.records import EngineFacts
from spec_toolkit.planning.extra_arguments import misread
from spec_toolkit.planning.rules.pairing import ASSISTANTS
from spec_toolkit.planning.rules.shape import STEPPING
from spec_toolkit.recipe.schema import Draft, Recipe
from spec_toolkit.terms import LOSSY, Acceptance, Method


def method_planned(draft: Draft) -> Iterator[Finding]:
    planned = STEPPING | {Method.DSPARK, Method.NONE}
    if draft.method not in planned:
        names = ", ".join(method.value for method in Method if method in planned)
        why = "this version of the toolkit cannot plan it"
        yield refuse("features.method-unplanned", "draft.method", f"is {draft.method.value}", why, f"It plans {names}.")


def draft_model(draft: Draft) -> Iterator[Finding]:
    """The engine knows no such algorithm until it has seen an assistant; of the others see `algorithm.draft_model`."""
    if draft.method is Method.FROZEN_KV_MTP and draft.model == "same":
        why = f"a draft of method {draft.method.value} is a model of its own"
        yield refuse("features.draft-model", "draft.model", "is 'same'", why, "Name the draft model.")


def taken_for(draft: Draft, model: Model | None) -> Draft:
    """As the engine takes it: one of Gemma 4's assistants drafts by a method of its own, and at one depth."""
    if draft.method is Method.MTP and model is not None and model.architecture in ASSISTANTS:
        return replace(draft, method=Method.FROZEN_KV_MTP)
    return draft


def assistants_method(written: Draft, taken: Draft) -> Iterator[Finding]:
    if written.method is not taken.method:
        found, why = f"is {written.method.value}", f"with {written.model} the engine drafts by {taken.method.value}"
        yield correct(
            "features.assistant", "draft.method", found, why, f"Planned with {taken.method.value}; write that."
        )


def rejection_needs_chain(draft: Draft) -> Iterator[Finding]:
    if draft.acceptance is not Acceptance.REJECTION:
        return
    remedy = "Use acceptance target_only: it is lossless too."
    if draft.topk > 1:
        found = f"is rejection, with topk {draft.topk}"
        yield refuse(
            "features.rejection-needs-chain",
            "draft.acceptance",
            found,
            "rejection sampling is for chains (topk 1)",
            remedy,
        )
    if draft.method not in {Method.MTP, Method.EAGLE3}:
        found = f"is rejection, with method {draft.method.value}"
        why = "only mtp and eagle3 drafts hand over the probabilities it needs"
        yield refuse("features.rejection-method", "draft.acceptance", found, why, remedy)


def thresholds(draft: Draft) -> Iterator[Finding]:
    """The engine ignores thresholds under rejection and loosens acceptance under any other rule: only `relaxed` may carry them."""
    written = {
        "draft.accept_threshold_single": draft.accept_threshold_single,
        "draft.accept_threshold_accumulated": draft.accept_threshold_accumulated,
    }
    given = {key: value for key, value in written.items() if value is not None}
    if draft.acceptance is not Acceptance.RELAXED:
        for key, value in given.items():
            why = f"acceptance {draft.acceptance.value} has no threshold"
            remedy = "Leave it out; or say acceptance: relaxed, and everything it touches is labelled lossy."
            yield refuse("features.thresholds-need-relaxed", key, f"is {value:g}", why, remedy)
    elif not any(value < 1 for value in given.values()):
        why = "without a threshold below 1 nothing is relaxed"
        yield refuse(
            "features.relaxed-without-threshold",
            "draft.acceptance",
            "is relaxed",
            why,
            "Write a threshold, or target_only.",
        )


def relaxed_is_lossy(draft: Draft) -> Iterator[Finding]:
    if draft.acceptance is Acceptance.RELAXED:
        why = "accepted tokens need not be the target's"
        remedy = f"Plan, metrics and reports of this recipe carry the label {LOSSY}."
        yield warn("features.relaxed-is-lossy", "draft.acceptance", "is relaxed", why, remedy)


def simulated(recipe: Recipe) -> Iterator[Finding]:
    if recipe.simulated:
        why = "the engine fakes acceptance and answers with wrong text"
        yield warn(
            "features.simulated",
            "simulated",
            "is true",
            why,
            "Every number carries the label simulated; serve nobody with it.",
        )


def overlap(recipe: Recipe) -> Iterator[Finding]:
    if not recipe.engine.overlap:
        yield note("features.overlap-off", "engine.overlap", "is false", "production runs the overlap schedule")


def extra_args(recipe: Recipe, engine: EngineFacts) -> Iterator[Finding]:
    for number, extra in enumerate(recipe.engine.extra_args):
        where = f"engine.extra_args[{number}].flag"
        refused = next((known for known in engine.refused_flags if _names(extra.flag, known.flag)), None)
        if refused is not None:
            yield refuse("features.extra-arg-refused", where, f"is {extra.flag}", refused.why, refused.instead)
        else:
            yield warn(
                "features.extra-arg",
                where,
                f"hands {extra.flag} to the engine",
                "nothing here checks what it does to the rest of the plan",
            )
            yield from misread(extra, f"engine.extra_args[{number}]")


def not_enforced(recipe: Recipe) -> Iterator[Finding]:
    """A key that has its place in a recipe and nobody yet who acts on it: better said than believed."""
    if recipe.engine.image is not None:
        why = "`deploy` starts the engine that is installed here; rules look at the image, and a cluster will run it"
        yield note("features.not-enforced", "engine.image", "is written", why)


def _names(flag: str, known: str) -> bool:
    """The engine's parser takes an unambiguous beginning for the whole flag, so a beginning is as good as the name."""
    return flag.startswith(known[:-1]) or known.startswith(flag) if known.endswith("*") else known.startswith(flag)
