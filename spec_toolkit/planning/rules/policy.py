"""Rules about what may be done to speculation at run time. Pure."""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, note, refuse, warn
from spec_toolkit.planning.rules.shape import STEPPING, Shape
from spec_toolkit.planning.runtime import derive_steps, reduced_steps, why_one_depth
from spec_toolkit.recipe.schema import Draft, Policy, Recipe
from spec_toolkit.terms import Comeback, Method, Mode

_HALF = 0.45  # of HBM: two engines, and what neither counts: contexts, graphs, buffers of collectives
_SPECULATING = frozenset({Mode.FULL, Mode.REDUCED, Mode.ZERO_DRAFT})


def allowed_modes(policy: Policy, draft: Draft) -> Iterator[Finding]:
    where, allow = "policy.allow", frozenset(policy.allow)
    names = ", ".join(mode.value for mode in policy.allow) or "nothing"
    if not allow & {Mode.FULL, Mode.AUTOREGRESSIVE}:
        yield refuse(
            "policy.no-start",
            where,
            f"allows {names}",
            "an engine starts in full or autoregressive",
            "Allow one of them.",
        )
    elif draft.method is Method.NONE and allow & _SPECULATING:
        yield refuse(
            "policy.nothing-to-draft",
            where,
            f"allows {names}",
            "method none only runs autoregressive",
            "Write [autoregressive].",
        )
    elif draft.method is not Method.NONE and Mode.FULL not in allow:
        yield warn(
            "policy.never-full",
            where,
            f"allows {names}",
            "the draft would never be used as the recipe shapes it",
            "Allow full.",
        )
    elif Mode.AUTOREGRESSIVE not in allow:
        why = "when speculation cannot start, the service does not start either"
        yield warn("policy.no-way-back", where, f"allows {names}", why, "Allow autoregressive.")


def between(policy: Policy, draft: Draft) -> Iterator[Finding]:
    """Reduced means fewer steps than num_steps, and some."""
    if draft.method not in STEPPING or draft.num_steps is None:
        return
    if Mode.REDUCED in policy.allow and draft.num_steps == 1:
        yield note(
            "policy.nothing-between", "policy.allow", "allows reduced, with num_steps 1", "one less is zero_draft"
        )
    for steps in policy.reduced_steps or ():
        if steps >= draft.num_steps:
            why = f"num_steps is {draft.num_steps}, and reduced means fewer"
            remedy = f"Write counts from 1 to {draft.num_steps - 1}, or leave the key out."
            yield refuse("policy.reduced-steps", "policy.reduced_steps", f"holds {steps}", why, remedy)
    if policy.reduced_steps == () and Mode.REDUCED in policy.allow:
        yield warn(
            "policy.no-reduced-steps",
            "policy.reduced_steps",
            "is empty, and policy.allow has reduced",
            "no step count lies between none and all",
            "Write one, leave the key out, or leave reduced out.",
        )
    if policy.reduced_steps and Mode.REDUCED not in policy.allow:
        yield warn("policy.reduced-unused", "policy.reduced_steps", "is written", "policy.allow leaves reduced out")


def windows(policy: Policy) -> Iterator[Finding]:
    """A move is judged by a window of its own, so the window cannot be longer than the time between two moves."""
    if policy.window_seconds > policy.dwell_seconds:
        yield correct(
            "policy.window",
            "policy.window_seconds",
            f"is {policy.window_seconds:g} s",
            f"dwell_seconds is {policy.dwell_seconds:g}, and a move is judged by a window of its own",
            f"Planned with {policy.dwell_seconds:g}; write that, or a longer dwell_seconds.",
        )


def comes_back(recipe: Recipe, shape: Shape | None) -> Iterator[Finding]:
    """Speculation that an autoregressive engine stood in for returns at a low rung, where there is one, and at a good moment."""
    policy = recipe.policy
    if shape is None or not {Mode.FULL, Mode.AUTOREGRESSIVE} <= {*policy.allow}:
        return
    fixed = not derive_steps(recipe, shape)
    if fixed or not (Mode.ZERO_DRAFT in policy.allow or reduced_steps(policy, recipe.draft)):
        names = ", ".join(mode.value for mode in policy.allow)
        why = (
            "the engine cannot begin below full"
            if fixed
            else "nothing is allowed between them, and it comes back below full"
        )
        yield warn(
            "policy.stays-autoregressive",
            "policy.allow",
            f"allows {names}",
            f"after a crash speculation does not come back by itself: {why}",
            "Bring it back with `spec-toolkit deploy RECIPE --replace`."
            if fixed
            else "Allow zero_draft or reduced, or bring it back with `spec-toolkit hold NAME full`.",
        )
    elif policy.comeback is Comeback.IN_PLACE:
        yield note(
            "policy.waits-to-return",
            "policy.comeback",
            "is in_place",
            "after a crash speculation comes back when nothing runs or queues for a window: under steady load it does not",
            "`spec-toolkit hold NAME zero_draft` does not wait; beside needs memory for two engines.",
        )


def room_and_time(recipe: Recipe) -> Iterator[Finding]:
    """What a return beside, and a stream that waits for an engine, need."""
    policy, fraction = recipe.policy, recipe.limits.memory_fraction
    if policy.comeback is Comeback.BESIDE and not recipe.is_rehearsal and (fraction is None or fraction > _HALF):
        yield warn(
            "policy.room-beside",
            "policy.comeback",
            f"is beside, and limits.memory_fraction is {'open' if fraction is None else f'{fraction:g}'}",
            "two engines hold their memory on the same GPUs then, and one leaves no room for the other",
            f"Write in_place, or a memory_fraction of {_HALF:g} at most.",
        )
    if policy.resume_deadline_seconds < policy.ready_seconds:
        yield note(
            "policy.deadline-before-ready",
            "policy.resume_deadline_seconds",
            f"is {policy.resume_deadline_seconds:g} s",
            f"ready_seconds is {policy.ready_seconds:g}: streams may be ended while the engine they wait for still starts",
        )


def one_depth(recipe: Recipe, shape: Shape | None) -> Iterator[Finding]:
    """An engine that cannot change its steps has full and autoregressive only, and the way between them is a restart."""
    allowed = {*recipe.policy.allow} & {Mode.REDUCED, Mode.ZERO_DRAFT}
    if shape is None or recipe.draft.method is Method.NONE or derive_steps(recipe, shape) or not allowed:
        return
    names = ", ".join(sorted(mode.value for mode in allowed))
    what = why_one_depth(recipe)
    yield warn(
        "policy.one-depth",
        "policy.allow",
        f"allows {names}",
        f"the engine cannot change the steps of {what} while it serves",
        "It runs in full or autoregressive.",
    )
