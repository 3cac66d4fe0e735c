"""The sparse models on the real engine: as the replay says, with and without speculation, alone and together."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_models.answers import departures

from spec_toolkit.launch.nursery import Nursery
from tests.rehearsal.rehearsed import greedy
from tests.rehearsal.sparse_engine import NAMES, Start, eight_of, requests_of, starting, tokens

pytestmark = pytest.mark.engine

PAGE = 64  # slots; the engine's for sparse attention, and the grain of its prefix cache


@pytest.fixture
def start(nursery: Nursery, tmp_path: Path) -> Iterator[Start]:
    yield from starting(nursery, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_runs_every_request_as_replayed_and_speculation_changes_no_token(start: Start, name: str) -> None:
    """One by one, then eight together, when the prompts are in the prefix cache."""
    requests = requests_of(name)
    replays = requests.replays(3)
    address = start(name, 3)
    assert departures(replays, requests.one_by_one(address)) == []
    assert prefix_hit(address, max(requests.ids, key=len)) >= PAGE
    assert departures(eight_of(replays), requests.eight_together(address)) == []
    assert tokens(requests.one_by_one(start(name, 0))) == tokens(replays)


def prefix_hit(address: str, ids: list[int]) -> int:
    """Positions of a repeated prompt that the engine did not compute again."""
    _, told = greedy(int(address.rpartition(":")[2]), ids, 1)
    return int(told["cached_tokens"])
