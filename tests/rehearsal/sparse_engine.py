"""The sparse models on the real engine, for the tests of it: their requests, what the replay says of them, engines one after another."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from tiny_models.answers import Answer, ask
from tiny_models.prompts import read_prompts, read_tokenizer, token_ids
from tiny_models.replay import Replay, replay
from tiny_models.sparse_mla.checkpoint import read_checkpoint
from tiny_models.tokenizer import EOS_ID

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.shipped import rehearsal
from tests.rehearsal.rehearsed import arguments, patched, wait_ready

MAX_NEW_TOKENS = 48
NAMES = ("deepseek_v32_tiny", "glm51_tiny", "glm52_tiny")
TWO_RANKS = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}  # a core for each
Item = TypeVar("Item")
Start = Callable[..., str]  # (name, num_steps, *more arguments) -> address


def starting(nursery: Nursery, folder: Path, environment: dict[str, str] | None = None) -> Iterator[Start]:
    """Starts one engine at a time with the rehearsal's patches; the last ends with the generator."""
    running: list[int] = []
    turns = itertools.count()

    def end() -> None:
        while running:
            nursery.kill(running[-1])
            nursery.wait(running.pop(), 30)

    def start(name: str, num_steps: int, *more: str) -> str:
        end()
        own = folder / f"engine-{next(turns)}"
        own.mkdir()
        port, log = free_engine_port(), own / "engine.log"
        family = Family.GLM5 if name.startswith("glm") else Family.DEEPSEEK
        argv = arguments(port, num_steps=num_steps, num_draft_tokens=num_steps + 1)
        argv += ["--max-total-tokens", "16384", "--model-path", str(folder_of(name)), *more]
        running.append(nursery.spawn(argv, patched(own, family) | (environment or {}), log))
        wait_ready(port, lambda: nursery.exit_code(running[-1]), log)
        return f"http://127.0.0.1:{port}"

    try:
        yield start
    finally:
        end()


def folder_of(name: str) -> Path:
    return rehearsal() / "models" / name


@dataclass(frozen=True, slots=True)
class Requests:
    """Held-out prompts of one model, evenly over the buckets."""

    name: str
    ids: tuple[list[int], ...]

    def replays(self, num_steps: int) -> list[Replay]:
        network = read_checkpoint(folder_of(self.name))
        return [replay(network, ids, num_steps, MAX_NEW_TOKENS, EOS_ID) for ids in self.ids]

    def one_by_one(self, address: str) -> list[Answer]:
        return [ask(address, ids, MAX_NEW_TOKENS) for ids in self.ids]

    def eight_together(self, address: str) -> list[Answer]:
        """The first eight, some of them again where there are fewer."""
        with ThreadPoolExecutor(8) as eight:
            return list(eight.map(lambda ids: ask(address, ids, MAX_NEW_TOKENS), eight_of(self.ids)))


@cache
def requests_of(name: str, per_bucket: int = 1) -> Requests:
    tokenizer = read_tokenizer(folder_of(name))
    prompts = read_prompts(folder_of(name), per_bucket)
    return Requests(name, tuple(token_ids(tokenizer, prompt) for prompt in prompts))


def eight_of(items: Sequence[Item]) -> list[Item]:
    return [items[index % len(items)] for index in range(8)]


def tokens(answers: list[Answer] | list[Replay]) -> list[tuple[int, ...]]:
    return [answer.output_ids for answer in answers]
