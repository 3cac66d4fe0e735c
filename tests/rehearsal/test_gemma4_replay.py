"""What of a wrong loader or a wrong call the replay of a tiny Gemma 4 shows, and what it hides."""

from collections.abc import Callable
from statistics import mean

import pytest
import torch
from tiny_models.gemma4.config import FULL, SLIDING
from tiny_models.gemma4.network import Network, Seen
from tiny_models.prompts import read_prompts, read_tokenizer, token_ids
from tiny_models.replay import Replay, replay
from tiny_models.tokenizer import EOS_ID

from tests.rehearsal.gemma_models import COMMITTED, target_folder, trained

pytestmark = pytest.mark.slow

FAMILY = "gemma4_dense"
PlantedError = Callable[[Network], None]


def replays_of(network: Network, family: str = FAMILY, per_bucket: int = 2) -> list[Replay]:
    folder = target_folder(family)
    tokenizer = read_tokenizer(folder)
    prompts = read_prompts(folder, per_bucket)
    return [replay(network, token_ids(tokenizer, prompt), 3, 48, EOS_ID) for prompt in prompts]


@pytest.fixture(scope="module")
def right() -> list[Replay]:
    return replays_of(trained(FAMILY))


@pytest.mark.parametrize("family", COMMITTED)
def test_buckets_are_accepted_as_differently_as_the_model_card_promises(family: str) -> None:
    folder = target_folder(family)
    tokenizer, network = read_tokenizer(folder), trained(family)
    accepted: dict[str, list[int]] = {}
    for prompt in read_prompts(folder, per_bucket=4):
        told = replay(network, token_ids(tokenizer, prompt), 3, 64, EOS_ID)
        accepted.setdefault(prompt.bucket, []).extend(told.accepted_drafts)
    lengths = {bucket: 1 + mean(drafts) for bucket, drafts in accepted.items()}
    assert max(lengths.values()) >= 2.5, lengths
    assert max(lengths.values()) - min(lengths.values()) >= 0.5, lengths


def wider_window(network: Network) -> None:
    for layer in network.target.layers:
        if layer.self_attn.layer_type == SLIDING:
            layer.self_attn.window += 1


def scalars_at_one(network: Network) -> None:
    for layer in network.target.layers:
        layer.layer_scalar.fill_(1)


def every_pair_turned(network: Network) -> None:
    """Rope on the whole head of a full layer instead of its first quarter."""
    for layer in network.target.layers:
        if layer.self_attn.layer_type == FULL:
            dim = layer.self_attn.dim
            layer.self_attn.frequencies = 1e6 ** -(torch.arange(0, dim, 2).float() / dim)


def embedding_not_scaled(network: Network) -> None:
    network.target.embed = network.target.embed_tokens


def projection_halves_swapped(network: Network) -> None:
    weight = network.assistant.pre_projection.weight
    weight.copy_(weight.roll(weight.shape[1] // 2, 1))


def one_position_on(network: Network) -> None:
    """As transformers counts: targets and assistants from the same number."""
    for layer in network.assistant.model.layers:
        attention = layer.self_attn
        queries = attention.queries
        attention.queries = lambda x, first, queries=queries: queries(x, first + 1)


def another_layers_keys(network: Network) -> None:
    """The sliding layer before the last, where the last is meant."""

    def wrong(ids: torch.Tensor) -> Seen:
        cache = network.new_cache()
        seen = network.target(ids, cache)
        seen.shared[SLIDING] = cache[1].kept
        return seen

    network.see = wrong


def state_not_fed_back(network: Network) -> None:
    """Every step reads the target's state again instead of the assistant's own."""

    def wrong(ids: torch.Tensor, hidden: torch.Tensor, num_steps: int) -> list[torch.Tensor]:
        shared = network.see(ids).shared
        rolled = [ids.roll(-step, 1) for step in range(num_steps)]
        return [network.draft_states(tokens, hidden, shared, 1)[0] for tokens in rolled]

    network.draft_hidden = wrong


PLANTED = [
    pytest.param(wider_window, True, id="window-one-wider"),
    pytest.param(scalars_at_one, True, id="layer-scalars-not-loaded"),
    pytest.param(every_pair_turned, True, id="rope-on-the-whole-head"),
    pytest.param(embedding_not_scaled, True, id="embedding-not-scaled"),
    pytest.param(projection_halves_swapped, False, id="projection-halves-swapped"),
    pytest.param(one_position_on, False, id="assistant-one-position-on"),
    pytest.param(another_layers_keys, False, id="another-layers-keys"),
    pytest.param(state_not_fed_back, False, id="state-not-fed-back"),
]


@pytest.mark.parametrize(("error", "in_tokens"), PLANTED)
def test_a_loader_error_shows_in_the_rounds_or_the_tokens(
    right: list[Replay], error: PlantedError, in_tokens: bool
) -> None:
    network = trained(FAMILY)
    with torch.no_grad():
        error(network)
    wrong = replays_of(network)
    assert wrong != right
    # An error in the assistant never shows in the tokens: that is what lossless means, and why rounds are compared.
    assert ([w.output_ids for w in wrong] != [r.output_ids for r in right]) is in_tokens
