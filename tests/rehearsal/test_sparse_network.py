"""The sparse networks against their formulas, written out, and against the engine's way of running them."""

import pytest
import torch
from tiny_models.deepseek_v3.config import Config as DeepseekV3Config
from tiny_models.deepseek_v3.network import Network as DeepseekV3
from tiny_models.sparse_mla.attention import causal
from tiny_models.sparse_mla.config import DEEPSEEK_V32, GLM_51, GLM_52
from tiny_models.sparse_mla.indexer import Indexer, imitation_loss
from tiny_models.sparse_mla.network import Network
from tiny_models.sparse_mla.stages import begin_from
from tiny_models.yarn import rotate_halves, rotate_interleaved

CONFIGS = {"v32": DEEPSEEK_V32, "glm51": GLM_51, "glm52": GLM_52}
TOKENS = 48  # more than an indexer selects


@pytest.fixture(scope="module", params=CONFIGS)
def network(request: pytest.FixtureRequest) -> Network:
    torch.manual_seed(11)
    return Network(CONFIGS[request.param]).eval()


@pytest.fixture(scope="module")
def ids() -> torch.Tensor:
    return torch.randint(0, 512, (1, TOKENS), generator=torch.Generator().manual_seed(5))


def test_halves_are_turned_as_neighbours_are_once_reordered():
    x, angles = torch.randn(3, 8), torch.randn(3, 4)
    paired = torch.stack(x.chunk(2, -1), -1).flatten(-2)
    turned = rotate_interleaved(paired, angles.cos(), angles.sin())
    found = rotate_halves(x, angles.cos(), angles.sin())
    torch.testing.assert_close(torch.stack(found.chunk(2, -1), -1).flatten(-2), turned)


def test_only_v32_turns_halves_in_its_indexer():
    found = {name: Indexer(config).rotate is rotate_halves for name, config in CONFIGS.items()}
    assert found == {"v32": True, "glm51": False, "glm52": False}


@torch.inference_mode()
def test_scores_by_their_formula(network: Network, ids: torch.Tensor):
    """A sum over heads of w * relu(q . k), 1 / sqrt(heads * dim) in the weights, on the layer's normed input and its query latent."""
    layer = network.target_layers[0]
    attention, indexer = layer.self_attn, layer.self_attn.indexer
    x = layer.input_layernorm(network.model.embed_tokens(ids))
    found = attention.index(x, 0)[0]
    latent = attention.q_a_layernorm(attention.q_a_proj(x))[0]
    keys = torch.nn.functional.layer_norm(indexer.wk(x[0]), (128,), indexer.k_norm.weight, indexer.k_norm.bias, 1e-6)

    def turned(vector: torch.Tensor, position: int) -> torch.Tensor:
        cos, sin = attention.cos[position, None], attention.sin[position, None]
        return torch.cat((indexer.rotate(vector[None, :16], cos, sin)[0], vector[16:]))

    for t, s in [(0, 0), (7, 3), (40, 40), (47, 12)]:
        total = 0.0
        for head in range(indexer.heads):
            query = turned(indexer.wq_b(latent[t]).view(indexer.heads, 128)[head], t)
            weight = indexer.weights_proj(x[0, t])[head] / (indexer.heads * 128) ** 0.5
            total += float(weight * max(0.0, float(query @ turned(keys[s], s))))
        assert float(found[t, s]) == pytest.approx(total, rel=1e-4, abs=1e-6)
    assert found[7, 8] == float("-inf")


def test_the_best_are_selected_and_of_equals_the_earlier():
    indexer = Indexer(GLM_52)
    scores = torch.randint(-2, 3, (1, TOKENS, TOKENS)).float().masked_fill(~causal(TOKENS, TOKENS), float("-inf"))
    selected = indexer.select(scores)[0]
    for t in range(TOKENS):
        row = scores[0, t, : t + 1].tolist()
        best = sorted(range(t + 1), key=lambda s: (-row[s], s))[: indexer.topk]
        assert selected[t].nonzero().flatten().tolist() == sorted(best)


@torch.inference_mode()
def test_attention_sees_what_was_selected_and_nothing_else(network: Network, ids: torch.Tensor):
    attention = network.target_layers[0].self_attn
    x = torch.randn(1, TOKENS, network.config.hidden_size)
    found, selected = attention(x)
    assert int(selected[0, -1].sum()) == network.config.index_topk < TOKENS
    queries, keys, values = attention.project(x, 0)
    mixed = torch.zeros_like(values)
    for head in range(network.config.num_attention_heads):
        for row in range(TOKENS):
            seen = selected[0, row].nonzero().flatten()
            weights = (keys[0, head, seen] @ queries[0, head, row] * attention.softmax_scale).softmax(0)
            mixed[0, head, row] = weights @ values[0, head, seen]
    torch.testing.assert_close(found, attention.join(mixed))


@torch.inference_mode()
def test_a_shared_layer_takes_the_selection_of_the_layer_before_it(ids: torch.Tensor):
    torch.manual_seed(1)
    network = Network(GLM_52).eval()
    taken = []
    for layer in network.target_layers:
        attend = layer.self_attn.forward
        layer.self_attn.forward = lambda *a, attend=attend, **k: taken.append(attend(*a, **k)) or taken[-1]
    network.hidden(ids)
    selections = [selection for _, selection in taken]
    assert selections[2] is selections[1]
    assert selections[4] is selections[3]
    assert not selections[1].equal(selections[0])
    assert not selections[3].equal(selections[2])


@torch.inference_mode()
def test_one_token_at_a_time_gives_what_the_whole_text_gives(network: Network, ids: torch.Tensor):
    cache = network.new_cache()
    pieces = [ids[:, :36], *(ids[:, i : i + 1] for i in range(36, TOKENS))]
    stepwise = [network.hidden(piece, cache) for piece in pieces]
    torch.testing.assert_close(torch.cat(stepwise, 1), network.hidden(ids), atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_drafting_all_rounds_at_once_gives_what_each_round_drafts_alone(network: Network, ids: torch.Tensor):
    """Against the engine's way: caches of keys and index keys, the step-1 rows up to the start, then one row per later step."""
    hidden = network.hidden(ids)
    at_once = network.draft_hidden(ids, hidden, 3)
    mtp, attention, indexer = network.mtp, network.mtp.self_attn, network.mtp.self_attn.indexer
    for start in (9, 40):
        state, tokens = hidden[:, : start + 1], ids[:, 1 : start + 2]
        keys = values = index_keys = seen = None
        for step in range(3):
            x = mtp.eh_proj(torch.cat((mtp.enorm(network.model.embed_tokens(tokens)), mtp.hnorm(state)), -1))
            normed, first = mtp.input_layernorm(x), 0 if step == 0 else start + step
            q, k, v = attention.project(normed, first)
            cos, sin = (table[first : first + x.shape[1]] for table in (attention.cos, attention.sin))
            own = indexer.keys(normed, cos, sin)
            keys, values = (k, v) if keys is None else (torch.cat((keys, k), 2), torch.cat((values, v), 2))
            index_keys = own if index_keys is None else torch.cat((index_keys, own), 1)
            last = normed[:, -1:]
            if step == 0 or not network.config.index_share_for_mtp_iteration:
                latent = attention.query_latent(last)
                query = indexer.queries(latent, cos[-1:], sin[-1:])
                scores = indexer.scores(query, indexer.weights(last), index_keys)[0, 0].tolist()
                seen = sorted(range(len(scores)), key=lambda s: (-scores[s], s))[: indexer.topk]
            weights = (q[:, :, -1:] @ keys[:, :, seen].transpose(-1, -2) * attention.softmax_scale).softmax(-1)
            mixed = attention.join(weights @ values[:, :, seen])
            state = mtp.shared_head["norm"](mtp.after_attention(x[:, -1:], mixed))
            torch.testing.assert_close(state[:, 0], at_once[step][:, start], atol=1e-4, rtol=1e-4)
            tokens = ids[:, start + 2 + step : start + 3 + step]


def test_imitation_is_best_where_the_scores_are_the_attentions_logarithm():
    attention = torch.rand(1, 2, 4, 4).masked_fill(~causal(4, 4), 0)
    attention = attention / attention.sum(-1, keepdim=True)
    visible = causal(4, 4)[None]
    right = attention.mean(1).clamp(min=1e-9).log()
    best = imitation_loss(right, visible, attention)
    torch.testing.assert_close(best, -(attention.mean(1) * right).sum(-1).mean())
    assert all(imitation_loss(right + torch.randn(1, 4, 4), visible, attention) > best for _ in range(5))


@torch.inference_mode()
def test_v32_starts_as_the_deepseek_v3_it_comes_from(ids: torch.Tensor):
    """Where everything is visible the indexers change nothing."""
    torch.manual_seed(7)
    trained, network = DeepseekV3(DeepseekV3Config()).eval(), Network(DEEPSEEK_V32).eval()
    begin_from(network, trained)
    short = ids[:, : DEEPSEEK_V32.index_topk]
    torch.testing.assert_close(network.hidden(short), trained.hidden(short))
    torch.testing.assert_close(network.hidden(ids, sparse=False), trained.hidden(ids))
    drafted, expected = (n.draft_hidden(short[:, :20], n.hidden(short[:, :20]), 3) for n in (network, trained))
    torch.testing.assert_close(drafted, expected)


@torch.inference_mode()
def test_a_layer_more_than_the_trained_model_has_adds_nothing_at_first(ids: torch.Tensor):
    torch.manual_seed(7)
    network = Network(GLM_52).eval()
    begin_from(network, DeepseekV3(DeepseekV3Config()).eval())
    x = torch.randn(1, 5, network.config.hidden_size)
    layer = network.target_layers[4]
    attended, _ = layer.self_attn(layer.input_layernorm(x), handed=causal(5, 5)[None])
    torch.testing.assert_close(layer.after_attention(x, attended), x)
