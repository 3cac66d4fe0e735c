"""What a verify pass costs a mixture of experts: every token of it brings experts of its own. Pure.

n tokens that each choose k of N experts, independently and uniformly, touch N x (1 - (1 - k/N)^n) of them (theory.md, section 3). Real
routing is neither: neighbours of one request choose alike, and loads are uneven; both lower the count.
"""

import math

from spec_toolkit.facts.model import Experts


def touched_experts(tokens: float, experts: Experts) -> float:
    """Distinct routed experts of one layer that a pass over so many tokens loads."""
    share = experts.per_token / experts.routed
    return experts.routed * (1 - math.pow(1 - share, tokens))
