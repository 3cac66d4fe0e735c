"""What of a sparse model's selection the replay of rounds can see: errors planted in the network that replays."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tiny_models.prompts import read_prompts, read_tokenizer, token_ids
from tiny_models.replay import Replay, replay
from tiny_models.sparse_mla.checkpoint import read_checkpoint
from tiny_models.sparse_mla.indexer import HIDDEN, Indexer
from tiny_models.sparse_mla.network import Network
from tiny_models.tokenizer import EOS_ID
from tiny_models.yarn import rotate_halves

pytestmark = pytest.mark.slow

MODEL = Path(__file__).resolve().parents[2] / "spec_toolkit" / "rehearsal" / "models" / "glm52_tiny"
TOKENS = 40


def target_indexers(network: Network) -> list[Indexer]:
    return [layer.self_attn.indexer for layer in network.target_layers if layer.self_attn.indexer]


def rotate_by_halves(network: Network) -> None:
    for indexer in target_indexers(network):
        indexer.rotate = rotate_halves


def see_everything(network: Network) -> None:
    for indexer in target_indexers(network):
        indexer.topk = 4096


def forget_key_norms_bias(network: Network) -> None:
    for indexer in target_indexers(network):
        indexer.k_norm.bias.data.zero_()


def ties_to_the_later(network: Network) -> None:
    for indexer in (*target_indexers(network), network.mtp.self_attn.indexer):
        indexer.select = lambda scores, topk=indexer.topk: latest(scores, topk)


def latest(scores: torch.Tensor, topk: int) -> torch.Tensor:
    best = torch.sort(scores.flip(-1), dim=-1, descending=True, stable=True).indices[..., :topk]
    mask = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, scores.shape[-1] - 1 - best, value=True)
    return mask & (scores > HIDDEN)


def select_anew_in_each_draft_step(network: Network) -> None:
    network.mtp.shares_selection = False


def draft_sees_everything(network: Network) -> None:
    network.mtp.self_attn.indexer.topk = 4096


def neighbours_indexer_in_the_mtp_layer(network: Network) -> None:
    network.mtp.self_attn.indexer.load_state_dict(target_indexers(network)[-1].state_dict())


@dataclass(frozen=True)
class Seen:
    same_tokens: int
    same_rounds: int
    same_drafts: int


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = read_tokenizer(MODEL)
    return [token_ids(tokenizer, prompt) for prompt in read_prompts(MODEL, per_bucket=2)]


def replays_of(network: Network, prompts: list[list[int]]) -> list[Replay]:
    return [replay(network, ids, 3, TOKENS, EOS_ID) for ids in prompts]


@pytest.fixture(scope="module")
def right(prompts: list[list[int]]) -> list[Replay]:
    return replays_of(read_checkpoint(MODEL), prompts)


def seen(planted: Callable[[Network], None], prompts: list[list[int]], right: list[Replay]) -> Seen:
    network = read_checkpoint(MODEL)
    planted(network)
    found = list(zip(replays_of(network, prompts), right, strict=True))
    return Seen(
        sum(a.output_ids == b.output_ids for a, b in found),
        sum(a.rounds == b.rounds for a, b in found),
        sum(a.accepted_drafts == b.accepted_drafts for a, b in found),
    )


@pytest.mark.parametrize("planted", [rotate_by_halves, see_everything, forget_key_norms_bias, ties_to_the_later])
def test_an_error_in_the_targets_selection_changes_tokens(planted, prompts, right):
    assert seen(planted, prompts, right).same_tokens < len(prompts)


@pytest.mark.parametrize(
    "planted", [select_anew_in_each_draft_step, draft_sees_everything, neighbours_indexer_in_the_mtp_layer]
)
def test_an_error_in_the_drafts_selection_changes_no_token_and_some_rounds(planted, prompts, right):
    found = seen(planted, prompts, right)
    assert found.same_tokens == len(prompts)
    assert found.same_drafts < len(prompts)


def test_the_selection_is_smaller_than_most_contexts(prompts, right):
    """Or nothing above would say anything of it."""
    rows = [
        position
        for ids, told in zip(prompts, right, strict=True)
        for position in range(len(ids) + len(told.output_ids))
    ]
    assert sum(position >= 32 for position in rows) > len(rows) / 2
