"""What the engine must do with one greedy request, computed from the checkpoint alone, in torch.

Speculation that is lossless hides every error in the draft: the tokens stay the target's. The number of rounds does not, so a
replay that gives the engine's rounds request by request shows that the draft was loaded and is run as it was trained.

Theory of operation. Greedy acceptance commits the target's own argmax chain, whatever is drafted. Given that chain, the round
that starts at any position accepts the drafts up to the first that differs from the chain, and what is drafted there
depends on the chain only. So one pass over the chain tells for every position how many drafts a round starting there would
have accepted, and the rounds of the request are a walk through that table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

import torch
from torch import Tensor


class Drafting(Protocol):
    """A target with its draft, of any family."""

    def lm_head(self, states: Tensor) -> Tensor: ...
    def new_cache(self) -> list: ...
    def hidden(self, ids: Tensor, cache: list | None = None) -> Tensor: ...
    def draft_hidden(self, ids: Tensor, hidden: Tensor, num_steps: int) -> list[Tensor]: ...
    def draft_head(self, state: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Replay:
    """One request: its tokens, and the drafts each round accepted."""

    output_ids: tuple[int, ...]  # eos included where it was reached
    accepted_drafts: tuple[int, ...]  # per round, 0..num_steps; the bonus token is not counted
    num_steps: int

    @property
    def rounds(self) -> int:
        return len(self.accepted_drafts)

    @property
    def accepted_by_position(self) -> tuple[int, ...]:
        """Rounds in which the draft of each step was accepted, [num_steps]; never rises along the chain."""
        return tuple(sum(a >= step for a in self.accepted_drafts) for step in range(1, self.num_steps + 1))

    @property
    def emitted_length(self) -> float:
        """Accepted drafts and one bonus token per round, 1..num_steps + 1. Nothing is trimmed from the last round."""
        return 1 + sum(self.accepted_drafts) / self.rounds


@torch.inference_mode()
def replay(
    network: Drafting, prompt_ids: Sequence[int], num_steps: int, max_new_tokens: int, eos_id: int | None = None
) -> Replay:
    """Greedy generation with chain drafting. The first token comes from the prompt's pass, each later one from a round."""
    chain = greedy_chain(network, prompt_ids, max_new_tokens + num_steps)
    accepts = accepted_at(network, list(prompt_ids) + chain, num_steps)
    wanted = output_length(chain, max_new_tokens, eos_id)
    accepted: list[int] = []
    emitted = 1
    while emitted < wanted:
        accepted.append(accepts[len(prompt_ids) + emitted - 2])
        emitted += accepted[-1] + 1
    return Replay(tuple(chain[:wanted]), tuple(accepted), num_steps)


def greedy_chain(network: Drafting, prompt_ids: Sequence[int], count: int) -> list[int]:
    """The target's argmax continuation, through any eos: the last round is verified past the end of the request."""
    cache = network.new_cache()
    ids = torch.tensor([list(prompt_ids)])
    chain: list[int] = []
    for _ in range(count):
        logits = network.lm_head(network.hidden(ids, cache)[:, -1])
        ids = logits.argmax(-1, keepdim=True)
        chain.append(int(ids))
    return chain


def accepted_at(network: Drafting, ids: Sequence[int], num_steps: int) -> list[int]:
    """For each position i, the drafts accepted by a round that starts from the target's state at i with token i + 1 known.

    Only positions with num_steps + 1 tokens after them are listed.
    """
    tokens = torch.tensor([list(ids)])
    states = network.draft_hidden(tokens, network.hidden(tokens), num_steps)
    drafted = [network.draft_head(state)[0].argmax(-1).tolist() for state in states]
    return [
        sum(1 for _ in takewhile(lambda step: drafted[step][i] == ids[i + 2 + step], range(num_steps)))  # noqa: B023 - used at once
        for i in range(len(ids) - num_steps - 1)
    ]


def output_length(chain: Sequence[int], max_new_tokens: int, eos_id: int | None) -> int:
    """Tokens of the answer: up to and with the first eos, at most `max_new_tokens`."""
    until_eos = chain.index(eos_id) + 1 if eos_id in chain else max_new_tokens
    return min(until_eos, max_new_tokens)
