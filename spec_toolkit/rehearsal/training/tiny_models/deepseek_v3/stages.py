"""How the tiny DeepSeek-V3 is trained: copy drill, target, then the MTP layer on the frozen target."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads
from tokenizers import Tokenizer
from torch import Tensor

from tiny_models.batches import copy_drill, packed
from tiny_models.deepseek_v3.network import Network
from tiny_models.optimise import Stage, optimise
from tiny_models.replay import Drafting

TRAINED_STEPS = 3  # draft steps the MTP layer is unrolled for

# The drill's constant rate matters: under a decaying one the copy circuit did not form.
COPY_DRILL = Stage(name="copy drill", steps=450, learning_rate=3e-3, decay=0.0)
TARGET = Stage(name="target", steps=750, learning_rate=3e-3)
MTP = Stage(name="mtp", steps=250, learning_rate=2e-3)


@dataclass(frozen=True, slots=True)
class Schedule:
    copy_drill: Stage = COPY_DRILL
    target: Stage = TARGET
    mtp: Stage = MTP


def train(
    network: Network, tokenizer: Tokenizer, random: Random, say: Callable[[str], None], schedule: Schedule | None = None
) -> None:
    schedule = schedule or Schedule()
    _train_target(network, tokenizer, random, say, schedule)
    _train_mtp(network, tokenizer, random, say, schedule)
    network.eval()


def _train_target(
    network: Network, tokenizer: Tokenizer, random: Random, say: Callable[[str], None], schedule: Schedule
) -> None:
    network.train()
    own = {id(p) for p in network.mtp.parameters()}
    parameters = [p for p in network.parameters() if id(p) not in own]
    optimise(schedule.copy_drill, parameters, lambda _: next_token_loss(network, copy_drill(random)), say)
    optimise(
        schedule.target,
        parameters,
        lambda _: next_token_loss(network, packed(tokenizer, random)),
        say,
    )


def next_token_loss(network: Network, ids: Tensor) -> Tensor:
    logits = network.lm_head(network.hidden(ids))
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def _train_mtp(
    network: Network, tokenizer: Tokenizer, random: Random, say: Callable[[str], None], schedule: Schedule
) -> None:
    network.eval()  # the target's correction biases stay where they are
    start_mtp_from_target(network)
    network.mtp.train()
    optimise(
        schedule.mtp,
        list(network.mtp.parameters()),
        lambda _: draft_loss(network, packed(tokenizer, random)),
        say,
    )


@torch.no_grad()
def start_mtp_from_target(network: Network) -> None:
    """Begin as a copy of the last target layer that reads the mean of token and state; from random weights it takes twice as long."""
    mtp, hidden = network.mtp, network.config.hidden_size
    mtp.load_state_dict(network.target_layers[-1].state_dict(), strict=False)
    mtp.shared_head["norm"].load_state_dict(network.model.norm.state_dict())
    mtp.eh_proj.weight.mul_(0.3).add_(0.5 * torch.eye(hidden).repeat(1, 2))


def draft_loss(network: Network, ids: Tensor) -> Tensor:
    """Cross-entropy of each draft step against the target's own prediction: half its distribution, half its argmax."""
    with torch.no_grad():
        hidden = network.hidden(ids)
        target = network.lm_head(hidden)
    return draft_losses(network, target, network.draft_hidden(ids, hidden, TRAINED_STEPS))


def draft_losses(network: Drafting, target: Tensor, states: Sequence[Tensor]) -> Tensor:
    """target: its logits [batch, tokens, vocabulary]; states: of each draft step, [batch, tokens, hidden]."""
    usable = target.shape[1] - TRAINED_STEPS
    loss = torch.zeros(())
    for step, state in enumerate(states, start=1):
        drafted = network.lm_head(state)[:, :usable].flatten(0, 1)
        wanted = target.roll(-step, 1)[:, :usable].flatten(0, 1)
        soft, hard = F.cross_entropy(drafted, wanted.softmax(-1)), F.cross_entropy(drafted, wanted.argmax(-1))
        loss = loss + (soft + hard) / (2 * TRAINED_STEPS)
    return loss
