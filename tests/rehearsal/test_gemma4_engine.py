"""Gemma 4 in the engine: target and assistant are loaded and run as they were trained, with the overlap schedule and without."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny_models.answers import Answer, ask, departures
from tiny_models.prompts import read_prompts, read_tokenizer, token_ids
from tiny_models.replay import replay
from tiny_models.tokenizer import EOS_ID

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.ports import free_engine_port
from tests.rehearsal.gemma_models import COMMITTED, assistant_folder, target_folder, trained
from tests.rehearsal.rehearsed import arguments, patched, wait_ready

pytestmark = pytest.mark.engine

MAX_NEW_TOKENS = 64
Engine = Callable[..., str]  # (family, num_steps, *flags) -> address; 0 steps: without an assistant


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery.start(most=1) as nursery:
        yield nursery


@pytest.fixture
def engine(nursery: Nursery, tmp_path: Path) -> Iterator[Engine]:
    """Starts an engine on a tiny Gemma 4 with the rehearsal's patches; a second one takes the first one's place."""
    environment, log = patched(tmp_path, Family.GEMMA4), tmp_path / "engine.log"
    started: list[int] = []

    def end() -> None:
        while started:
            nursery.kill(started[-1])
            nursery.wait(started.pop(), 30)

    def start(family: str, num_steps: int, *flags: str) -> str:
        end()
        port = free_engine_port()
        draft = ["--speculative-algorithm", "NEXTN", "--speculative-draft-model-path", str(assistant_folder(family))]
        argv = arguments(port, num_steps=num_steps, num_draft_tokens=num_steps + 1)
        argv += ["--model-path", str(target_folder(family)), "--max-total-tokens", "16384", *flags]
        argv += draft if num_steps else []
        started.append(nursery.spawn(argv, environment, log))
        wait_ready(port, lambda: nursery.exit_code(started[-1]), log)
        return f"http://127.0.0.1:{port}"

    yield start
    end()


def requests_of(family: str, per_bucket: int = 4) -> list[list[int]]:
    folder = target_folder(family)
    tokenizer = read_tokenizer(folder)
    return [token_ids(tokenizer, prompt) for prompt in read_prompts(folder, per_bucket)]


def together(address: str, requests: list[list[int]]) -> list[Answer]:
    with ThreadPoolExecutor(8) as eight:
        return list(eight.map(lambda ids: ask(address, ids, MAX_NEW_TOKENS), requests))


@pytest.mark.parametrize("schedule", [(), ("--disable-overlap-schedule",)], ids=["overlap", "plain"])
@pytest.mark.parametrize("family", COMMITTED)
def test_the_engine_runs_every_request_as_replayed(engine: Engine, family: str, schedule: tuple[str, ...]) -> None:
    """Tokens, rounds and accepted drafts of each, one after another and eight at a time."""
    requests, network = requests_of(family), trained(family)
    address = engine(family, 3, *schedule)
    replays = [replay(network, ids, 3, MAX_NEW_TOKENS, EOS_ID) for ids in requests]
    assert departures(replays, [ask(address, ids, MAX_NEW_TOKENS) for ids in requests]) == []
    assert departures(replays, together(address, requests)) == []


@pytest.mark.parametrize("family", COMMITTED)
def test_drafts_change_no_token_of_the_target(engine: Engine, family: str) -> None:
    """The engine without an assistant against the engine with one, at another depth than it was trained for."""
    requests = requests_of(family, per_bucket=2)
    address = engine(family, 0)
    alone = [ask(address, ids, MAX_NEW_TOKENS).output_ids for ids in requests]
    address = engine(family, 5)
    drafted = [ask(address, ids, MAX_NEW_TOKENS) for ids in requests]
    assert [answer.output_ids for answer in drafted] == alone
    assert [answer.output_ids for answer in together(address, requests)] == alone
    assert sum(answer.rounds for answer in drafted) < sum(map(len, alone)) / 1.5  # drafts were accepted


@pytest.mark.parametrize("family", COMMITTED)
def test_every_tensor_of_both_checkpoints_is_read(engine: Engine, family: str, tmp_path: Path) -> None:
    """The loader tells of parameters that no tensor filled: only an assistant's keys, which it does not have, may be left."""
    engine(family, 3)
    lines = [line for line in (tmp_path / "engine.log").read_text().splitlines() if "not initialized" in line]
    assert all("k_norm" in line and "language_model" not in line for line in lines), lines
