"""Sampled answers of the real engine, speculating and not: one law, compared as distributions over many short answers.

Distances and bounds are prove.sampling's. Penalties are compared greedily too, token by token, where each counts at once. The other
measure takes every token of longer answers: how often it is the target's likeliest, against how often p says by the direct formula
(the network in torch). A draft is mostly that token, so whatever favours drafts shows here first; an honest engine is beyond 4
standard deviations once in sixteen thousand times. Seeded runs draw the same answers every time.
"""

import json
import math
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import ne
from pathlib import Path

import pytest
import torch
from tiny_models.deepseek_v3.checkpoint import read_checkpoint
from tiny_models.deepseek_v3.network import Network
from tiny_models.prompts import read_prompts, read_tokenizer, token_ids

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.engine.patches import choose_patches, patches_folder, read_patches, resolve
from spec_toolkit.handover import LIST_VARIABLE, encode_list
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.prove.lossless import Completion
from spec_toolkit.prove.sampling import Report, compare_samples
from spec_toolkit.shipped import shipped
from tests.rehearsal.planting import FULL_P, hook
from tests.rehearsal.rehearsed import arguments, ask, held_out, patched, wait_ready

pytestmark = pytest.mark.engine

PROMPTS = held_out(12)
PROMPT = PROMPTS[0]
ANSWERS, TOKENS = 256, 4  # the first token comes from the prefill, which does not speculate
SEEDED = "--enable-deterministic-inference"
REJECTION = "--speculative-use-rejection-sampling"
SETTINGS = {
    "spread": {"temperature": 1.6, "top_k": 8},  # the trained model is so sure at 1.0 that little could differ
    "cut": {"temperature": 1.6, "top_k": 6, "top_p": 0.5},
}
UNSEEDED = {"min-p": {"temperature": 1.6, "min_p": 0.3}}  # beside seeds the engine's own sampler refuses it
PENALTIES = {
    "frequency": {"frequency_penalty": 1.5},
    "presence": {"presence_penalty": 1.5},
    "repetition": {"repetition_penalty": 1.8},
}
SURE = 9  # the prompt whose answer the model is surest of
VERIFY = "sglang.srt.speculative.eagle_utils.eagle_sample"
EACH, LONG = 8, 24  # answers to each of fifteen prompts, tokens of each


@dataclass
class Engine:
    """A running engine and what it answered."""

    port: int
    seeded: bool
    kept: dict[str, list[list[int]]] = field(default_factory=dict)
    accepted: int = 0

    def generate(self, given: dict[str, object], wanted: Sequence[dict[str, object]]) -> list[list[int]]:
        status, content = ask(self.port, "POST", "/generate", {**given, "sampling_params": wanted}, seconds=300)
        assert status == 200, content
        answers = json.loads(content)
        self.accepted += sum(answer["meta_info"].get("spec_num_correct_drafts", 0) for answer in answers)
        return [answer["output_ids"] for answer in answers]

    def sample(self, asked: dict[str, object], seeds: Sequence[int]) -> list[list[int]]:
        """An answer to the prompt for each seed; an engine that takes none draws as it likes."""
        return self.generate({"text": [PROMPT] * len(seeds)}, self.wanted(asked, seeds, TOKENS))

    def wanted(self, asked: dict[str, object], seeds: Sequence[int], tokens: int) -> list[dict[str, object]]:
        shared = {"max_new_tokens": tokens, "ignore_eos": True, **asked}
        return [{**shared, "sampling_seed": seed} if self.seeded else shared for seed in seeds]

    def answers(self, name: str) -> list[list[int]]:
        if name not in self.kept:
            self.kept[name] = self.sample({**SETTINGS, **UNSEEDED}[name], range(ANSWERS))
        return self.kept[name]

    def greedy(
        self, prompts: Sequence[str], among: Sequence[str] = (), asked: dict[str, float] | None = None
    ) -> list[list[int]]:
        """Greedy answers, in one batch with sampled ones."""
        wanted = [{"temperature": 0, "max_new_tokens": 24, "ignore_eos": True, **(asked or {})}] * len(prompts)
        wanted += [{"temperature": 1.0, "max_new_tokens": 24, "ignore_eos": True}] * len(among)
        name = f"greedy, {len(among)} sampled, {asked}"
        if name not in self.kept:
            self.kept[name] = self.generate({"text": [*prompts, *among]}, wanted)[: len(prompts)]
        return self.kept[name]


@contextmanager
def running(
    nursery: Nursery, folder: Path, *more: str, planted: str = "", left_out: str = "", **shape: int
) -> Iterator[Engine]:
    """`planted`: a hook around the verify, beside the patches; `left_out`: a patch that the engine does without."""
    folder.mkdir(parents=True, exist_ok=True)
    port, log = free_engine_port(), folder / "engine.log"
    argv = arguments(port, "--max-total-tokens", "32768", "--max-running-requests", "128", *more, **shape)
    environment = patched(folder)
    if planted or left_out:
        every = read_patches(patches_folder(shipped("patches"), "0.5.23"))
        hooks = [
            each
            for each in resolve(choose_patches(every, family=Family.DEEPSEEK, rehearsal=True))
            if each.patch != left_out
        ]
        hooks += [hook(folder, VERIFY, planted)] if planted else []
        Path(environment[LIST_VARIABLE]).write_bytes(encode_list(tuple(hooks)))
    pid = nursery.spawn(argv, environment, log)
    try:
        wait_ready(port, lambda: nursery.exit_code(pid), log)
        yield Engine(port, seeded=SEEDED in more)
    finally:
        if nursery.exit_code(pid) is None:
            nursery.kill(pid, signal.SIGKILL)  # SIGTERM drains for seconds
            nursery.wait(pid, 60)


@pytest.fixture(scope="module")
def alone(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The engine that does not speculate; without the overlap schedule, beside which its penalties are a token late."""
    with running(
        nursery, tmp_path_factory.mktemp("alone"), SEEDED, "--disable-overlap-schedule", num_steps=0
    ) as engine:
        yield engine


SPECULATING = [
    pytest.param(([SEEDED], {}), id="target-only-seeded"),
    pytest.param(([SEEDED, REJECTION], {}), id="rejection-seeded"),
    pytest.param(([], {}), id="target-only", marks=pytest.mark.matrix),
    pytest.param(([REJECTION], {}), id="rejection", marks=pytest.mark.matrix),
    pytest.param(
        ([SEEDED], {"num_steps": 2, "topk": 2, "num_draft_tokens": 5}), id="tree-seeded", marks=pytest.mark.matrix
    ),
    pytest.param(
        ([REJECTION, "--disable-overlap-schedule"], {}), id="rejection-without-overlap", marks=pytest.mark.matrix
    ),
]


@pytest.fixture(scope="module", params=SPECULATING)
def speculating(
    request: pytest.FixtureRequest, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    more, shape = request.param
    with running(nursery, tmp_path_factory.mktemp("speculating"), *more, **shape) as engine:
        yield engine


def likeliest(network: Network, prompt: list[int], answers: list[list[int]]) -> tuple[float, float]:
    """(how many tokens are the target's likeliest beyond what p says, the variance p gives), the prefill's left out."""
    ids = torch.tensor([prompt + answer for answer in answers])
    with torch.inference_mode():
        p = network.lm_head(network.hidden(ids))[:, len(prompt) : -1].double().softmax(-1)
    top = p.max(-1)
    hits = (ids[:, len(prompt) + 1 :] == top.indices).double()
    return float((hits - top.values).sum()), float((top.values * (1 - top.values)).sum())


def favoured(speculating: Engine, model: Path) -> float:
    """By how many standard deviations a token came too often that the drafts are sure of and the target, by a bias, is not.

    The bias is the target's alone: it makes the token that follows the prefill's one half, where every draft is still that token.
    """
    network, prompt = read_checkpoint(model), read_tokenizer(model).encode(PROMPTS[SURE]).ids
    with torch.inference_mode():
        first = int(network.lm_head(network.hidden(torch.tensor([prompt]))[:, -1:]).argmax())
        p = network.lm_head(network.hidden(torch.tensor([[*prompt, first]]))[:, -1]).double().softmax(-1)[0]
    token = int(p.argmax())
    asked = {"temperature": 1.0, "logit_bias": {str(token): -float(torch.logit(p[token]))}}
    answers = speculating.generate({"input_ids": [prompt] * ANSWERS}, speculating.wanted(asked, range(ANSWERS), 2))
    second = [answer[1] == token for answer in answers if answer[0] == first]
    assert len(second) > ANSWERS / 2
    beyond = (sum(second) - len(second) / 2) / math.sqrt(len(second) / 4)
    said = f"{sum(second)} of {len(second)} second tokens are the one of probability 1/2"
    print(f"{said}: {beyond:+.2f} standard deviations too many")  # noqa: T201 - the figure
    return beyond


def compared(alone: Engine, speculating: Engine, name: str) -> Report:
    expected, found = alone.answers(name), speculating.answers(name)
    report = compare_samples(*([Completion(output_ids=tuple(ids)) for ids in answers] for answers in (expected, found)))
    print(name, report.sentence(), *((row.name, round(row.distance, 3), round(row.bound, 3)) for row in report.rows))  # noqa: T201 - the figures
    return report


def assert_one_law(alone: Engine, speculating: Engine, name: str) -> None:
    report = compared(alone, speculating, name)
    assert report.is_within_bounds, report.sentence()
    assert speculating.accepted > ANSWERS / 4, (
        "hardly a draft was accepted: this compared two engines that do not speculate"
    )
    assert len({tuple(answer) for answer in speculating.answers(name)}) > 1, (
        "an engine that commits argmax gives one answer"
    )


@pytest.mark.matrix
def test_min_p_has_one_law(nursery: Nursery, tmp_path: Path) -> None:
    """Without seeds: beside them the engine's own sampler, which draws the first token, asserts that nobody asks for it."""
    # First in the file: the nursery keeps two engines at a time, and the other tests share theirs.
    with (
        running(nursery, tmp_path / "alone", num_steps=0) as alone,
        running(nursery, tmp_path / "drafting") as drafting,
    ):
        assert_one_law(alone, drafting, "min-p")


@pytest.mark.matrix
def test_the_whole_target_behind_a_refused_draft_is_seen(nursery: Nursery, tmp_path: Path, model: Path) -> None:
    with running(nursery, tmp_path, SEEDED, REJECTION, planted=FULL_P) as engine:
        assert favoured(engine, model) > 4


@pytest.mark.matrix
def test_an_engine_without_whole_sampling_is_seen(alone: Engine, nursery: Nursery, tmp_path: Path) -> None:
    with running(nursery, tmp_path, SEEDED, left_out="whole-sampling") as engine:
        within = {name: compared(alone, engine, name).is_within_bounds for name in SETTINGS}
        differ = {
            name: sum(map(ne, engine.greedy(PROMPTS, asked=asked), alone.greedy(PROMPTS, asked=asked)))
            for name, asked in PENALTIES.items()
        }
    print(f"greedy answers that differ, of {len(PROMPTS)}: {differ}")  # noqa: T201 - the figures
    assert within == {"spread": True, "cut": False}
    assert all(differ.values())


def test_the_likeliest_token_comes_as_often_as_the_target_says(speculating: Engine, model: Path) -> None:
    network, tokenizer = read_checkpoint(model), read_tokenizer(model)
    prompts = [token_ids(tokenizer, prompt) for prompt in read_prompts(model, per_bucket=3)]
    given = [prompt for prompt in prompts for _ in range(EACH)]
    found = speculating.generate(
        {"input_ids": given}, speculating.wanted({"temperature": 1.0}, range(len(given)), LONG)
    )
    sums = [likeliest(network, prompt, found[i * EACH : (i + 1) * EACH]) for i, prompt in enumerate(prompts)]
    beyond, variance = (sum(parts) for parts in zip(*sums, strict=True))
    deviations = beyond / math.sqrt(variance)
    print(f"{len(given) * (LONG - 1)} tokens: the likeliest came {deviations:+.2f} standard deviations too often")  # noqa: T201 - the figure
    assert abs(deviations) < 4


def test_a_token_that_drafts_are_sure_of_comes_as_often_as_the_target_says(speculating: Engine, model: Path) -> None:
    assert abs(favoured(speculating, model)) < 4


@pytest.mark.parametrize("name", SETTINGS)
def test_sampled_answers_have_one_law(alone: Engine, speculating: Engine, name: str) -> None:
    assert_one_law(alone, speculating, name)


@pytest.mark.parametrize("asked", PENALTIES.values(), ids=PENALTIES)
def test_greedy_answers_under_penalties_are_token_equal(
    alone: Engine, speculating: Engine, asked: dict[str, float]
) -> None:
    assert speculating.greedy(PROMPTS, asked=asked) == alone.greedy(PROMPTS, asked=asked)


def test_greedy_answers_are_token_equal_alone_and_among_sampled_ones(alone: Engine, speculating: Engine) -> None:
    expected = alone.greedy(PROMPTS)
    assert speculating.greedy(PROMPTS) == expected
    assert speculating.greedy(PROMPTS, among=PROMPTS) == expected


def test_a_seed_gives_its_answer_again_whoever_is_beside_it(speculating: Engine) -> None:
    if not speculating.seeded:
        first, second = (speculating.sample(SETTINGS["spread"], range(64)) for _ in range(2))
        assert first != second
        return
    seeds = list(range(ANSWERS - 1, -1, -29))
    again = speculating.sample(SETTINGS["spread"], seeds)
    assert again == [speculating.answers("spread")[seed] for seed in seeds]
    assert len({tuple(answer) for answer in again}) > 1
