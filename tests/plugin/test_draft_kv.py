"""Slots without draft KV: remembered until they are written, counted where a prefill goes on from them."""

import pytest

from spec_toolkit.plugin.draft_kv import DraftKv

torch = pytest.importorskip("torch")

SOUND, SPOILT = torch.tensor([False]), torch.tensor([True])


def slots(*numbers: int) -> object:
    return torch.tensor(numbers, dtype=torch.int64)


@pytest.fixture
def kv() -> DraftKv:
    made = DraftKv("cpu")
    made.resize(64)
    return made


def test_a_prefix_that_was_lost_is_counted_once_for_each_request(kv):
    kv.lost(slots(4, 5, 6))
    kv.count_prefixes([slots(1, 2), slots(3, 4), slots(6, 7)])
    assert kv.count() == 2


def test_a_slot_that_is_written_again_is_whole(kv):
    kv.lost(slots(4, 5))
    kv.written(slots(4, 5, 6), SOUND)
    kv.count_prefixes([slots(4, 5, 6)])
    assert kv.count() == 0


def test_what_was_written_and_is_not_finite_is_missing_once_a_vote_told(kv):
    kv.written(slots(4, 5), SPOILT)
    kv.suspect()
    kv.count_prefixes([slots(5)])
    assert kv.count() == 1


def looks(kv: DraftKv, monkeypatch) -> list[int]:
    """Filled with one entry for each prefix that is looked up from now on."""
    seen: list[int] = []
    to = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *args: (seen.append(1), to(self, *args))[1])
    return seen


def test_once_every_slot_is_written_again_a_prefill_costs_nothing_again(kv, monkeypatch):
    kv.lost(slots(4, 5))
    kv.written(slots(4, 5), SOUND)
    kv.count_prefixes([slots(4)])  # asks whether any is missing still
    looked = looks(kv, monkeypatch)
    for _ in range(3):
        kv.count_prefixes([slots(4)])
    assert looked == []


def test_as_long_as_one_slot_is_missing_prefills_are_counted(kv):
    kv.lost(slots(4, 5))
    kv.written(slots(4), SOUND)
    for _ in range(5):
        kv.count_prefixes([slots(5)])
    assert kv.count() == 5


@pytest.mark.parametrize("again", ["lost", "suspect"])
def test_what_is_lost_after_the_question_is_not_forgotten_by_its_answer(kv, again):
    kv.lost(slots(4))
    kv.written(slots(4), SOUND)
    kv.count_prefixes([slots(4)])  # the answer will be: none
    if again == "lost":
        kv.lost(slots(5))
    else:
        kv.written(slots(5), SPOILT)
        kv.suspect()
    for _ in range(3):
        kv.count_prefixes([slots(5)])
    assert kv.count() == 3


def test_a_vote_that_tells_after_all_was_forgotten_is_believed(kv):
    kv.lost(slots(4))
    kv.written(slots(4), SOUND)
    kv.count_prefixes([])
    kv.written(slots(5), SPOILT)
    kv.count_prefixes([slots(5)])  # nobody knows yet, as before any fault
    kv.suspect()
    kv.count_prefixes([slots(5)])
    assert kv.count() == 1


def test_a_batch_without_tokens_and_a_pool_without_a_size_are_nothing(kv):
    kv.lost(None)
    kv.lost(slots())
    DraftKv("cpu").lost(slots(3))
    kv.count_prefixes([])
    assert kv.count() == 0


def test_a_slot_outside_the_pool_does_no_harm(kv):
    kv.lost(slots(10**6))
    kv.count_prefixes([slots(10**7)])
    assert kv.count() == 1
    kv.count_prefixes([slots(5)])
    assert kv.count() == 1
