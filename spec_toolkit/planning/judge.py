"""Every rule about the engine, by what it reads: a launch, a prefill and a decode launch that belong together, a pod. Pure.

The rules are listed here in one place; what a rule says is in `rules/`. Those about a recipe's own keys are listed in `plan`.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding
from spec_toolkit.planning.deployed import Deployed
from spec_toolkit.planning.rules import (
    acceptance,
    admission,
    algorithm,
    backend,
    cache,
    capacity,
    cluster,
    disaggregation,
    draft_moe,
    draft_parallel,
    draining,
    dspark,
    engine_shape,
    formats,
    heads,
    images,
    lora,
    pairing,
    parallel,
    precision,
    prefill,
    probes,
    revisions,
)
from spec_toolkit.planning.situation import Situation

# A recipe names its acceptance rule and is judged by its own keys (rules/features); a command only has the flags that follow from one.
COMMAND_RULES = acceptance.RULES
LAUNCH_RULES = (
    *algorithm.RULES,
    *engine_shape.RULES,
    *dspark.RULES,
    *pairing.RULES,
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
    *cache.RULES,
    *lora.RULES,
    *images.RULES,
)
PAIR_RULES = disaggregation.PAIR_RULES
POD_RULES = (*cluster.POD_RULES, *probes.POD_RULES, *draining.POD_RULES)


def judge_launch(situation: Situation) -> Iterator[Finding]:
    """Of a recipe's launch; rules about the recipe's own keys are the plan's."""
    for rule in LAUNCH_RULES:
        yield from rule(situation)


def judge_command(situation: Situation) -> Iterator[Finding]:
    yield from judge_launch(situation)
    for rule in COMMAND_RULES:
        yield from rule(situation)


def judge_pair(prefill_side: Situation, decode_side: Situation) -> Iterator[Finding]:
    """What must be equal on both sides; each side alone is `judge_command`'s."""
    for rule in PAIR_RULES:
        yield from rule(prefill_side, decode_side)


def judge_pod(deployed: Deployed) -> Iterator[Finding]:
    """What surrounds the engine; its launch is `judge_command`'s."""
    for rule in POD_RULES:
        yield from rule(deployed)
