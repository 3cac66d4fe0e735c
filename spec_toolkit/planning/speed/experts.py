"""What a verify pass costs a mixture of experts: every token of it brings experts of its own. Pure.

n tokens that each choose k of N experts, independently and uniformly, touch N x (1 - (1 - k/N)^n) of them (theory.md, section 3). Real
routing is neither: neighbours of one request choose alike, and loads are uneven; both lower the count.
"""

import math

from msgspec import Struct

from spec_toolkit.facts.model import Experts


def touched_experts(tokens: float, experts: Experts) -> float:
    """Distinct routed experts of one layer that a pass over so many tokens loads."""
    share = experts.per_token / experts.routed
    return experts.routed * (1 - math.pow(1 - share, tokens))


class PassCost(Struct, frozen=True, kw_only=True):
    """Seconds of one forward pass: it takes as long as the slower of reading weights and computing tokens.

    Reading grows only until all experts are touched, computing with every token: so a wide verify is dear at batch 1, where each of its
    tokens loads experts of its own, cheap where they are loaded anyway, and dear again where the pass is bound by computing.
    """

    experts: Experts
    fixed_seconds: float  # launches, sampling
    dense_seconds: float  # reading what every token needs
    expert_seconds: float  # reading one expert of every layer
    token_seconds: float  # computing one token

    def seconds(self, tokens: float) -> float:
        reading = self.dense_seconds + self.expert_seconds * touched_experts(tokens, self.experts)
        return self.fixed_seconds + max(reading, self.token_seconds * tokens)
