"""The promise, on the real engine: speculation changes no greedy output where the target is sure."""

import asyncio
import json
import shutil
import sys
from collections.abc import Callable

import pytest
from tokenizers import Tokenizer

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.prove.lossless import TOLERANCE_NATS, Completion, Kind, Report, collect, compare_all
from spec_toolkit.shipped import rehearsal
from tests.engine.serving import serving

pytestmark = pytest.mark.engine

MODEL = rehearsal() / "models" / "deepseek_v3_tiny"
TOKENS = 48
TOLERANCE = TOLERANCE_NATS["float32"]


@pytest.fixture(
    scope="module",
    params=[pytest.param(8, id="40-prompts"), pytest.param(20, id="100-prompts", marks=pytest.mark.matrix)],
)
def prompts(request) -> list[list[int]]:
    """Held-out prompts, as many of each of the five buckets."""
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    by_bucket: dict[str, list[list[int]]] = {}
    for line in (MODEL / "held_out.jsonl").read_text().splitlines():
        item = json.loads(line)
        by_bucket.setdefault(item["bucket"], []).append(tokenizer.encode(item["prompt"]).ids)
    chosen = [prompt for bucket in by_bucket.values() for prompt in bucket[: request.param]]
    assert len(chosen) == 5 * request.param
    return chosen


def answers(
    address: str, prompts: list[list[int]], *, concurrency: int, with_logprobs: bool = False
) -> list[Completion]:
    async def ask() -> list[Completion]:
        async with EngineClient(address) as engine:
            return await collect(
                engine, prompts, max_new_tokens=TOKENS, concurrency=concurrency, with_logprobs=with_logprobs
            )

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def reference(nursery, tmp_path_factory, prompts) -> list[Completion]:
    with serving(nursery, tmp_path_factory.mktemp("ar"), speculate=False) as engine:
        return answers(engine.address, prompts, concurrency=1, with_logprobs=True)


@pytest.fixture
def show(capsys) -> Callable[[str, Report], None]:
    """The figures are part of the result: they are printed whether a test passes or not."""

    def shown(label: str, report: Report) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n  {label}: {report.sentence()}\n")

    return shown


@pytest.mark.parametrize("overlap", [True, False], ids=["overlap-on", "overlap-off"])
def test_speculative_output_equals_the_targets(nursery, tmp_path, prompts, reference, overlap, show) -> None:
    with serving(nursery, tmp_path, speculate=True, overlap=overlap) as engine:
        for concurrency in (1, 8):
            got = answers(engine.address, prompts, concurrency=concurrency)
            report = compare_all(reference, got, tolerance_nats=TOLERANCE)
            show(f"overlap {'on' if overlap else 'off'}, {concurrency} at a time", report)
            assert report.is_lossless, report.sentence()
            made = [completion.made for completion in got]
            assert all(each is not None and each.rounds for each in made), "an answer was not made by speculation"
            accepted = sum(each.accepted_drafts or 0 for each in made if each)
            assert accepted > 10 * len(prompts), "hardly a draft was accepted: equality would show little"


# The verify kernel with one comparison wrong: a node's first child is accepted whatever it carries.
GOOD = "while node != NO_NODE and tokens[node] != token:"
BAD = "while False:"


def test_a_fault_in_the_verify_kernel_is_seen(tmp_path, prompts, reference, show) -> None:
    broken = tmp_path / "rehearsal"
    shutil.copytree(rehearsal(), broken, ignore=shutil.ignore_patterns("models", "training", "install", "__pycache__"))
    kernel = broken / "path" / "sgl_kernel" / "tree.py"
    source = kernel.read_text()
    assert source.count(GOOD) == 1
    kernel.write_text(source.replace(GOOD, BAD))
    apart = len(prompts) // 10
    some = prompts[::apart]
    with Nursery.start(script=broken / "nursery.py") as nursery, serving(nursery, tmp_path, speculate=True) as engine:
        report = compare_all(reference[::apart], answers(engine.address, some, concurrency=4), tolerance_nats=TOLERANCE)
    show("planted fault", report)
    assert not report.is_lossless
    assert report.count(Kind.DIFFERENT) >= len(some) // 2  # a draft that is right all along hides the fault
    assert "This is not rounding" in report.sentence()


def test_two_autoregressive_runs_agree(nursery, tmp_path, prompts, reference, show) -> None:
    """The comparison's own noise floor: batching alone."""
    with serving(nursery, tmp_path, speculate=False) as engine:
        report = compare_all(reference, answers(engine.address, prompts, concurrency=8), tolerance_nats=TOLERANCE)
    show("autoregressive, 8 at a time", report)
    assert report.is_lossless, report.sentence()
