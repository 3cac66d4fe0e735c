"""The ranks' vote: what each of them brings, and what all of them read. The collective is played by the test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.plugin.health import DELAY, Health, Voters, mark

torch = pytest.importorskip("torch")

SAME = [[7, 8, 9], [1, 2, 3]]
OTHER = [[7, 8, 9], [1, 2, 4]]
WORTHLESS = [[0, 0, 0], [0, 0, 0]]


class Ranks:
    """Several ranks in one process: each votes twice, first to show its ballot, then with the least of all ballots."""

    def __init__(self, monkeypatch, batches: list[int]) -> None:
        """`batches`: which batch each rank has."""
        self.ranks = [Health("cpu", Voters(group=None, batches=max(batches) + 1, batch=batch)) for batch in batches]
        self._ballots: list[object] = []
        self._least: object = None
        monkeypatch.setattr(torch.distributed, "all_reduce", self._all_reduce)

    def _all_reduce(self, ballot, *, op, group) -> None:
        assert op is torch.distributed.ReduceOp.MIN
        if self._least is None:
            self._ballots.append(ballot.clone())
        else:
            ballot.copy_(self._least)

    def vote(self, drafts, epoch: int = 0) -> list[int]:
        """What each rank finds: 1 for sound."""
        self._ballots, self._least = [], None
        for rank, own in zip(self.ranks, drafts, strict=True):
            rank._ballot(rank._voters, rank._fault.clone(), torch.as_tensor(own), epoch)
            rank._counts.zero_()
        self._least = torch.stack(self._ballots).amin(0)
        return [int(rank.vote(torch.as_tensor(own), epoch)) for rank, own in zip(self.ranks, drafts, strict=True)]

    def settle(self) -> list[int | None]:
        return [rank.settle() for rank in self.ranks]


def test_ranks_that_agree_are_sound(monkeypatch):
    ranks = Ranks(monkeypatch, [0, 0])
    for _ in range(5):
        assert ranks.settle() == [None, None]
        assert ranks.vote([SAME, SAME]) == [1, 1]
    assert [rank.counts()["unlike_drafts"] for rank in ranks.ranks] == [0, 0]


def test_a_fault_of_one_is_read_by_all_in_the_same_round(monkeypatch):
    ranks = Ranks(monkeypatch, [0, 0])
    ranks.settle()
    ranks.ranks[1].spoil(4)
    assert ranks.vote([SAME, WORTHLESS], 4) == [0, 0]
    for _ in range(DELAY - 1):
        assert ranks.settle() == [None, None]
        assert ranks.vote([SAME, SAME], 4) == [1, 1]  # one round only
    assert ranks.settle() == [4, 4]
    assert [rank.counts()["unlike_drafts"] for rank in ranks.ranks] == [0, 0]  # explained by the fault


def test_of_faults_under_two_commands_the_newer_is_told(monkeypatch):
    ranks = Ranks(monkeypatch, [0, 0])
    ranks.settle()
    ranks.ranks[0].spoil(3)
    ranks.ranks[1].spoil(7)
    ranks.vote([SAME, SAME], 7)
    for _ in range(DELAY):
        told = ranks.settle()
        ranks.vote([SAME, SAME], 7)
    assert told == [7, 7]


def test_drafts_that_differ_are_nobodys(monkeypatch):
    ranks = Ranks(monkeypatch, [0, 0])
    ranks.settle()
    assert ranks.vote([SAME, OTHER], 2) == [0, 0]
    assert [rank.counts()["unlike_drafts"] for rank in ranks.ranks] == [1, 1]
    ranks.settle()
    ranks.vote([SAME, SAME], 2)
    assert ranks.settle() == [2, 2]


def test_ranks_with_batches_of_their_own_may_draft_what_they_like(monkeypatch):
    ranks = Ranks(monkeypatch, [0, 0, 1, 1])
    assert ranks.vote([SAME, SAME, OTHER, OTHER]) == [1, 1, 1, 1]
    assert ranks.vote([SAME, SAME, OTHER, SAME]) == [0, 0, 0, 0]


def test_a_rank_without_requests_votes_along(monkeypatch):
    ranks = Ranks(monkeypatch, [0, 1])
    idle = torch.empty((0, 3), dtype=torch.int64)  # of the width in force, as a list could not say
    assert ranks.vote([SAME, idle]) == [1, 1]
    ranks.ranks[1].spoil(0)
    assert ranks.vote([SAME, idle]) == [0, 0]


def test_at_zero_steps_there_is_nothing_to_differ_in(monkeypatch):
    ranks = Ranks(monkeypatch, [0, 0])
    assert ranks.vote([[[], []], [[], []]]) == [1, 1]


tokens = st.lists(st.integers(0, 2**18), min_size=1, max_size=24)


@given(tokens, st.data())
def test_a_mark_tells_drafts_apart_and_is_the_same_for_the_same(drafts, data):
    place = data.draw(st.integers(0, len(drafts) - 1))
    other = data.draw(st.integers(0, 2**18).filter(lambda token: token != drafts[place]))
    changed = [*drafts[:place], other, *drafts[place + 1 :]]
    own = int(mark(torch.tensor(drafts)))
    assert 0 <= own < 2**61
    assert own == int(mark(torch.tensor(drafts)))
    assert own != int(mark(torch.tensor(changed)))


def test_small_changes_that_would_cancel_in_a_weighted_sum_do_not():
    assert int(mark(torch.tensor([5, 5]))) != int(mark(torch.tensor([7, 4])))


@given(st.lists(st.integers(0, 2**18), min_size=2, max_size=24, unique=True))
def test_a_mark_tells_the_order_too(drafts):
    assert int(mark(torch.tensor(drafts))) != int(mark(torch.tensor(drafts[::-1])))
