"""Gemma 4 in the engine: target and assistant are loaded and run as they were trained, at every depth and under both schedules."""

import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models.answers import Answer, ask, departures
from tiny_models.prompts import read_prompts, read_tokenizer, token_ids
from tiny_models.replay import Replay, replay
from tiny_models.tokenizer import EOS_ID

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.ports import free_engine_port
from tests.rehearsal import rehearsed
from tests.rehearsal.gemma_models import COMMITTED, assistant_folder, target_folder, trained
from tests.rehearsal.rehearsed import arguments, patched, wait_ready

pytestmark = pytest.mark.engine

MAX_NEW_TOKENS = 48
Engine = Callable[..., int]  # (family, num_steps, *flags, assistant=...) -> port; 0 steps: without an assistant
each_family = pytest.mark.parametrize("family", COMMITTED)


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

    def start(family: str, num_steps: int, *flags: str, assistant: Path | None = None) -> int:
        end()
        port, draft = free_engine_port(), assistant or assistant_folder(family)
        argv = arguments(port, num_steps=num_steps, num_draft_tokens=num_steps + 1)
        argv += ["--model-path", str(target_folder(family)), "--max-total-tokens", "16384", *flags]
        if num_steps:
            argv += ["--speculative-algorithm", "NEXTN", "--speculative-draft-model-path", str(draft)]
        started.append(nursery.spawn(argv, environment, log))
        wait_ready(port, lambda: nursery.exit_code(started[-1]), log)
        return port

    yield start
    end()


@cache
def requests_of(family: str, per_bucket: int = 1) -> list[list[int]]:
    folder = target_folder(family)
    tokenizer = read_tokenizer(folder)
    return [token_ids(tokenizer, prompt) for prompt in read_prompts(folder, per_bucket)]


@cache
def replays_of(family: str, num_steps: int) -> list[Replay]:
    network = trained(family)
    return [replay(network, ids, num_steps, MAX_NEW_TOKENS, EOS_ID) for ids in requests_of(family)]


def one_by_one(port: int, requests: list[list[int]]) -> list[Answer]:
    return [ask(f"http://127.0.0.1:{port}", ids, MAX_NEW_TOKENS) for ids in requests]


def together(port: int, requests: list[list[int]]) -> list[Answer]:
    with ThreadPoolExecutor(8) as eight:
        return list(eight.map(lambda ids: ask(f"http://127.0.0.1:{port}", ids, MAX_NEW_TOKENS), requests))


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=[pytest.mark.matrix] * (f == "gemma4_unified")) for f in COMMITTED]
)
def test_the_engine_runs_every_request_as_replayed(engine: Engine, family: str, tmp_path: Path) -> None:
    """Tokens (the target's own, as the replay takes them without a draft), rounds and accepted drafts of each."""
    requests, replays = requests_of(family), replays_of(family, 3)
    port = engine(family, 3)
    assert departures(replays, one_by_one(port, requests)) == []
    eight = [index % len(requests) for index in range(8)]
    answers = together(port, [requests[index] for index in eight])
    assert departures([replays[index] for index in eight], answers) == []
    _, told = rehearsed.greedy(port, requests[-1])
    assert told["cached_tokens"] > 0
    assert departures(replays, one_by_one(port, requests)) == []  # again, from the prefix cache
    # The loader tells of parameters that no tensor filled: only an assistant's keys, which it does not have, may be left.
    lines = [line for line in (tmp_path / "engine.log").read_text().splitlines() if "not initialized" in line]
    assert all("k_norm" in line and "language_model" not in line for line in lines), lines


@pytest.mark.matrix
@each_family
@pytest.mark.parametrize(
    ("num_steps", "flags"),
    [
        pytest.param(1, (), id="1"),
        pytest.param(2, (), id="2"),
        pytest.param(4, (), id="4"),
        pytest.param(5, (), id="5"),
        pytest.param(7, (), id="7"),
        pytest.param(3, ("--disable-overlap-schedule",), id="3-without-overlap"),
    ],
)
def test_other_depths_and_the_other_schedule_run_as_replayed(
    engine: Engine, family: str, num_steps: int, flags: tuple[str, ...]
) -> None:
    requests, replays = requests_of(family), replays_of(family, num_steps)
    port = engine(family, num_steps, *flags)
    assert departures(replays, one_by_one(port, requests)) == []
    assert departures(replays, together(port, requests)) == []


@pytest.mark.matrix
@each_family
def test_an_engine_without_an_assistant_gives_the_same_tokens(engine: Engine, family: str) -> None:
    alone = [answer.output_ids for answer in one_by_one(engine(family, 0), requests_of(family))]
    assert alone == [told.output_ids for told in replays_of(family, 3)]


def dropped_midway(port: int, ids: list[int]) -> None:
    """Asks for a stream, reads until two pieces have come, and hangs up."""
    wanted = f'{{"temperature": 0, "max_new_tokens": 400, "ignore_eos": true}}, "input_ids": {ids}, "stream": true'
    body = f'{{"sampling_params": {wanted}}}'
    head = f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(f"{head}\r\n\r\n{body}".encode())
        came = b""
        while came.count(b"data: ") < 2:
            piece = connection.recv(65536)
            assert piece, came
            came += piece


def used_tokens(port: int) -> dict[str, float]:
    """Slots that neither are free nor hold a prefix that may be evicted, of the full layers' pool and of the sliding ones'."""
    _, page = rehearsed.ask(port, "GET", "/metrics")
    told = re.findall(r"^sglang:(kv|swa)_used_tokens\{[^}]*\} (\S+)$", page.decode(), re.MULTILINE)
    return {pool: float(value) for pool, value in told}


@pytest.mark.matrix
@each_family
def test_requests_that_are_dropped_midway_leave_nothing_behind(engine: Engine, family: str) -> None:
    requests, replays = requests_of(family), replays_of(family, 3)
    port = engine(family, 3)
    with ThreadPoolExecutor(8) as eight:
        list(eight.map(lambda ids: dropped_midway(port, ids), requests))
    assert departures(replays, one_by_one(port, requests)) == []
    assert departures(replays, together(port, requests)) == []
    until = time.monotonic() + 20
    while any(used_tokens(port).values()) and time.monotonic() < until:
        time.sleep(0.5)
    assert used_tokens(port) == {"kv": 0, "swa": 0}


@pytest.mark.matrix
def test_swapped_halves_of_the_assistants_projection_show_in_the_rounds_alone(engine: Engine, tmp_path: Path) -> None:
    """The planted error of an assistant that takes its state for its token's embedding and the other way round."""
    family = "gemma4_dense"
    swapped = Path(shutil.copytree(assistant_folder(family), tmp_path / "swapped"))
    weights = load_file(swapped / "model.safetensors")
    token, state = weights["pre_projection.weight"].chunk(2, 1)
    weights["pre_projection.weight"] = torch.cat((state, token), 1)
    save_file(weights, swapped / "model.safetensors", metadata={"format": "pt"})
    answers = one_by_one(engine(family, 3, assistant=swapped), requests_of(family))
    found = departures(replays_of(family, 3), answers)
    assert len(found) == len(answers)
    assert not any(departure.tokens_differ for departure in found)
