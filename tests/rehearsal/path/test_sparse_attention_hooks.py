"""What the patch for sparse attention selects where there is nothing to select."""

from dataclasses import dataclass

import pytest
import torch

from patches.sglang_0_5_23.cpu_sparse_attention import hooks

TOPK = 5


@dataclass
class Mode:
    idle: bool

    def is_idle(self) -> bool:
        return self.idle


@dataclass
class Batch:
    """No more than its mode: whoever asks for its slots or requests fails."""

    forward_mode: Mode


@dataclass
class Indexer:
    """No layers: whoever computes queries or keys fails."""

    index_topk: int = TOPK


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_rank_that_idles_selects_nothing_and_stores_nothing(rows: int) -> None:
    before = dict(hooks._index_keys)
    hidden, low_rank, positions = torch.randn(rows, 8), torch.randn(rows, 4), torch.arange(rows)
    selected = hooks.select_positions(Indexer(), hidden, low_rank, positions, Batch(Mode(idle=True)), 0)
    assert selected.dtype == torch.int32
    assert selected.shape == (rows, TOPK)
    assert (selected == -1).all()
    assert dict(hooks._index_keys) == before


def test_it_hands_no_selection_on_where_none_is_asked_for() -> None:
    rows = torch.randn(2, 8), torch.randn(2, 4), torch.arange(2)
    assert hooks.select_positions(Indexer(), *rows, Batch(Mode(idle=True)), 0, return_indices=False) is None
