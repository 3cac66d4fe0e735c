"""How a tiny Gemma 4 is trained: the target, then the assistant on the frozen target. There is no copy drill: it takes as long again."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads
from tokenizers import Tokenizer
from torch import Tensor

from tiny_models.batches import packed
from tiny_models.gemma4.network import Network
from tiny_models.optimise import Stage, optimise

TRAINED_STEPS = 3  # draft steps the assistant is unrolled for


TARGET = Stage(name="target", steps=180, learning_rate=4e-3)
ASSISTANT = Stage(name="assistant", steps=140, learning_rate=4e-3)


@dataclass(frozen=True, slots=True)
class Schedule:
    target: Stage = TARGET
    assistant: Stage = ASSISTANT
    fresh: bool = True  # the assistant begins from the target; False: both are trained already


AGAIN = Schedule(  # after `begin_as`: only what the trained pair lacks is new
    target=Stage(name="target", steps=60, learning_rate=2e-3),
    assistant=Stage(name="assistant", steps=60, learning_rate=2e-3),
    fresh=False,
)


def train(
    network: Network, tokenizer: Tokenizer, random: Random, say: Callable[[str], None], schedule: Schedule | None = None
) -> None:
    schedule = schedule or Schedule()
    target, assistant = list(network.target.parameters()), list(network.assistant.parameters())
    optimise(schedule.target, target, lambda _: next_token_loss(network, packed(tokenizer, random)), say)
    if schedule.fresh:
        start_assistant_from_target(network)
    optimise(schedule.assistant, assistant, lambda _: draft_loss(network, packed(tokenizer, random)), say)
    network.eval()


@torch.no_grad()
def begin_as(network: Network, trained: Network) -> None:
    """Take over the weights of a trained pair of the same sizes. Experts, which it lacks, begin almost silent."""
    for mine, theirs in ((network.target, trained.target), (network.assistant, trained.assistant)):
        for name in mine.load_state_dict(theirs.state_dict(), strict=False).unexpected_keys:
            raise ValueError(f"{name}: the trained pair has it and the new one does not; they are not of one kind.")
    if network.config.text.enable_moe_block:
        for layer in network.target.layers:
            layer.post_feedforward_layernorm_2.weight.fill_(0.1)


def next_token_loss(network: Network, ids: Tensor) -> Tensor:
    logits = network.lm_head(network.hidden(ids))
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


@torch.no_grad()
def start_assistant_from_target(network: Network) -> None:
    """Begin with the target's embedding as head, squeezed by one projection into the assistant's width, and with that
    projection on both sides: what the assistant is handed, it hands on. From random weights it learns more slowly.
    """
    assistant, backbone = network.assistant, network.config.text.hidden_size
    narrow = assistant.post_projection.out_features, assistant.post_projection.in_features
    squeeze = torch.linalg.qr(torch.randn(narrow)).Q.T * (backbone / narrow[1]) ** 0.5  # [assistant, backbone]
    assistant.model.embed_tokens.weight.copy_(network.target.embed_tokens.weight @ squeeze.T)
    assistant.post_projection.weight.copy_(squeeze.T * (narrow[1] / backbone) ** 0.5)
    assistant.pre_projection.weight.mul_(0.3).add_(0.5 * squeeze.repeat(1, 2))


def draft_loss(network: Network, ids: Tensor) -> Tensor:
    """Cross-entropy of each draft step against the target's own prediction: half its distribution, half its argmax."""
    with torch.no_grad():
        seen = network.see(ids)
        target = network.lm_head(seen.states)
    usable = ids.shape[1] - TRAINED_STEPS
    loss = torch.zeros(())
    for step, state in enumerate(network.draft_states(ids, seen.states, seen.shared, TRAINED_STEPS), start=1):
        wanted, rows = target.roll(-step, 1)[:, :usable].flatten(0, 1), state[:, :usable].flatten(0, 1)
        drafted = network.every_draft_logit(rows)
        soft, hard = F.cross_entropy(drafted, wanted.softmax(-1)), F.cross_entropy(drafted, wanted.argmax(-1))
        loss = loss + (soft + hard) / (2 * TRAINED_STEPS)
        if network.config.assistant.use_ordered_embeddings:
            masked = network.assistant.masked_embedding
            centroid = masked.centroid_of_token()[wanted.argmax(-1)]
            loss = loss + F.cross_entropy(masked.centroids(rows), centroid) / TRAINED_STEPS
    return loss
