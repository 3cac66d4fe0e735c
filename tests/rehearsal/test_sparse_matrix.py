"""The sparse models in every other layout: depths, the other schedule, two ranks, dropped streams, and a planted tie rule."""

import json
import shutil
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from tiny_models.answers import departures

from spec_toolkit.launch.nursery import NURSERY, Nursery
from tests.rehearsal.sparse_engine import (
    MAX_NEW_TOKENS,
    NAMES,
    TWO_RANKS,
    Start,
    eight_of,
    requests_of,
    starting,
    tokens,
)

pytestmark = [pytest.mark.engine, pytest.mark.matrix]


@pytest.fixture
def start(nursery: Nursery, tmp_path: Path) -> Iterator[Start]:
    yield from starting(nursery, tmp_path)


@pytest.fixture
def start_on_two_ranks(nursery: Nursery, tmp_path: Path) -> Iterator[Start]:
    yield from starting(nursery, tmp_path, TWO_RANKS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("num_steps", "more"),
    [
        pytest.param(1, (), id="1"),
        pytest.param(2, (), id="2"),
        pytest.param(4, (), id="4"),
        pytest.param(7, (), id="7"),
        pytest.param(1, ("--disable-overlap-schedule",), id="1-without-overlap"),
        pytest.param(3, ("--disable-overlap-schedule",), id="3-without-overlap"),
    ],
)
def test_other_depths_and_the_other_schedule_run_as_replayed(
    start: Start, name: str, num_steps: int, more: tuple[str, ...]
) -> None:
    requests = requests_of(name)
    replays = requests.replays(num_steps)
    address = start(name, num_steps, *more)
    assert departures(replays, requests.one_by_one(address)) == []
    assert departures(eight_of(replays), requests.eight_together(address)) == []


@pytest.mark.parametrize("name", ["deepseek_v32_tiny", "glm52_tiny"])
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(("--tp", "2"), id="tp2"),
        pytest.param(("--tp", "2", "--dp", "2", "--enable-dp-attention"), id="attention-dp"),
    ],
)
def test_two_ranks_run_as_one(start_on_two_ranks: Start, name: str, layout: tuple[str, ...]) -> None:
    """As replayed, and the tokens of two ranks without speculation: a sum over ranks may round otherwise than a sum over one."""
    requests = requests_of(name)
    replays = requests.replays(3)
    address = start_on_two_ranks(name, 3, *layout)
    assert departures(replays, requests.one_by_one(address)) == []
    assert departures(eight_of(replays), requests.eight_together(address)) == []
    assert tokens(requests.one_by_one(start_on_two_ranks(name, 0, *layout))) == tokens(replays)


@pytest.mark.parametrize("name", NAMES)
def test_dropped_streams_leave_nothing_behind(start: Start, name: str) -> None:
    """The pool holds no token of a request that went away, and the next ones run as if it had never come."""
    requests = requests_of(name)
    replays = requests.replays(3)
    address = start(name, 3)
    streams = [begin_stream(address, ids) for ids in eight_of(requests.ids)]
    assert used_tokens(address) > 0
    for stream in streams:
        stream.close()
    assert wait_until_unused(address) == 0
    assert departures(replays, requests.one_by_one(address)) == []
    assert departures(eight_of(replays), requests.eight_together(address)) == []
    assert wait_until_unused(address) == 0
    with urlopen(f"{address}/flush_cache", data=b"", timeout=30) as flushed:  # noqa: S310 - our own engine
        assert flushed.status == 200  # refused while anything runs


def begin_stream(address: str, ids: list[int]) -> HTTPConnection:
    """A request whose answer has begun, and is far from its end."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=120)
    wanted = {"temperature": 0, "max_new_tokens": 40 * MAX_NEW_TOKENS, "ignore_eos": True}
    body = json.dumps({"input_ids": ids, "sampling_params": wanted, "stream": True})
    connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
    assert b"output_ids" in connection.getresponse().readline()
    return connection


def used_tokens(address: str) -> int:
    """Slots of the pool that requests hold; the prefix cache's own are not counted."""
    with urlopen(f"{address}/v1/loads", timeout=30) as response:  # noqa: S310 - our own engine
        return sum(load["num_used_tokens"] for load in json.load(response)["loads"])


def wait_until_unused(address: str, seconds: float = 20.0) -> int:
    deadline = time.monotonic() + seconds
    while (used := used_tokens(address)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return used


STABLE = "torch.sort(scores, descending=True, stable=True).indices[:topk]"
LATER_WHERE_ALONE = (  # ties to the later position, but only where a pass has one new row, as a shape-dependent top-k does
    "(scores.numel() - 1 - torch.sort(scores.flip(0), descending=True, stable=True).indices[:topk])"
)


@pytest.mark.parametrize("name", NAMES)
def test_a_tie_rule_that_depends_on_the_batchs_shape_is_seen(tmp_path: Path, name: str) -> None:
    """The planted fault of an unstable top-k: an honest run parts from the autoregressive one."""
    requests = requests_of(name, per_bucket=2)
    with Nursery.start(most=1, script=with_unstable_ties(tmp_path / "rehearsal")) as nursery:
        for start in starting(nursery, tmp_path):
            speculative = requests.one_by_one(start(name, 3))
            autoregressive = requests.one_by_one(start(name, 0))
    parted = sum(a != b for a, b in zip(tokens(speculative), tokens(autoregressive), strict=True))
    assert parted > 0


def with_unstable_ties(copy: Path) -> Path:
    """The nursery of a copy of the rehearsal whose selection depends on how many rows a pass has."""
    shutil.copytree(NURSERY.parent, copy, ignore=shutil.ignore_patterns("models", "__pycache__"))
    kernel = copy / "path" / "sgl_kernel" / "selection.py"
    text = kernel.read_text(encoding="utf-8")
    call = "highest(index_scores(queries[token], known[:visible], weights[token]), topk)"
    signature = 'topk: int) -> torch.Tensor:\n    """The positions'
    assert text.count(STABLE) == text.count(call) == text.count(signature) == 1
    text = text.replace(call, f"{call[:-1]}, alone=new == 1)")
    text = text.replace(signature, signature.replace("topk: int)", "topk: int, alone: bool)"))
    text = text.replace(f"return {STABLE}", f"return {LATER_WHERE_ALONE} if alone else {STABLE}")
    kernel.write_text(text, encoding="utf-8")
    return copy / "nursery.py"
