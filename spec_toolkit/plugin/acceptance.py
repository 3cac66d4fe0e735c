"""Keeps the rule of acceptance what the engine was started with. Pure.

The engine lets its accept thresholds be changed while it serves. Any value but 1 accepts drafts the target would not have sampled (or
refuses some it would have), so the output is no longer the target's, and nobody is told.
"""

from collections.abc import Mapping

EXACT = 1.0  # the threshold at which acceptance samples from the target itself


def changes_acceptance(requested: Mapping[str, object], in_force: Mapping[str, float]) -> bool:
    """Whether a threshold, by its name, would become anything but exact or what it is."""
    return any(name in requested and requested[name] not in (EXACT, now) for name, now in in_force.items())
