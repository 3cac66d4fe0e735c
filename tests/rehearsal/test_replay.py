from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import replay as replaying
from tiny_models.answers import Answer, departures, histogram, read_answer
from tiny_models.deepseek_v3.checkpoint import read_checkpoint
from tiny_models.deepseek_v3.config import Config
from tiny_models.deepseek_v3.network import Network
from tiny_models.prompts import read_prompts, read_tokenizer, token_ids
from tiny_models.replay import Replay, accepted_at, greedy_chain, output_length, replay
from tiny_models.tokenizer import EOS_ID


@pytest.fixture(scope="module")
def network(model: Path) -> Network:
    return read_checkpoint(model)


@pytest.fixture(scope="module")
def requests(model: Path) -> list[list[int]]:
    tokenizer = read_tokenizer(model)
    return [token_ids(tokenizer, prompt) for prompt in read_prompts(model, per_bucket=2)]


def replays_of(network: Network, requests: list[list[int]], num_steps: int = 3) -> list[Replay]:
    return [replay(network, ids, num_steps, 48, EOS_ID) for ids in requests]


@pytest.fixture(scope="module")
def right(network: Network, requests: list[list[int]]) -> list[Replay]:
    return replays_of(network, requests)


@torch.inference_mode()
@pytest.mark.slow
def test_the_tokens_are_the_targets_argmax_at_every_position(
    network: Network, requests: list[list[int]], right: list[Replay]
) -> None:
    for prompt, told in zip(requests, right, strict=True):
        ids = torch.tensor([prompt + list(told.output_ids)])
        argmax = network.lm_head(network.hidden(ids))[0].argmax(-1)
        assert tuple(argmax[len(prompt) - 1 : -1].tolist()) == told.output_ids


@pytest.mark.slow
def test_the_tokens_do_not_depend_on_the_number_of_steps(
    network: Network, requests: list[list[int]], right: list[Replay]
) -> None:
    for num_steps in (1, 5):
        assert [r.output_ids for r in replays_of(network, requests, num_steps)] == [r.output_ids for r in right]


@torch.inference_mode()
@pytest.mark.slow
def test_the_walk_is_what_drafting_round_by_round_gives(
    network: Network, requests: list[list[int]], right: list[Replay]
) -> None:
    """Draft, compare with the target, commit, round after round, from the start of the text each time and without the table."""
    for prompt, told in list(zip(requests, right, strict=True))[::3]:
        chain = greedy_chain(network, prompt, 48 + 3)
        committed, accepted = 1, []
        while committed < len(told.output_ids):
            known = prompt + chain[:committed]
            drafts: list[int] = []
            for step in range(3):
                # The round's own drafts stand where the true tokens are not known yet.
                ids = torch.tensor([known + drafts + [0] * (3 - step)])
                states = network.draft_hidden(ids, network.hidden(ids), step + 1)
                drafts.append(int(network.lm_head(states[step])[0, len(known) - 2].argmax()))
            right_drafts = [d == c for d, c in zip(drafts, chain[committed:], strict=False)]
            accepted.append([*right_drafts, False].index(False))
            committed += accepted[-1] + 1
        assert tuple(accepted) == told.accepted_drafts


@given(accepted=st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_emitted_length_is_one_plus_survival_summed_over_positions(accepted: list[int]) -> None:
    told = Replay((), tuple(accepted), 5)
    survival = [count / told.rounds for count in told.accepted_by_position]
    assert told.emitted_length == pytest.approx(1 + sum(survival))
    assert survival == sorted(survival, reverse=True)


@pytest.mark.slow
def test_every_token_but_the_first_comes_from_a_round(right: list[Replay]) -> None:
    for told in right:
        emitted = 1 + sum(told.accepted_drafts) + told.rounds
        assert 0 <= emitted - len(told.output_ids) <= told.accepted_drafts[-1]


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        pytest.param([5, 6, 7, 8], 3, id="cut-by-the-limit"),
        pytest.param([5, 1, 7, 8], 2, id="stopped-by-eos"),
        pytest.param([5, 6, 1, 8], 3, id="eos-is-the-last-allowed"),
        pytest.param([5, 6, 7, 1], 3, id="near-miss-eos-after-the-limit"),
    ],
)
def test_an_answer_ends_at_eos_or_at_the_limit(chain: list[int], expected: int) -> None:
    assert output_length(chain, 3, 1) == expected


def test_without_an_eos_only_the_limit_ends_it() -> None:
    assert output_length([5, 1, 7], 3, None) == 3


@pytest.mark.slow
def test_buckets_are_accepted_as_differently_as_the_model_card_promises(model: Path, network: Network) -> None:
    tokenizer = read_tokenizer(model)
    accepted: dict[str, list[int]] = {}
    for prompt in read_prompts(model, per_bucket=8):
        told = replay(network, token_ids(tokenizer, prompt), 3, 64, EOS_ID)
        accepted.setdefault(prompt.bucket, []).extend(told.accepted_drafts)
    lengths = {bucket: 1 + mean(drafts) for bucket, drafts in accepted.items()}
    assert max(lengths.values()) >= 3.0, lengths
    assert max(lengths.values()) - min(lengths.values()) >= 0.8, lengths


# What a wrong loader or a wrong call would do to the network, and what of it shows.
PlantedError = Callable[[Network], None]
Planter = Callable[[PlantedError], Network]


def swap_eh_proj(network: Network) -> None:
    weight = network.mtp.eh_proj.weight
    weight.copy_(weight.roll(weight.shape[1] // 2, 1))


def zero_correction_bias(network: Network) -> None:
    for layer in [*network.target_layers[1:], network.mtp]:
        layer.mlp.gate.e_score_correction_bias.zero_()


def unscaled_experts(network: Network) -> None:
    for layer in [*network.target_layers[1:], network.mtp]:
        layer.mlp.gate.config = replace(network.config, routed_scaling_factor=1.0)


def plain_softmax_scale(network: Network) -> None:
    for layer in network.model.layers:
        layer.self_attn.softmax_scale = (layer.self_attn.nope + layer.self_attn.rope) ** -0.5


def state_before_the_norm(network: Network) -> None:
    draft = network.draft_hidden
    network.draft_hidden = lambda ids, hidden, num_steps: draft(ids, network.before_norm(ids), num_steps)


def shift_mtp_positions(position_of: Callable[[int], int]) -> PlantedError:
    def plant(network: Network) -> None:
        attention = network.mtp.self_attn
        project = attention.project
        attention.project = lambda x, start: project(x, position_of(start))

    return plant


def rotate_halves(network: Network) -> None:
    """Rope on the pairs (0, 8), (1, 9), ...: the same as rope on neighbours after the rows have been put in that order."""
    for layer in network.model.layers:
        attention = layer.self_attn
        pairs = torch.arange(attention.rope).view(2, -1).T.flatten()
        queries = attention.q_b_proj.weight.unflatten(0, (attention.heads, -1))[:, attention.nope :]
        queries.copy_(queries[:, pairs].clone())
        key = attention.kv_a_proj_with_mqa.weight[attention.kv_rank :]
        key.copy_(key[pairs].clone())


PLANTED = [
    pytest.param(rotate_halves, True, id="neox-rope"),
    pytest.param(plain_softmax_scale, True, id="no-mscale-in-the-softmax-scale"),
    pytest.param(unscaled_experts, True, id="routed-scaling-factor-left-out"),
    pytest.param(zero_correction_bias, True, id="correction-bias-zeroed"),
    pytest.param(swap_eh_proj, False, id="eh-proj-halves-swapped"),
    pytest.param(state_before_the_norm, False, id="mtp-fed-the-state-before-the-norm"),
    pytest.param(shift_mtp_positions(lambda _: 0), False, id="mtp-position-not-advanced"),
]


@pytest.fixture
def planted(model: Path) -> Planter:
    def plant(error: PlantedError) -> Network:
        network = read_checkpoint(model)
        with torch.no_grad():
            error(network)
        return network

    return plant


@pytest.mark.slow
@pytest.mark.parametrize(("error", "in_tokens"), PLANTED)
def test_a_loader_error_shows_in_the_rounds_or_the_tokens(
    planted: Planter, requests: list[list[int]], right: list[Replay], error: PlantedError, in_tokens: bool
) -> None:
    wrong = replays_of(planted(error), requests)
    assert wrong != right
    # An error in the MTP layer alone never shows in the tokens: that is what lossless means, and why rounds are compared.
    assert ([w.output_ids for w in wrong] != [r.output_ids for r in right]) is in_tokens


@pytest.mark.slow
def test_moving_all_mtp_positions_alike_is_invisible_because_rope_is_relative(
    planted: Planter, requests: list[list[int]], right: list[Replay]
) -> None:
    assert replays_of(planted(shift_mtp_positions(lambda start: start + 1)), requests) == right


RIGHT = Replay(output_ids=(7, 8, 9, 4, 1), accepted_drafts=(2, 0), num_steps=3)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer((7, 8, 9, 4, 2), 2, (1, 0, 1)), id="another-token"),
        pytest.param(Answer((7, 8, 9, 4, 1), 3, (2, 0, 1)), id="another-round"),
        pytest.param(Answer((7, 8, 9, 4, 1), 2, (0, 2)), id="other-drafts-accepted"),
        pytest.param(Answer((7, 8, 9, 4, 1), 0, ()), id="no-speculation-at-all"),
    ],
)
def test_an_answer_that_departs_from_the_replay_is_told(answer: Answer) -> None:
    (found,) = departures([RIGHT], [answer])
    assert found.request == 0
    assert found.tokens_differ is (answer.output_ids != RIGHT.output_ids)


def test_an_answer_as_replayed_is_not_told() -> None:
    assert departures([RIGHT], [Answer((7, 8, 9, 4, 1), 2, (1, 0, 1))]) == []


def test_an_answer_too_few_is_not_taken_for_agreement() -> None:
    with pytest.raises(ValueError, match="shorter"):
        departures([RIGHT, RIGHT], [Answer((7, 8, 9, 4, 1), 2, (1, 0, 1))])


def test_what_the_engine_says_is_read_by_its_names() -> None:
    meta = {"spec_verify_ct": 2, "spec_correct_drafts_histogram": [1, 0, 1], "spec_accept_length": 2.5}
    answer = read_answer({"output_ids": [7, 8, 9, 4, 1], "meta_info": meta})
    assert answer == Answer((7, 8, 9, 4, 1), RIGHT.rounds, histogram(RIGHT))
    assert answer.emitted_length == RIGHT.emitted_length == 2.0


def test_an_engine_without_speculation_ran_no_round() -> None:
    assert read_answer({"output_ids": [7], "meta_info": {}}) == Answer((7,), 0, ())


@pytest.mark.slow
def test_a_random_network_accepts_hardly_anything(requests: list[list[int]]) -> None:
    torch.manual_seed(1)
    network = Network(Config()).eval()
    assert sum(accepted_at(network, requests[0], 3)) == 0
    assert replaying.replay(network, requests[0], 3, 16).emitted_length < 1.5
