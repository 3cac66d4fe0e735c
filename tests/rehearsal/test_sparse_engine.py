"""The sparse models on the real engine: as the replay says, with and without speculation, alone and eight at a time."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
import torch
from tiny_models.answers import Answer, ask, departures
from tiny_models.deepseek_v3.checkpoint import read_checkpoint as read_deepseek_v3
from tiny_models.prompts import read_prompts, read_tokenizer, token_ids
from tiny_models.replay import Replay, replay
from tiny_models.sparse_mla.checkpoint import read_checkpoint, write_checkpoint
from tiny_models.sparse_mla.config import DEEPSEEK_V32, GLM_51
from tiny_models.sparse_mla.network import Network
from tiny_models.sparse_mla.stages import begin_from
from tiny_models.tokenizer import EOS_ID

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.launch.nursery import NURSERY, Nursery
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.shipped import rehearsal
from tests.rehearsal.rehearsed import arguments, patched, wait_ready

pytestmark = pytest.mark.engine

MAX_NEW_TOKENS = 48
POOL = ("--max-total-tokens", "16384")
TRAINED = "glm52_tiny"
SEEDED = {"deepseek_v32": (DEEPSEEK_V32, Family.DEEPSEEK), "glm51": (GLM_51, Family.GLM5)}
NAMES = (TRAINED, *SEEDED)
Start = Callable[..., str]  # (model folder, num_steps, *more arguments) -> address


@pytest.fixture(scope="session")
def folder_of(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A model that is shipped, or a seeded one: the tiny DeepSeek-V3's weights and random indexers."""

    def folder_of(name: str) -> Path:
        if name == TRAINED:
            return rehearsal() / "models" / name
        torch.manual_seed(3)
        network = Network(SEEDED[name][0])
        begin_from(network, read_deepseek_v3(model))
        folder = tmp_path_factory.mktemp(name)
        write_checkpoint(network, folder)
        for file in ("tokenizer.json", "tokenizer_config.json", "held_out.jsonl"):
            shutil.copyfile(model / file, folder / file)
        return folder

    return cache(folder_of)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery.start(most=1) as nursery:
        yield nursery


@pytest.fixture
def start(nursery: Nursery, tmp_path: Path) -> Iterator[Start]:
    yield from starting(nursery, tmp_path)


def starting(nursery: Nursery, folder: Path) -> Iterator[Start]:
    """Starts one engine at a time with the rehearsal's patches; the last ends with the test."""
    started: list[int] = []

    def end() -> None:
        for pid in started:
            nursery.kill(pid)
            nursery.wait(pid, 30)
        started.clear()

    def start(model: Path, num_steps: int, *more: str) -> str:
        end()
        family = Family.GLM5 if "glm" in model.name else Family.DEEPSEEK
        port, log = free_engine_port(), folder / f"engine-{num_steps}.log"
        argv = arguments(
            port, *POOL, "--model-path", str(model), *more, num_steps=num_steps, num_draft_tokens=num_steps + 1
        )
        reports = folder / f"patches-{num_steps}"
        reports.mkdir()
        started.append(nursery.spawn(argv, patched(reports, family), log))
        wait_ready(port, lambda: nursery.exit_code(started[-1]), log)
        return f"http://127.0.0.1:{port}"

    yield start
    end()


def prompts_of(model: Path, per_bucket: int = 1) -> list[list[int]]:
    tokenizer = read_tokenizer(model)
    return [token_ids(tokenizer, prompt) for prompt in read_prompts(model, per_bucket)]


def replays_of(model: Path, prompts: list[list[int]], num_steps: int) -> list[Replay]:
    network = read_checkpoint(model)
    return [replay(network, ids, num_steps, MAX_NEW_TOKENS, EOS_ID) for ids in prompts]


def one_by_one(address: str, prompts: list[list[int]]) -> list[Answer]:
    return [ask(address, ids, MAX_NEW_TOKENS) for ids in prompts]


def together(address: str, prompts: list[list[int]]) -> list[Answer]:
    with ThreadPoolExecutor(8) as eight:
        return list(eight.map(lambda ids: ask(address, ids, MAX_NEW_TOKENS), prompts))


def tokens(answers: list[Answer] | list[Replay]) -> list[tuple[int, ...]]:
    return [answer.output_ids for answer in answers]


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_runs_every_request_as_replayed_and_speculation_changes_no_token(
    start: Start, folder_of: Callable[[str], Path], name: str
) -> None:
    model = folder_of(name)
    prompts = prompts_of(model)
    replays = replays_of(model, prompts, 3)
    address = start(model, 3)
    assert departures(replays, one_by_one(address, prompts)) == []
    assert departures(replays, together(address, prompts)) == []
    assert (
        departures(replays, one_by_one(address, prompts)) == []
    )  # again, now that the prompts are in the prefix cache
    assert tokens(one_by_one(start(model, 0), prompts)) == tokens(replays)


@pytest.mark.matrix
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("num_steps", "more"),
    [
        pytest.param(1, (), id="1"),
        pytest.param(7, (), id="7"),
        pytest.param(3, ("--disable-overlap-schedule",), id="3-without-overlap"),
    ],
)
def test_other_depths_and_the_other_schedule_run_as_replayed(
    start: Start, folder_of: Callable[[str], Path], name: str, num_steps: int, more: tuple[str, ...]
) -> None:
    model = folder_of(name)
    prompts = prompts_of(model)
    replays = replays_of(model, prompts, num_steps)
    address = start(model, num_steps, *more)
    assert departures(replays, one_by_one(address, prompts)) == []
    assert departures(replays, together(address, prompts)) == []


STABLE = "torch.sort(scores, descending=True, stable=True).indices[:topk]"
LATER_WHERE_ALONE = (  # ties to the later position, but only where a pass has one new row, as a shape-dependent top-k does
    "(scores.numel() - 1 - torch.sort(scores.flip(0), descending=True, stable=True).indices[:topk])"
)


@pytest.mark.matrix
def test_a_tie_rule_that_depends_on_the_batchs_shape_is_seen(tmp_path: Path, folder_of: Callable[[str], Path]) -> None:
    """The planted fault of an unstable top-k: an honest run parts from the autoregressive one."""
    copy = tmp_path / "rehearsal"
    shutil.copytree(NURSERY.parent, copy, ignore=shutil.ignore_patterns("models", "__pycache__"))
    kernel = copy / "path" / "sgl_kernel" / "selection.py"
    text = kernel.read_text(encoding="utf-8")
    call = "highest(index_scores(queries[token], known[:visible], weights[token]), topk)"
    assert text.count(STABLE) == text.count(call) == 1
    unstable = f"{call[:-1]}, alone=new == 1)"
    text = text.replace(call, unstable).replace('topk: int) -> torch.Tensor:\n    """The positions', 'topk: int, alone: bool) -> torch.Tensor:\n    """The positions')  # fmt: skip
    kernel.write_text(text.replace(f"return {STABLE}", f"return {LATER_WHERE_ALONE} if alone else {STABLE}"))
    model = folder_of(TRAINED)
    prompts = prompts_of(model, per_bucket=2)
    with Nursery.start(most=1, script=copy / "nursery.py") as nursery:
        for start in starting(nursery, tmp_path):
            speculative = one_by_one(start(model, 3), prompts)
            autoregressive = one_by_one(start(model, 0), prompts)
    parted = sum(a != b for a, b in zip(tokens(speculative), tokens(autoregressive), strict=True))
    assert parted > 0
