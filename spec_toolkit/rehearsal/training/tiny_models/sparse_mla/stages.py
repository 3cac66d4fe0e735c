"""How a tiny sparse model is trained: from the tiny DeepSeek-V3, as DeepSeek-V3.2 was from V3.1 (arXiv 2512.02556, section 2.1).

What the new architecture changes is learnt densely; the indexers then imitate that attention while the rest stands still; the
target gets used to seeing only what they select; and the MTP layer, its own indexer included, follows on the frozen target.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads
from tokenizers import Tokenizer
from torch import Tensor, nn

from tiny_models.batches import packed
from tiny_models.deepseek_v3.network import Network as DeepseekV3
from tiny_models.deepseek_v3.stages import TRAINED_STEPS, draft_losses
from tiny_models.optimise import Stage, optimise
from tiny_models.sparse_mla.config import DEEPSEEK_V32, Config
from tiny_models.sparse_mla.network import Network

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    dense: Stage | None = None  # None: the dense model is what it is
    indexers: Stage
    sparse: Stage
    mtp: Stage


def schedule_of(config: Config) -> Schedule:
    """DeepSeek-V3.2 is DeepSeek-V3 and indexers; the GLMs differ in rope, routing and, 5.2, in depth."""
    new = config.model_type != DEEPSEEK_V32.model_type
    return Schedule(
        dense=Stage(name="dense target", steps=150, learning_rate=1.5e-3) if new else None,
        indexers=Stage(name="indexers", steps=60, learning_rate=3e-3),
        sparse=Stage(name="sparse target", steps=60, learning_rate=5e-4),
        mtp=Stage(name="mtp", steps=130 if new else 70, learning_rate=1.5e-3),
    )


def train(network: Network, tokenizer: Tokenizer, random: Random, say: Say, schedule: Schedule | None = None) -> None:
    """The network is one that `begin_from` has filled."""
    schedule = schedule or schedule_of(network.config)
    owners = [layer.self_attn.indexer for layer in network.target_layers if layer.self_attn.indexer]
    indexers = [parameter for indexer in owners for parameter in indexer.parameters()]
    others = _without(network.parameters(), [*indexers, *network.mtp.parameters()])
    network.train()
    if schedule.dense:
        optimise(schedule.dense, others, lambda _: token_loss(network, packed(tokenizer, random), sparse=False), say)
    network.eval()  # the correction biases stay where they are
    optimise(schedule.indexers, indexers, lambda _: indexer_loss(network, packed(tokenizer, random)), say)
    network.train()
    optimise(schedule.sparse, others, lambda _: token_loss(network, packed(tokenizer, random), sparse=True), say)
    network.eval()
    network.mtp.self_attn.indexer.load_state_dict(owners[-1].state_dict())
    network.mtp.train()
    optimise(schedule.mtp, list(network.mtp.parameters()), lambda _: mtp_loss(network, packed(tokenizer, random)), say)
    network.eval()


def _without(parameters: Iterable[nn.Parameter], left_out: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    out = {id(parameter) for parameter in left_out}
    return [parameter for parameter in parameters if id(parameter) not in out]


@torch.no_grad()
def begin_from(network: Network, trained: DeepseekV3) -> None:
    """Take over what the two have in common. Layers beyond the trained ones start as copies of the last that add nothing."""
    model, source = network.model, trained.model
    model.embed_tokens.load_state_dict(source.embed_tokens.state_dict())
    model.norm.load_state_dict(source.norm.state_dict())
    network.lm_head.load_state_dict(trained.lm_head.state_dict())
    last = len(trained.target_layers) - 1
    for index, layer in enumerate(network.target_layers):
        layer.load_state_dict(trained.target_layers[min(index, last)].state_dict(), strict=False)
        if index > last:
            layer.self_attn.o_proj.weight.zero_()
            for part in (*layer.mlp.experts, layer.mlp.shared_experts):
                part.down_proj.weight.zero_()
    network.mtp.load_state_dict(trained.mtp.state_dict(), strict=False)


def token_loss(network: Network, ids: Tensor, *, sparse: bool) -> Tensor:
    logits = network.lm_head(network.hidden(ids, sparse=sparse))
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def indexer_loss(network: Network, ids: Tensor) -> Tensor:
    """How far each indexer is from the dense attention of its layer."""
    losses: list[Tensor] = []
    network.hidden(ids, sparse=False, losses=losses)
    return torch.stack(losses).mean()


def mtp_loss(network: Network, ids: Tensor) -> Tensor:
    """The drafts' loss, as DeepSeek-V3's, and the indexer's; neither reaches the other's parameters."""
    with torch.no_grad():
        hidden = network.hidden(ids)
        target = network.lm_head(hidden)
    losses: list[Tensor] = []
    states = network.draft_hidden(ids, hidden, TRAINED_STEPS, losses)
    return draft_losses(network, target, states) + torch.stack(losses).mean()
