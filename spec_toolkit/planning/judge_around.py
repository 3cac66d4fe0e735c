"""Every rule about what stands around one launch: its other half, and the pod it runs in. Pure.

Apart from `judge`, because most of what is checked is one launch alone, and half of the time an answer takes is imports.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding
from spec_toolkit.planning.deployed import Deployed
from spec_toolkit.planning.rules import cluster, disaggregation, draining, group, probes
from spec_toolkit.planning.situation import Situation

PAIR_RULES = disaggregation.PAIR_RULES
GROUP_RULES = group.GROUP_RULES
POD_RULES = (*cluster.POD_RULES, *probes.POD_RULES, *draining.POD_RULES)


def judge_pair(prefill_side: Situation, decode_side: Situation) -> Iterator[Finding]:
    """What must be equal on both sides of a launch whose prefill and decode are apart."""
    for rule in PAIR_RULES:
        yield from rule(prefill_side, decode_side)


def judge_group(leader: Situation, worker: Situation) -> Iterator[Finding]:
    """What must be equal of two launches that are ranks of one engine."""
    for rule in GROUP_RULES:
        yield from rule(leader, worker)


def judge_pod(deployed: Deployed) -> Iterator[Finding]:
    for rule in POD_RULES:
        yield from rule(deployed)
