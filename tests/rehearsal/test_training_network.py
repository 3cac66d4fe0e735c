import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tiny_models.deepseek_v3.attention import Attention
from tiny_models.deepseek_v3.config import Config
from tiny_models.deepseek_v3.experts import Experts, choose_experts
from tiny_models.deepseek_v3.network import Network
from tiny_models.yarn import Yarn, attention_temperature, inverse_frequencies, rotate_interleaved

CONFIG = Config()


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(11)
    return Network(CONFIG).eval()


@given(position=st.integers(0, 4095), pair=st.integers(0, 7))
def test_a_rotated_pair_is_a_complex_number_turned(position: int, pair: int) -> None:
    frequencies = inverse_frequencies(16, 10000.0, CONFIG.rope_scaling).double()
    angles = torch.tensor([[position]]) * frequencies
    x = torch.arange(1, 17).double()[None]
    turned = rotate_interleaved(x, angles.cos(), angles.sin())[0]
    expected = complex(x[0, 2 * pair], x[0, 2 * pair + 1]) * complex(
        math.cos(angles[0, pair]), math.sin(angles[0, pair])
    )
    assert complex(turned[2 * pair], turned[2 * pair + 1]) == pytest.approx(expected)


def test_fast_pairs_keep_their_frequency_and_slow_ones_are_stretched_by_the_factor() -> None:
    found = inverse_frequencies(16, 10000.0, CONFIG.rope_scaling)
    plain = 10000.0 ** -(torch.arange(0, 16, 2) / 16)
    torch.testing.assert_close(found[0], plain[0])
    torch.testing.assert_close(found[-1], plain[-1] / 4)
    assert (found <= plain).all()


def test_the_softmax_is_sharpened_as_deepseek_does() -> None:
    assert attention_temperature(CONFIG.rope_scaling) == pytest.approx((0.1 * math.log(4) + 1) ** 2)
    assert attention_temperature(replace(CONFIG.rope_scaling, factor=1)) == 1  # near miss: nothing is stretched


def test_yarn_by_its_paper_for_the_real_model() -> None:
    real = Yarn(factor=40, beta_fast=32, beta_slow=1, mscale=1, mscale_all_dim=1, original_max_position_embeddings=4096)
    found = inverse_frequencies(64, 10000.0, real)
    plain = 10000.0 ** -(torch.arange(0, 64, 2) / 64)
    turns = 4096 * plain / (2 * math.pi)
    torch.testing.assert_close(found[turns > 40], plain[turns > 40])
    torch.testing.assert_close(found[turns < 0.9], plain[turns < 0.9] / 40)


def choose_by_loop(scores: Sequence[float], config: Config) -> set[int]:
    """The choice of arXiv 2412.19437 written out: groups by the sum of their two best, then experts inside the kept groups."""
    size = config.n_routed_experts // config.n_group
    groups = [list(range(g * size, (g + 1) * size)) for g in range(config.n_group)]
    by_group = sorted(groups, key=lambda g: -sum(sorted((scores[e] for e in g), reverse=True)[:2]))
    kept = [expert for group in by_group[: config.topk_group] for expert in group]
    return set(sorted(kept, key=lambda e: -scores[e])[: config.num_experts_per_tok])


@given(
    scores=st.lists(st.integers(-1000, 1000), min_size=16, max_size=16, unique=True),
    shape=st.sampled_from([(4, 2, 3), (2, 1, 4), (4, 4, 2), (8, 1, 2)]),
)
def test_experts_are_chosen_inside_the_best_groups(scores: list[int], shape: tuple[int, int, int]) -> None:
    n_group, topk_group, topk = shape
    config = replace(CONFIG, n_routed_experts=16, n_group=n_group, topk_group=topk_group, num_experts_per_tok=topk)
    size = 16 // n_group
    sums = [sum(sorted(scores[g * size : (g + 1) * size])[-2:]) for g in range(n_group)]
    assume(len(set(sums)) == n_group)  # of two equal groups either may be kept
    chosen = choose_experts(torch.tensor([scores]).float(), config)[0]
    assert set(chosen.nonzero().flatten().tolist()) == choose_by_loop(scores, config)


def test_experts_are_weighted_without_the_correction_bias() -> None:
    torch.manual_seed(3)
    experts = Experts(CONFIG).eval()
    experts.gate.e_score_correction_bias.copy_(torch.randn(8) * 0.3)
    x = torch.randn(5, CONFIG.hidden_size)
    for token, found in zip(x, experts(x), strict=True):
        scores = (experts.gate.weight @ token).sigmoid()
        chosen = choose_by_loop((scores + experts.gate.e_score_correction_bias).tolist(), CONFIG)
        total = sum(scores[e] for e in chosen)
        routed = sum(experts.experts[e](token) * scores[e] / total * CONFIG.routed_scaling_factor for e in chosen)
        torch.testing.assert_close(found, routed + experts.shared_experts(token))


def test_training_moves_the_bias_towards_idle_experts_and_inference_does_not() -> None:
    torch.manual_seed(4)
    experts = Experts(CONFIG)
    x = torch.randn(64, CONFIG.hidden_size)
    load = choose_experts((x @ experts.gate.weight.T).sigmoid().detach(), CONFIG).mean(0)
    experts.eval()(x)
    assert not experts.gate.e_score_correction_bias.any()
    experts.train()(x)
    moved = experts.gate.e_score_correction_bias
    assert moved[load.argmax()] < 0 < moved[load.argmin()]


def test_attention_by_its_formula() -> None:
    torch.manual_seed(5)
    attention = Attention(CONFIG)
    x = torch.randn(1, 7, CONFIG.hidden_size)
    queries, keys, values = attention.project(x, 0)
    mixed = torch.zeros_like(values)
    for head in range(CONFIG.num_attention_heads):
        for row in range(7):
            scores = keys[0, head, : row + 1] @ queries[0, head, row] * attention.softmax_scale
            mixed[0, head, row] = scores.softmax(0) @ values[0, head, : row + 1]
    torch.testing.assert_close(attention(x), attention.join(mixed))


@torch.inference_mode()
def test_one_token_at_a_time_gives_what_the_whole_text_gives(network: Network) -> None:
    ids = torch.randint(0, 512, (1, 12))
    cache = network.new_cache()
    stepwise = [network.hidden(ids[:, :5], cache), *(network.hidden(ids[:, i : i + 1], cache) for i in range(5, 12))]
    torch.testing.assert_close(torch.cat(stepwise, 1), network.hidden(ids))


def test_several_tokens_after_a_cache_are_refused(network: Network) -> None:
    cache = network.new_cache()
    network.hidden(torch.zeros(1, 3, dtype=torch.long), cache)
    with pytest.raises(ValueError, match="2 tokens after 3 cached"):
        network.hidden(torch.zeros(1, 2, dtype=torch.long), cache)


@torch.inference_mode()
def test_drafting_all_rounds_at_once_gives_what_each_round_drafts_alone(network: Network) -> None:
    """Against the engine's way: step-1 rows up to the start in a KV cache, then one row per later step."""
    ids = torch.randint(0, 512, (1, 20))
    hidden = network.hidden(ids)
    at_once = network.draft_hidden(ids, hidden, 3)
    mtp, attention = network.mtp, network.mtp.self_attn
    for start in (4, 11):
        state, keys, values = hidden[:, : start + 1], None, None
        tokens = ids[:, 1 : start + 2]
        for step in range(3):
            x = mtp.eh_proj(torch.cat((mtp.enorm(network.model.embed_tokens(tokens)), mtp.hnorm(state)), -1))
            first_position = 0 if step == 0 else start + step
            q, k, v = attention.project(mtp.input_layernorm(x), first_position)
            keys = k if keys is None else torch.cat((keys, k), 2)
            values = v if values is None else torch.cat((values, v), 2)
            mixed = torch.nn.functional.scaled_dot_product_attention(
                q, keys, values, is_causal=step == 0, scale=attention.softmax_scale
            )
            state = mtp.shared_head["norm"](mtp.after_attention(x, attention.join(mixed)))[:, -1:]
            torch.testing.assert_close(state[:, 0], at_once[step][:, start])
            tokens = ids[:, start + 2 + step : start + 3 + step]
