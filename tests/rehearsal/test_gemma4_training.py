import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import torch
from tiny_models.gemma4.config import FAMILIES
from tiny_models.gemma4.network import Network
from tiny_models.gemma4.stages import Schedule, begin_as, draft_loss, next_token_loss, train
from tiny_models.optimise import Stage
from tiny_models.prompts import read_tokenizer
from torch import Tensor

from spec_toolkit.shipped import rehearsal
from tests.rehearsal.gemma_models import assistant_folder, seeded, target_folder

SHORT = Schedule(
    target=Stage(name="target", steps=2, learning_rate=3e-3),
    assistant=Stage(name="assistant", steps=2, learning_rate=3e-3),
)


def trained_shortly(family: str, seed: int) -> tuple[dict[str, Tensor], Network]:
    torch.manual_seed(seed)
    network = Network(FAMILIES[family]())
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    train(network, read_tokenizer(target_folder("gemma4_dense")), Random(seed), lambda _: None, SHORT)
    return before, network


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_training_moves_every_weight_and_the_same_seed_moves_it_the_same(family: str) -> None:
    (before, network), (_, again) = trained_shortly(family, 3), trained_shortly(family, 3)
    for name, tensor in network.state_dict().items():
        assert tensor.equal(again.state_dict()[name]), name
        assert name.endswith("token_ordering") or not tensor.equal(before[name]), name


@pytest.mark.parametrize("family", FAMILIES)
def test_the_assistants_stage_leaves_the_target_alone(family: str) -> None:
    network = seeded(family)
    ids = torch.randint(3, 170, (2, 40), generator=torch.Generator().manual_seed(0))
    draft_loss(network, ids).backward()
    assert all(parameter.grad is None for parameter in network.target.parameters())
    assert all(parameter.grad is not None for parameter in network.assistant.parameters())


def test_a_draft_that_is_the_targets_own_prediction_loses_only_its_entropy() -> None:
    """The loss compares step j of row i with what the target says after token i + j, and not one beside it."""
    network = seeded("gemma4_dense")
    ids = torch.randint(3, 170, (1, 30), generator=torch.Generator().manual_seed(0))
    said = network.lm_head(network.hidden(ids))
    network.draft_states = lambda ids, hidden, shared, num_steps: [said.roll(-j, 1) for j in range(1, num_steps + 1)]
    network.every_draft_logit = lambda rows: rows * 50
    certain = draft_loss(network, ids)
    network.draft_states = lambda ids, hidden, shared, num_steps: [
        said.roll(-j - 1, 1) for j in range(1, num_steps + 1)
    ]
    assert draft_loss(network, ids) > certain + 10


def test_experts_begin_almost_silent_on_a_trained_target() -> None:
    dense, moe = seeded("gemma4_dense", 1), seeded("gemma4_moe", 2)
    ids = torch.randint(3, 170, (1, 40), generator=torch.Generator().manual_seed(0))
    far = (next_token_loss(moe, ids) - next_token_loss(dense, ids)).abs()
    begin_as(moe, dense)
    assert moe.assistant.model.embed_tokens.weight.equal(dense.assistant.model.embed_tokens.weight)
    agreement = torch.nn.functional.cosine_similarity(moe.hidden(ids), dense.hidden(ids), -1)
    assert agreement.mean() > 0.9, (agreement, far)


def test_a_pair_of_another_kind_is_no_beginning() -> None:
    with pytest.raises(ValueError, match="not of one kind"):
        begin_as(seeded("gemma4_dense"), seeded("gemma4_moe"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["deepseek_v3", "FULL"], "holds something already", id="a-folder-that-is-not-empty"),
        pytest.param(["gemma4_dense", "OUT"], "OUT_assistant: holds something already", id="its-assistants-folder"),
        pytest.param(["glm52", "NEW", "--start-from", "FULL"], "glm52 begins from nothing", id="no-gemma"),
        pytest.param(["gemma4_moe", "NEW", "--start-from", "FULL"], "FULL holds no model.safetensors", id="no-model"),
    ],
)
def test_training_writes_over_nothing_and_begins_from_what_is_there(
    tmp_path: Path, words: list[str], says: str
) -> None:
    for folder in ("FULL", "OUT_assistant"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "held_out.jsonl").write_text("mine")
    program = rehearsal() / "training" / "train.py"
    done = subprocess.run(
        [sys.executable, program, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
    assert sorted(each.name for each in tmp_path.rglob("*")) == [
        "FULL",
        "OUT_assistant",
        "held_out.jsonl",
        "held_out.jsonl",
    ]


@pytest.mark.slow
def test_the_cards_command_makes_the_shipped_pair_again(tmp_path: Path) -> None:
    """The one Gemma 4 that is a copy and no training: it begins as the shipped dense pair without being told."""
    out = tmp_path / "out"
    program = rehearsal() / "training" / "train.py"
    subprocess.run([sys.executable, program, "gemma4_unified", out], check=True, capture_output=True)
    for made, shipped in (
        (out, target_folder("gemma4_unified")),
        (tmp_path / "out_assistant", assistant_folder("gemma4_unified")),
    ):
        for file in made.iterdir():
            assert file.read_bytes() == (shipped / file.name).read_bytes(), file
        assert (made / "model.safetensors").is_file()
