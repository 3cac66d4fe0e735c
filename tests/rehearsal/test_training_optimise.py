import re
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import torch
from tiny_models.batches import LONG_SHAPE, SHORT_SHAPE, copy_drill, packed
from tiny_models.deepseek_v3.config import Config
from tiny_models.deepseek_v3.network import Network
from tiny_models.deepseek_v3.stages import Schedule, train
from tiny_models.optimise import WARM_UP_STEPS, Stage, learning_rate
from tiny_models.prompts import read_tokenizer
from tiny_models.tokenizer import BOS_ID
from tokenizers import Tokenizer
from torch import Tensor

SHORT = Schedule(
    copy_drill=Stage(name="copy drill", steps=2, learning_rate=3e-3, decay=0.0),
    target=Stage(name="target", steps=2, learning_rate=3e-3),
    mtp=Stage(name="mtp", steps=2, learning_rate=2e-3),
)


def test_the_rate_warms_up_and_falls_to_what_the_decay_leaves() -> None:
    stage = Stage(name="x", steps=400, learning_rate=2.0, decay=0.75)
    rates = [learning_rate(stage, step) for step in range(400)]
    assert rates[0] == pytest.approx(2.0 / WARM_UP_STEPS)
    assert all(later <= earlier for earlier, later in pairwise(rates[WARM_UP_STEPS:]))
    assert rates[-1] == pytest.approx(0.5, rel=1e-3)


def test_without_decay_the_rate_stays() -> None:
    stage = Stage(name="x", steps=400, learning_rate=2.0, decay=0.0)
    assert {learning_rate(stage, step) for step in range(WARM_UP_STEPS, 400)} == {2.0}


@pytest.fixture
def tokenizer(model: Path) -> Tokenizer:
    return read_tokenizer(model)


@pytest.mark.parametrize("seed", range(4))
def test_every_row_of_a_packed_batch_is_full_and_starts_a_document(tokenizer: Tokenizer, seed: int) -> None:
    ids = packed(tokenizer, Random(seed))
    assert tuple(ids.shape) in {LONG_SHAPE, SHORT_SHAPE}
    assert (ids[:, 0] == BOS_ID).all()


def test_a_drill_row_repeats_its_string() -> None:
    for row in copy_drill(Random(0)).tolist():
        assert any(row == (row[:n] * 48)[:48] for n in range(4, 17))


def trained(tokenizer: Tokenizer, seed: int) -> tuple[dict[str, Tensor], Network, list[str]]:
    torch.manual_seed(seed)
    network, lines = Network(Config()), []
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    train(network, tokenizer, Random(seed), lines.append, SHORT)
    return before, network, lines


@pytest.mark.slow
def test_training_moves_every_tensor_and_tells_each_stage(tokenizer: Tokenizer) -> None:
    before, network, lines = trained(tokenizer, 0)
    still = [name for name, tensor in network.state_dict().items() if tensor.equal(before[name])]
    assert not still
    assert [re.match(r"[a-z ]+", line)[0] for line in lines] == ["copy drill"] * 2 + ["target"] * 2 + ["mtp"] * 2
    assert not network.training


@pytest.mark.slow
def test_the_mtp_stage_leaves_the_target_alone(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_models.deepseek_v3 import stages

    seen = {}
    start = stages.start_mtp_from_target

    def keep_and_start(network: Network) -> None:
        seen.update({name: t.clone() for name, t in network.state_dict().items() if "layers.4." not in name})
        start(network)

    monkeypatch.setattr(stages, "start_mtp_from_target", keep_and_start)
    _, network, _ = trained(tokenizer, 0)
    assert all(network.state_dict()[name].equal(tensor) for name, tensor in seen.items())


@pytest.mark.slow
def test_the_same_seed_trains_the_same_weights(tokenizer: Tokenizer) -> None:
    (_, first, _), (_, again, _), (_, other, _) = (trained(tokenizer, seed) for seed in (0, 0, 1))
    assert all(first.state_dict()[name].equal(tensor) for name, tensor in again.state_dict().items())
    assert not first.lm_head.weight.equal(other.lm_head.weight)
