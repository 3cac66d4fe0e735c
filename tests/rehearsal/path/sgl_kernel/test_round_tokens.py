import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sgl_kernel import fill_bonus_tokens_cpu, rotate_input_ids_cpu
from sgl_kernel.bounds import OutOfBoundsError

SEGMENTS = st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=4)


@settings(deadline=None)
@given(emitted=st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), min_size=1, max_size=5))
def test_the_bonus_token_is_the_last_one_emitted(emitted):
    padded = torch.tensor([tokens + [-7] * (4 - len(tokens)) for tokens in emitted], dtype=torch.int32)
    lengths = torch.tensor([len(tokens) for tokens in emitted], dtype=torch.int32)
    bonus = torch.empty(len(emitted), dtype=torch.int32)
    fill_bonus_tokens_cpu(padded.flatten(), lengths, bonus, 4)
    assert bonus.tolist() == [tokens[-1] for tokens in emitted]


@pytest.mark.parametrize("length", [pytest.param(0, id="nothing-emitted"), pytest.param(5, id="more-than-the-width")])
def test_an_impossible_count_of_emitted_tokens_is_refused(length):
    with pytest.raises(OutOfBoundsError, match="accept_lens - 1"):
        fill_bonus_tokens_cpu(torch.zeros(4).int(), torch.tensor([length]).int(), torch.zeros(1).int(), 4)


def layout(segments: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(segment) for segment in segments], dtype=torch.int64)
    return torch.tensor([t for s in segments for t in s], dtype=torch.int64), lengths.cumsum(0) - lengths, lengths


@settings(deadline=None)
@given(segments=SEGMENTS, column=st.booleans())
def test_each_segment_moves_one_left_and_ends_with_its_newest_token(segments, column):
    ids, starts, lengths = layout(segments)
    newest = torch.arange(1000, 1000 + len(segments))
    rotate_input_ids_cpu(ids, starts.int(), lengths, newest.unsqueeze(1) if column else newest)
    expected = [[*segment[1:], token] for segment, token in zip(segments, range(1000, 2000), strict=False) if segment]
    assert ids.tolist() == [token for segment in expected for token in segment]


def test_a_selected_place_takes_the_newest_token_and_the_end_keeps_what_moved_there():
    ids, starts, lengths = layout([[1, 2, 3, 4], [5, 6, 7]])
    rotate_input_ids_cpu(ids, starts, lengths, torch.tensor([90, 91]), torch.tensor([1, 4]))
    assert ids.tolist() == [2, 90, 4, 4, 91, 7, 7]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"extend_seq_lens": torch.tensor([3, 5])}, id="segment-beyond-the-ids"),
        pytest.param({"extend_start_loc": torch.tensor([-1, 4])}, id="segment-before-the-ids"),
        pytest.param({"select_index": torch.tensor([0, 7])}, id="place-beyond-the-ids"),
        pytest.param({"select_index": torch.tensor([-1, 0])}, id="negative-place"),
        pytest.param({"topk_index": torch.tensor([90])}, id="one-token-for-two"),
    ],
)
def test_what_points_outside_is_refused_and_nothing_is_written(change):
    ids, starts, lengths = layout([[1, 2, 3, 4], [5, 6, 7]])
    arguments = {"extend_start_loc": starts, "extend_seq_lens": lengths, "topk_index": torch.tensor([90, 91])}
    with pytest.raises(OutOfBoundsError):
        rotate_input_ids_cpu(ids, **(arguments | change))
    assert ids.tolist() == [1, 2, 3, 4, 5, 6, 7]
