"""How a tiny sparse model is trained: dense first, then its indexers, then over their selections, then the MTP layer.

As DeepSeek-V3.2 was (arXiv 2512.02556, section 2.1): the indexers imitate dense attention while the rest stands still, and the
model then gets used to seeing only what they select.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads
from tokenizers import Tokenizer
from torch import Tensor, nn

from tiny_models.batches import copy_drill, packed
from tiny_models.deepseek_v3.stages import COPY_DRILL, TRAINED_STEPS, draft_losses, start_mtp_from_target
from tiny_models.optimise import Stage, optimise
from tiny_models.sparse_mla.network import Network

Say = Callable[[str], None]

DENSE = Stage(name="dense target", steps=450, learning_rate=3e-3)
INDEXERS = Stage(name="indexers", steps=60, learning_rate=3e-3)
SPARSE = Stage(name="sparse target", steps=60, learning_rate=5e-4)
MTP = Stage(name="mtp", steps=180, learning_rate=2e-3)


@dataclass(frozen=True, slots=True)
class Schedule:
    copy_drill: Stage = Stage(name="copy drill", steps=350, learning_rate=COPY_DRILL.learning_rate, decay=0.0)
    dense: Stage = DENSE
    indexers: Stage = INDEXERS
    sparse: Stage = SPARSE
    mtp: Stage = MTP


def train(
    network: Network, tokenizer: Tokenizer, random: Random, say: Say, schedule: Schedule | None = None
) -> None:
    schedule = schedule or Schedule()
    indexers = [p for layer in network.target_layers if layer.self_attn.indexer for p in layer.self_attn.indexer.parameters()]
    others = _without(network.parameters(), [*indexers, *network.mtp.parameters()])
    network.train()
    optimise(schedule.copy_drill, others, lambda _: token_loss(network, copy_drill(random), sparse=False), say)
    optimise(schedule.dense, others, lambda _: token_loss(network, packed(tokenizer, random), sparse=False), say)
    network.eval()  # the correction biases stay where they are
    optimise(schedule.indexers, indexers, lambda _: indexer_loss(network, packed(tokenizer, random)), say)
    network.train()
    optimise(schedule.sparse, others, lambda _: token_loss(network, packed(tokenizer, random), sparse=True), say)
    network.eval()
    start_mtp_from_target(network)
    start_indexer_of_mtp(network)
    network.mtp.train()
    optimise(schedule.mtp, list(network.mtp.parameters()), lambda _: mtp_loss(network, packed(tokenizer, random)), say)
    network.eval()


def _without(parameters: Iterable[nn.Parameter], left_out: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    out = {id(parameter) for parameter in left_out}
    return [parameter for parameter in parameters if id(parameter) not in out]


def token_loss(network: Network, ids: Tensor, *, sparse: bool) -> Tensor:
    logits = network.lm_head(network.hidden(ids, sparse=sparse))
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def indexer_loss(network: Network, ids: Tensor) -> Tensor:
    """How far each indexer is from the dense attention of its layer."""
    losses: list[Tensor] = []
    network.hidden(ids, sparse=False, losses=losses)
    return torch.stack(losses).mean()


def start_indexer_of_mtp(network: Network) -> None:
    owners = [layer.self_attn.indexer for layer in network.target_layers if layer.self_attn.indexer]
    network.mtp.self_attn.indexer.load_state_dict(owners[-1].state_dict())


def mtp_loss(network: Network, ids: Tensor) -> Tensor:
    """The drafts' loss, as DeepSeek-V3's, and the indexer's; neither reaches the other's parameters."""
    with torch.no_grad():
        hidden = network.hidden(ids)
        target = network.lm_head(hidden)
    losses: list[Tensor] = []
    states = network.draft_hidden(ids, hidden, TRAINED_STEPS, losses)
    return draft_losses(network, target, states) + torch.stack(losses).mean()
