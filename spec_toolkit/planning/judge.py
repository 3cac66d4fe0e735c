"""Every rule about one launch of the engine, in one place; what a rule says is in `rules/`. Pure.

Those about a recipe's own keys are listed in `plan`, those about several launches and about pods in `judge_around`.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding
from spec_toolkit.planning.rules import (
    acceptance,
    admission,
    algorithm,
    backend,
    cache,
    capacity,
    draft_moe,
    draft_parallel,
    dspark,
    engine_shape,
    formats,
    heads,
    images,
    lora,
    pairing,
    parallel,
    positions,
    precision,
    prefill,
    requests,
    revisions,
    values,
)
from spec_toolkit.planning.situation import Situation

# A recipe's acceptance is judged by its own keys (rules/features), before anything is derived from them; a command has only the flags
# that follow.
COMMAND_RULES = (*acceptance.RULES, *revisions.COMMAND_RULES)
LAUNCH_RULES = (
    *values.RULES,
    *algorithm.RULES,
    *engine_shape.RULES,
    *dspark.RULES,
    *pairing.RULES,
    *positions.RULES,
    *heads.RULES,
    *formats.RULES,
    *revisions.RULES,
    *backend.RULES,
    *precision.RULES,
    *draft_moe.RULES,
    *parallel.RULES,
    *draft_parallel.RULES,
    *admission.RULES,
    *capacity.RULES,
    *prefill.RULES,
    *requests.RULES,
    *cache.RULES,
    *lora.RULES,
    *images.RULES,
)


def judge_launch(situation: Situation) -> Iterator[Finding]:
    """Of a recipe's launch; rules about the recipe's own keys are the plan's."""
    of_values = [finding for rule in values.RULES for finding in rule(situation)]
    yield from of_values
    sound = values.without_refused(situation, of_values)
    for rule in LAUNCH_RULES[len(values.RULES) :]:
        yield from rule(sound)


def judge_command(situation: Situation) -> Iterator[Finding]:
    yield from judge_launch(situation)
    for rule in COMMAND_RULES:
        yield from rule(situation)
