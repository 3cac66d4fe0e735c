"""The replay against the engine: the checkpoint is loaded and run as it was trained, its draft included."""

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tiny_models.answers import ask, departures
from tiny_models.deepseek_v3.checkpoint import read_checkpoint
from tiny_models.prompts import read_prompts, read_tokenizer, token_ids
from tiny_models.replay import replay
from tiny_models.tokenizer import EOS_ID

from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.ports import free_engine_port
from tests.rehearsal.rehearsed import arguments, patched, wait_ready

pytestmark = pytest.mark.engine

MAX_NEW_TOKENS = 64
Engine = Callable[[int], str]  # num_steps -> address of an engine that drafts so many


@pytest.fixture(scope="module")
def requests(model: Path) -> list[list[int]]:
    tokenizer = read_tokenizer(model)
    return [token_ids(tokenizer, prompt) for prompt in read_prompts(model, per_bucket=4)]


@pytest.fixture
def tiny_engine(nursery: Nursery, tmp_path: Path) -> Iterator[Engine]:
    """Starts an engine on the tiny model with the rehearsal's patches and the overlap schedule; it ends with the test."""
    environment, log = patched(tmp_path), tmp_path / "engine.log"
    started: list[int] = []

    def start(num_steps: int) -> str:
        port = free_engine_port()
        argv = arguments(port, "--max-total-tokens", "16384", num_steps=num_steps, num_draft_tokens=num_steps + 1)
        started.append(nursery.spawn(argv, environment, log))
        wait_ready(port, lambda: nursery.exit_code(started[-1]), log)
        return f"http://127.0.0.1:{port}"

    yield start
    for pid in started:
        nursery.kill(pid, signal.SIGKILL)  # SIGTERM drains for seconds
        nursery.wait(pid, 30)


@pytest.mark.parametrize("num_steps", [3, pytest.param(1, marks=pytest.mark.matrix)])
def test_the_engine_runs_every_request_as_replayed(
    tiny_engine: Engine, model: Path, requests: list[list[int]], num_steps: int
) -> None:
    """Tokens, rounds and accepted drafts of each, one after another and eight at a time."""
    address = tiny_engine(num_steps)
    network = read_checkpoint(model)
    replays = [replay(network, ids, num_steps, MAX_NEW_TOKENS, EOS_ID) for ids in requests]
    assert departures(replays, [ask(address, ids, MAX_NEW_TOKENS) for ids in requests]) == []
    with ThreadPoolExecutor(8) as eight:
        answers = list(eight.map(lambda ids: ask(address, ids, MAX_NEW_TOKENS), requests))
    assert departures(replays, answers) == []


def test_a_chat_message_and_its_prompt_text_reach_the_engine_as_the_same_tokens(
    tiny_engine: Engine, model: Path
) -> None:
    address, tokenizer = tiny_engine(3), read_tokenizer(model)
    for prompt in read_prompts(model, per_bucket=1):
        ids = token_ids(tokenizer, prompt)
        answer = ask(address, ids, 16)
        text = post(f"{address}/generate", text=prompt.prompt, sampling_params={"temperature": 0, "max_new_tokens": 16})
        assert text["meta_info"]["prompt_tokens"] == len(ids)
        assert tuple(text["output_ids"]) == answer.output_ids
        messages = [{"role": "user", "content": prompt.message}]
        chat = post(f"{address}/v1/chat/completions", model="", messages=messages, temperature=0, max_tokens=16)
        assert chat["usage"]["prompt_tokens"] == len(ids)
        assert chat["choices"][0]["message"]["content"] == text["text"]


def post(url: str, **body: object) -> dict:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - our own engine
    with urlopen(request, timeout=120) as response:  # noqa: S310 - our own engine
        return json.load(response)
