"""What of a wrong loader or a wrong call the replay of a tiny Gemma 4 shows, and what it hides."""

from collections.abc import Callable
from functools import cache
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

DENSE, MOE, E2B = "gemma4_dense", "gemma4_moe", "gemma4_e2b"
PlantedError = Callable[[Network], None]


def replays_of(network: Network, family: str) -> list[Replay]:
    folder = target_folder(family)
    tokenizer = read_tokenizer(folder)
    prompts = read_prompts(folder, per_bucket=2 if family == DENSE else 1)
    return [replay(network, token_ids(tokenizer, prompt), 3, 48, EOS_ID) for prompt in prompts]


@cache
def right(family: str) -> list[Replay]:
    return replays_of(trained(family), family)


@pytest.mark.parametrize(
    "family",
    [pytest.param(family, marks=pytest.mark.matrix if family != "gemma4_dense" else ()) for family in COMMITTED],
)
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
    table = network.target.embed_tokens
    network.target.embed = table.forward  # the module itself, assigned here, would hide behind the method of its name


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


def router_not_scaled(network: Network) -> None:
    """As the engine runs it on a CPU without the patch `cpu-gemma-router`."""
    for layer in network.target.layers:
        layer.router.scale.fill_(network.config.text.hidden_size**0.5)


def own_embeddings_not_scaled(network: Network) -> None:
    network.target.embed_tokens_per_layer.weight.div_(network.config.text.hidden_size_per_layer_input**0.5)


def tokens_in_vocabulary_order(network: Network) -> None:
    """The assistant's head read without its list of which token is whose centroid's."""
    masked = network.assistant.masked_embedding
    masked.token_ordering = torch.arange(len(masked.token_ordering))


PLANTED = [
    pytest.param(DENSE, wider_window, True, id="window-one-wider"),
    pytest.param(DENSE, scalars_at_one, True, id="layer-scalars-not-loaded"),
    pytest.param(DENSE, every_pair_turned, True, id="rope-on-the-whole-head"),
    pytest.param(DENSE, embedding_not_scaled, True, id="embedding-not-scaled"),
    pytest.param(DENSE, projection_halves_swapped, False, id="projection-halves-swapped"),
    pytest.param(DENSE, one_position_on, False, id="assistant-one-position-on"),
    pytest.param(DENSE, another_layers_keys, False, id="another-layers-keys"),
    pytest.param(DENSE, state_not_fed_back, False, id="state-not-fed-back"),
    pytest.param(MOE, router_not_scaled, True, id="router-not-scaled"),
    pytest.param(E2B, own_embeddings_not_scaled, True, id="per-layer-embeddings-not-scaled"),
    pytest.param(E2B, tokens_in_vocabulary_order, False, id="centroids-in-vocabulary-order"),
]


@pytest.mark.parametrize(("family", "error", "in_tokens"), PLANTED)
def test_a_loader_error_shows_in_the_rounds_or_the_tokens(family: str, error: PlantedError, in_tokens: bool) -> None:
    network = trained(family)
    with torch.no_grad():
        error(network)
    wrong = replays_of(network, family)
    assert wrong != right(family)
    # An error in the assistant never shows in the tokens: that is what lossless means, and why rounds are compared.
    assert ([w.output_ids for w in wrong] != [r.output_ids for r in right(family)]) is in_tokens
