"""How the sparse models are trained, in stages of two steps."""

import re
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import torch
from tiny_models.deepseek_v3.checkpoint import read_checkpoint as read_deepseek_v3
from tiny_models.optimise import Stage
from tiny_models.prompts import read_tokenizer
from tiny_models.sparse_mla.config import DEEPSEEK_V32, GLM_52
from tiny_models.sparse_mla.network import Network
from tiny_models.sparse_mla.stages import Schedule, begin_from, schedule_of, train
from torch import Tensor

pytestmark = pytest.mark.slow

SHORT = Schedule(
    **{
        name: Stage(name=name, steps=2, learning_rate=1e-3, decay=0.0)
        for name in ("dense", "indexers", "sparse", "mtp")
    }
)
State = dict[str, Tensor]


def stages_of(network: Network, model: Path, seed: int = 0) -> tuple[list[str], list[State]]:
    """The name of each stage, and the weights before the first and after each."""
    names: list[str] = []
    states = [{name: tensor.clone() for name, tensor in network.state_dict().items()}]

    def say(line: str) -> None:  # each stage says its first and its last step
        names.append(re.match(r"[a-z]+", line)[0])
        if names.count(names[-1]) == 2:
            states.append({name: tensor.clone() for name, tensor in network.state_dict().items()})

    train(network, read_tokenizer(model), Random(seed), say, SHORT)
    return names[::2], states


def moved(before: State, after: State) -> set[str]:
    """Which parts changed: 'target', 'bias' (correction), 'indexer', 'mtp', 'mtp indexer'."""
    found = set()
    for name, tensor in after.items():
        if not tensor.equal(before[name]):
            part = "mtp" if name.startswith("model.layers.5.") else ""
            kind = "indexer" if ".indexer." in name else "bias" if name.endswith("correction_bias") else ""
            found.add(f"{part} {kind}".strip() or "target")
    return found


@pytest.fixture(scope="module")
def trained(model: Path) -> tuple[Network, list[str], list[State]]:
    torch.manual_seed(0)
    network = Network(GLM_52)
    begin_from(network, read_deepseek_v3(model))
    return network, *stages_of(network, model)


def test_each_stage_moves_its_own_part(trained: tuple[Network, list[str], list[State]]) -> None:
    _, names, states = trained
    assert names == ["dense", "indexers", "sparse", "mtp"]
    parts = [moved(before, after) for before, after in pairwise(states)]
    assert parts[0] == {"target", "bias"}
    assert parts[1] == {"indexer"}
    assert parts[2] == {"target", "bias"}
    assert parts[3] == {"mtp", "mtp bias", "mtp indexer"}


def test_training_moves_every_tensor(trained: tuple[Network, list[str], list[State]]) -> None:
    network, _, states = trained
    assert not [name for name, tensor in network.state_dict().items() if tensor.equal(states[0][name])]
    assert not network.training


def test_the_same_seed_trains_the_same_weights(model: Path, trained: tuple[Network, list[str], list[State]]) -> None:
    first, _, _ = trained
    for seed, same in ((0, True), (1, False)):
        torch.manual_seed(0)
        network = Network(GLM_52)
        begin_from(network, read_deepseek_v3(model))
        stages_of(network, model, seed)
        equal = [first.state_dict()[name].equal(tensor) for name, tensor in network.state_dict().items()]
        assert all(equal) is same


def test_deepseek_v32_needs_no_dense_stage() -> None:
    assert schedule_of(DEEPSEEK_V32).dense is None
    assert schedule_of(GLM_52).dense is not None
