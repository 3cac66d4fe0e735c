"""Streams cut on one real engine and resumed on another: what the client holds at the end is what it would have held without the cut."""

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spec_toolkit.engine.names import CPU_CORES_OF_RANKS
from spec_toolkit.engine.resume import Endpoint, resumed_request
from spec_toolkit.launch.forked import Forked, forked, wait_until_ready
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.resumption import RECORD_PREFIX, Resumption
from tests.engine.serving import launch_spec, rehearsal_recipe, serving
from tests.patches.resuming import (
    ask,
    chat_part,
    chat_through,
    folded,
    generate_through,
    last_word,
    lines,
    whole_chat,
    whole_generate,
)
from tests.rehearsal.rehearsed import held_out

pytestmark = pytest.mark.engine

TOKENS = 32
PROMPTS = sorted(held_out(40), key=len)[:8]  # short ones: several fit where tokens are few
WORDS = "[a-z]{3,6}( [a-z0-9]{2,9}){2,4}\\."
# Two and four bytes each, and in this vocabulary as many tokens: most cuts are inside a character
LETTERS = "[\u0430-\u044f\U0001f680]{8,12}"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
}
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]


def chat(prompt: str, **more: object) -> dict[str, object]:
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "temperature": 0}
    return {**body, "max_tokens": TOKENS, "messages": [{"role": "user", "content": prompt}], **more}


def generate(prompt: str, fields: dict[str, object] | None = None, **sampling: object) -> dict[str, object]:
    params = {"temperature": 0, "max_new_tokens": TOKENS, **sampling}
    return {"text": prompt, "stream": True, "sampling_params": params, **(fields or {})}


def assert_same(whole: dict[str, object], resumed: dict[str, object]) -> None:
    nats, resumed_nats = whole.pop("nats"), resumed.pop("nats")
    assert resumed == whole
    assert resumed_nats == pytest.approx(nats, abs=0.01)


def all_same(name: str, runs: Sequence[tuple[dict[str, object], dict[str, object], Sequence[int]]]) -> None:
    """Each run: without a cut, with cuts, tokens committed at each cut."""
    for whole, resumed, _ in runs:
        assert_same(whole, resumed)
    sys.stdout.write(f"\n{name}: {len(runs)} of {len(runs)} equal, cut after {[list(at) for *_, at in runs]} tokens")


def at_once(work: Callable[..., Any], rows: Sequence[Sequence[object]], most: int = 4) -> list[Any]:
    with ThreadPoolExecutor(most) as pool:
        return list(pool.map(lambda row: work(*row), rows))


def chat_twice(engines: Sequence[str], body: dict[str, object], seed: int):
    """Without a cut on the first engine; and over all of them, cut at a commit drawn by `seed`."""
    if body.get("stop") == "":  # a string that this model will write, longer than a token
        text = folded(whole_chat(engines[0], {**body, "stop": None}))["content"]
        body = {**body, "stop": text[len(text) // 2 :][:5]}
    whole = chat_part(engines[0], {**body, "custom_params": {"resume_records": True}})
    cut = random.Random(seed).randint(1, max(1, len(whole.steps) - 4))  # noqa: S311 - seeded, so that a run repeats
    events, at = chat_through(engines, body, [cut, 2][: len(engines) - 1])
    return folded(whole.events), folded(events), at


def generate_twice(engines: Sequence[str], body: dict[str, object], seed: int):
    whole = whole_generate(engines[0], body)
    tokens = len(whole[-1]["output_ids"])
    cut = random.Random(seed).randint(1, max(1, tokens - 4))  # noqa: S311 - seeded, so that a run repeats
    events, at = generate_through(engines, body, [cut, cut + 2][: len(engines) - 1])
    return last_word(whole), last_word(events), at


CHAT = {
    "greedy": {},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "stop string": {"stop": ""},
    "stop regex": {"stop_regex": "[a-z]{2}[^a-z]+[a-z]{3}[^a-z]+[a-z]{4}"},
    "regex": {"regex": WORDS},
    "incomplete characters": {"regex": LETTERS},
    "json schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
}
GENERATE = {
    "greedy": generate("{}"),
    "logprobs": generate("{}", {"return_logprob": True, "top_logprobs_num": 2, "return_text_in_logprobs": True}),
    "prompt logprobs": generate("{}", {"return_logprob": True, "logprob_start_len": 0}),
    "incomplete characters": generate("{}", regex=LETTERS),
    "stop token": generate("{}", stop_token_ids=[30, 12, 260], no_stop_trim=True),
}
# With log-probabilities, in which a penalty shows whether or not it changes the text.
PENALTIES = {
    "repetition": {"repetition_penalty": 1.3},
    "frequency": {"frequency_penalty": 0.7},
    "presence": {"presence_penalty": 0.9},
    "min_tokens": {"min_tokens": 20, "logit_bias": {"1": 40}},
}
BAD = {
    "vocabulary": ({"resume_ids": [5, 512], "resume_steps": [2, 3]}, "vocabulary"),
    "no token left": ({"resume_ids": [5] * TOKENS, "resume_steps": [TOKENS, 3]}, "none is left"),
    "steps of other ids": ({"resume_ids": [5, 6], "resume_steps": [1, 3]}, "another text"),
    "no list": ({"resume_ids": 5}, "no list"),
    "negative": ({"resume_ids": [-5], "resume_steps": [1, 1]}, "no list"),
}


class TestSpeculatingAndNot:
    """A speculates, B does not; both with the overlap schedule."""

    @pytest.fixture(scope="class")
    @classmethod
    def engines(cls, nursery, tmp_path_factory) -> Iterator[tuple[str, str]]:
        folder = tmp_path_factory.mktemp("pair")
        with (
            serving(nursery, folder / "a", speculate=True) as a,
            serving(nursery, folder / "b", speculate=False) as b,
        ):
            yield a.address, b.address

    @pytest.mark.parametrize("case", CHAT)
    def test_chat(self, engines, case):
        a, b = engines
        rows = [((a, b), 0), ((a, b), 1), ((b, a), 2), ((a, b, a), 3)]
        bodies = [(order, chat(PROMPTS[seed], **CHAT[case]), seed) for order, seed in rows]
        all_same(f"chat, {case}", at_once(chat_twice, bodies))

    @pytest.mark.parametrize("case", GENERATE)
    def test_generate(self, engines, case):
        a, b = engines
        rows = [((a, b), 0), ((b, a), 1), ((a, b, a), 2)]
        bodies = [(order, {**GENERATE[case], "text": PROMPTS[seed]}, seed) for order, seed in rows]
        all_same(f"/generate, {case}", at_once(generate_twice, bodies))

    def test_at_every_commit_of_a_chat_stream_the_first_and_the_last_included(self, engines):
        body = chat(PROMPTS[4], max_tokens=20)
        part = chat_part(engines[0], {**body, "custom_params": {"resume_records": True}})
        whole = folded(whole_chat(engines[0], body))
        cut = at_once(lambda n: chat_through(engines, body, [n]), [(n,) for n in range(len(part.steps) + 1)])
        all_same("every commit", [(dict(whole), folded(events), at) for events, at in cut])
        assert cut[0][1] == [0], "cut before the first token it is a new request"

    def test_at_every_token_of_a_generate_stream(self, engines):
        body = generate(PROMPTS[5], max_new_tokens=12)
        whole = last_word(whole_generate(engines[1], body))
        cut = at_once(lambda n: generate_through(engines[::-1], body, [n]), [(n,) for n in range(1, 12)])
        all_same("every token", [(dict(whole), last_word(events), at) for events, at in cut])

    @pytest.mark.parametrize("case", PENALTIES)
    def test_penalties_between_engines_that_do_not_speculate(self, engines, case):
        """One stream at a time: with others beside it the engine's own penalties differ from run to run."""
        b = engines[1]
        all_same(
            case, [chat_twice((b, b), chat(PROMPTS[seed], logprobs=True, **PENALTIES[case]), seed) for seed in (0, 4)]
        )

    def test_a_request_that_is_not_streamed_goes_on_as_well(self, engines):
        a, b = engines
        body = {**generate(PROMPTS[3]), "stream": False}
        _, whole = ask(a, "/generate", body)
        body["sampling_params"] = {**body["sampling_params"], "custom_params": {"resume_ids": whole["output_ids"][:9]}}
        _, resumed = ask(b, "/generate", body)
        for key in ("text", "output_ids"):
            assert resumed[key] == whole[key]
        for key in ("finish_reason", "prompt_tokens", "completion_tokens"):
            assert resumed["meta_info"][key] == whole["meta_info"][key]

    def test_a_sampled_stream_goes_on_with_a_text_of_its_own(self, engines):
        events, [at] = chat_through(engines, chat(PROMPTS[2], temperature=0.9, ignore_eos=True), [3])
        held = folded(events)
        assert 0 < at < TOKENS
        assert (held["roles"], held["finish"]) == (1, [("length", None)])
        assert held["usage"][0]["completion_tokens"] == TOKENS

    def test_who_asks_for_nothing_is_sent_nothing_of_ours(self, engines):
        for params in ({}, {"custom_params": {"thinking_budget": 4}}, {"custom_params": None}):
            with lines(engines[0], Endpoint.CHAT, chat(PROMPTS[0], **params)) as stream:
                every = list(stream)
            assert every[-2].startswith(b"data: [DONE]")
            assert not [line for line in every if line.startswith(RECORD_PREFIX[:1])]

    @pytest.mark.parametrize("case", BAD)
    def test_a_bad_resumption_is_answered_in_words(self, engines, case):
        params, words = BAD[case]
        for engine in engines:
            status, said = ask(engine, Endpoint.CHAT.value, chat(PROMPTS[0], custom_params=params))
            assert (status, words in str(said), "[resume." in str(said)) == (400, True, True), said
            body = {**generate(PROMPTS[0], custom_params=params), "stream": False}
            status, said = ask(engine, "/generate", body)
            assert (status, words in str(said)) == (400, True), said

    @pytest.mark.parametrize(
        ("fields", "sampling", "words"),
        [
            pytest.param({}, {"regex": "[a-z]+", "custom_params": {"resume_ids": [16]}}, "grammar", id="grammar"),
            pytest.param(
                {}, {"max_new_tokens": None, "custom_params": {"resume_ids": [5] * 4096}}, "none is left", id="context"
            ),
            pytest.param({}, {"n": 2, "custom_params": {"resume_ids": [5]}}, "several choices", id="choices"),
            pytest.param(
                {"return_hidden_states": "last"}, {"custom_params": {"resume_records": True}}, "", id="hidden"
            ),
            pytest.param(
                {"session_params": {"id": "s"}}, {"custom_params": {"resume_ids": [5]}}, "session", id="session"
            ),
        ],
    )
    def test_what_only_the_scheduler_can_judge_is_an_answer_too(self, engines, fields, sampling, words):
        for engine in engines:
            status, said = ask(engine, "/generate", {**generate(PROMPTS[0], fields, **sampling), "stream": False})
            assert (status, words in str(said)) == (400, True), said
            status, said = ask(engine, "/generate", {**generate(PROMPTS[0], max_new_tokens=2), "stream": False})
            assert status == 200, said


@contextmanager
def started(nursery: Nursery, folder: Path, *more: str, speculate: bool, overlap: bool = True) -> Iterator[Forked]:
    """An engine with arguments of its own."""
    spec = launch_spec(folder, rehearsal_recipe(overlap=overlap), speculate=speculate)
    bind = {CPU_CORES_OF_RANKS: "0|1"} if "--tp-size" in more else {}
    spec = msgspec.structs.replace(spec, set_environment=spec.set_environment | bind)
    with forked(nursery, folder, spec, *more) as engine:
        wait_until_ready(nursery, engine)
        yield engine


class TestParsersWithoutOverlap:
    """One that does not speculate, cut off and resumed under another id; and so little memory that requests are retracted."""

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, nursery, tmp_path_factory) -> Iterator[str]:
        parsers = ("--reasoning-parser", "deepseek-r1", "--tool-call-parser", "deepseekv3")
        little = ("--max-total-tokens", "200", "--schedule-conservativeness", "0.1")
        folder = tmp_path_factory.mktemp("parsers")
        with started(nursery, folder, *parsers, *little, speculate=False, overlap=False) as running:
            yield running.address

    @pytest.mark.parametrize(
        "case",
        [
            pytest.param({"logit_bias": {"506": 3}}, id="reasoning"),  # the token that ends it, likelier
            pytest.param({"tools": TOOLS, "separate_reasoning": False, "max_tokens": 64}, id="tools"),
        ],
    )
    def test_parsers_hear_again_what_they_heard(self, engine, case):
        prompts = [next(p for p in held_out(80) if "weather" in p), PROMPTS[0]]
        runs = [chat_twice((engine, engine), chat(prompt, **case), seed) for seed, prompt in enumerate(prompts)]
        all_same(str(case)[:20], runs)
        assert runs[0][0]["tools"] if "tools" in case else any(whole["reasoning"] for whole, *_ in runs)

    @pytest.mark.parametrize("case", PENALTIES)
    def test_penalties_are_not_late_here(self, engine, case):
        body = chat(PROMPTS[1], logprobs=True, **PENALTIES[case])
        all_same(case, [chat_twice((engine, engine), body, seed) for seed in (3, 8)])

    def test_a_resumed_request_that_is_retracted_goes_on_too(self, engine):
        """With its penalties, which the engine by itself forgets at a retraction."""
        bodies = [generate(prompt, frequency_penalty=0.5, max_new_tokens=64) for prompt in PROMPTS[:5]]
        whole = [whole_generate(engine, body)[-1] for body in bodies]
        with ExitStack() as open_streams:
            streams = []
            for number, (body, end) in enumerate(zip(bodies, whole, strict=True)):
                request = resumed_request(
                    Endpoint.GENERATE, body, f"retracted-{number}", Resumption(tuple(end["output_ids"][:8]))
                )
                streams.append(open_streams.enter_context(lines(engine, Endpoint.GENERATE, request)))
                next(
                    streams[-1]
                )  # it runs: the engine admits one more while it hopes that not all will need their most
            ends = [json.loads([line for line in stream if line.startswith(b"data: {")][-1][6:]) for stream in streams]
        all_same("retracted", [(last_word([one]), last_word([end]), [8]) for one, end in zip(whole, ends, strict=True)])
        assert sum(end["meta_info"]["num_retractions"] for end in ends) > 0


class TestTwoRanks:
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, nursery, tmp_path_factory) -> Iterator[str]:
        with started(nursery, tmp_path_factory.mktemp("tp2"), "--tp-size", "2", speculate=True) as running:
            yield running.address

    def test_every_rank_resumes_or_refuses_alike(self, engine):
        rows = [
            ((engine, engine), chat(PROMPTS[seed], **more), seed) for seed, more in enumerate(({}, {"regex": WORDS}))
        ]
        all_same("two ranks", at_once(chat_twice, rows))
        sampling = {"regex": "[a-z]+", "custom_params": {"resume_ids": [16]}}
        status, said = ask(engine, "/generate", {**generate(PROMPTS[0], **sampling), "stream": False})
        assert (status, "grammar" in str(said)) == (400, True), said
        all_same("two ranks, /generate", [generate_twice((engine, engine), generate(PROMPTS[2]), 1)])
