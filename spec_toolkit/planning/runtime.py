"""What may change while an engine serves: the step counts it is started with, and the limits its policy reads. Pure.

Every step count costs the engine graphs and an attention workspace, so the list is short: none, the reduced ones, and the recipe's own.
None is always there, allowed or not: a draft that fails needs it.
"""

from spec_toolkit.facts.evidence import Evidence
from spec_toolkit.planning.extra_arguments import arguments_of_extra
from spec_toolkit.planning.limits import Limits
from spec_toolkit.planning.rules.evidence import is_usable
from spec_toolkit.planning.rules.lora import serves_adapters
from spec_toolkit.planning.rules.shape import Shape
from spec_toolkit.planning.speed.speedup import break_evens
from spec_toolkit.recipe.schema import Draft, Policy, Recipe
from spec_toolkit.terms import Method, Mode

# Methods whose steps the engine can change while it serves, chains only; its other workers know one depth.
_CHANGEABLE = frozenset({Method.MTP, Method.EAGLE3})
_PROBES_APART = 10  # a probe, and then this many times its length without one at least: a share of about a tenth


def derive_steps(recipe: Recipe, shape: Shape | None) -> tuple[int, ...]:
    """Step counts the engine can be set to, ascending; empty where it runs at one depth only, or drafts nothing."""
    if shape is None or recipe.draft.method is Method.NONE or why_one_depth(recipe) is not None:
        return ()
    return tuple(sorted({0, *reduced_steps(recipe.policy, recipe.draft), shape.num_steps}))


def why_one_depth(recipe: Recipe) -> str | None:
    """What keeps the engine from changing its steps while it serves; None: nothing, or nothing is drafted."""
    draft, added = recipe.draft, arguments_of_extra(recipe.engine.extra_args)
    if draft.method is Method.NONE:
        return None
    if draft.topk != 1 or draft.method not in _CHANGEABLE:
        return f"method {draft.method.value} with topk {draft.topk}"
    beside = (
        (serves_adapters(added), "a draft beside adapters"),
        (added.enable_multi_layer_eagle, "a draft of several layers"),
        (added.enable_two_batch_overlap, "a draft beside two-batch overlap"),
        (added.enable_pdmux, "a draft beside PD multiplexing"),
    )
    return next((what for holds, what in beside if holds), None)


def reduced_steps(policy: Policy, draft: Draft) -> tuple[int, ...]:
    """Those between none and all; half of all where the recipe leaves them open, none where `reduced` is not allowed."""
    if draft.num_steps is None or Mode.REDUCED not in policy.allow:
        return ()
    written = policy.reduced_steps
    chosen = (draft.num_steps // 2,) if written is None else written
    return tuple(steps for steps in sorted(set(chosen)) if 0 < steps < draft.num_steps)


def derive_limits(recipe: Recipe, steps: tuple[int, ...], *, sha256: str, evidence: Evidence | None = None) -> Limits:
    """`steps` as `derive_steps` gives them. No break-even where the evidence is of something else, or there is none."""
    measured = evidence if evidence is not None and is_usable(recipe, evidence) else None
    policy = recipe.policy
    window = min(policy.window_seconds, policy.dwell_seconds)
    probe = 2 * policy.dwell_seconds
    share = 1 / (_PROBES_APART + 1)
    longest = max(7200.0, probe / share, policy.cool_down_seconds, policy.crash_cool_down_seconds)
    return Limits(
        identity=f"{sha256} sglang {recipe.engine.sglang}",
        steps=steps or (0,),
        modes=_modes(policy, steps),
        break_even=break_evens(measured, steps) if measured else (),
        dwell_seconds=policy.dwell_seconds,
        window_seconds=window,
        queue_high=policy.queue_high,
        queue_low=min(1, policy.queue_high - 1),
        cool_down_seconds=policy.cool_down_seconds,
        crash_cool_down_seconds=policy.crash_cool_down_seconds,
        back_off_maximum_seconds=longest,
        fault_memory_seconds=max(86_400.0, 2 * longest),
        probe_seconds=probe,
        probe_share=share,
    )


def _modes(policy: Policy, steps: tuple[int, ...]) -> tuple[Mode, ...]:
    """Allowed and possible: what drafts needs a step count, and what lies between needs one between."""
    possible = {Mode.AUTOREGRESSIVE} | ({Mode.ZERO_DRAFT, Mode.FULL} if len(steps) > 1 else set())
    possible |= {Mode.REDUCED} if len(steps) > 2 else set()
    allowed = {*policy.allow, Mode.AUTOREGRESSIVE}  # an engine may be lost, whatever is allowed
    return tuple(mode for mode in Mode if mode in possible & allowed)
