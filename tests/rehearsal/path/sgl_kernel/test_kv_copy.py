import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sgl_kernel import copy_all_layer_kv_cache_cpu
from sgl_kernel.bounds import OutOfBoundsError


def pointers(buffers: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """As SGLang's memory pool builds them: addresses, and bytes per row."""
    addresses = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64)
    return addresses, torch.tensor([buffer[0].nbytes for buffer in buffers])


@settings(deadline=None, max_examples=20)  # each example is new memory, and so a search for its owner
@given(slots=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), unique_by=lambda pair: pair[0], max_size=8))
def test_each_row_becomes_what_its_source_was_before(slots):
    buffers = [torch.randn(10, 2, 3), torch.randn(10, 1, 5, dtype=torch.bfloat16)]
    before = [buffer.tolist() for buffer in buffers]
    target, source = [pair[0] for pair in slots], [pair[1] for pair in slots]
    copy_all_layer_kv_cache_cpu(*pointers(buffers), torch.tensor(target).long(), torch.tensor(source).long())
    moved = dict(slots)
    for buffer, old in zip(buffers, before, strict=True):
        assert buffer.tolist() == [old[moved.get(row, row)] for row in range(10)]


@pytest.mark.parametrize("slot", [-1, 10, 4096])
def test_a_row_outside_a_buffer_is_refused_and_nothing_is_written(slot):
    buffers = [torch.zeros(10, 4)]
    fence = buffers[0].clone()
    for target, source in ((slot, 0), (0, slot)):
        with pytest.raises(OutOfBoundsError, match=f"holds {slot}; only 0 to 9 exist"):
            copy_all_layer_kv_cache_cpu(*pointers(buffers), torch.tensor([target]), torch.tensor([source]))
    assert torch.equal(buffers[0], fence)


def test_an_address_that_no_tensor_owns_is_refused():
    buffer = torch.zeros(10, 4)
    addresses, row_bytes = pointers([buffer])
    with pytest.raises(OutOfBoundsError, match="no live tensor begins"):
        copy_all_layer_kv_cache_cpu(addresses.long() + 8, row_bytes, torch.tensor([1]), torch.tensor([0]))


def test_a_row_size_that_is_not_the_buffers_is_refused():
    buffer = torch.zeros(10, 4)
    addresses, row_bytes = pointers([buffer])
    with pytest.raises(OutOfBoundsError, match="bytes per row is 16; the other arguments imply 8"):
        copy_all_layer_kv_cache_cpu(addresses, row_bytes // 2, torch.tensor([1]), torch.tensor([0]))


def test_a_view_of_the_buffers_start_is_not_taken_for_the_buffer():
    buffer = torch.arange(10.0).view(10, 1)
    view = buffer[:2]
    copy_all_layer_kv_cache_cpu(*pointers([buffer]), torch.tensor([9]), torch.tensor([5]))
    assert (buffer[9].item(), view.shape[0]) == (5.0, 2)


def test_memory_that_was_freed_and_given_to_another_tensor_is_found_again():
    for rows in (10, 20, 5):
        buffer = torch.arange(float(rows)).view(rows, 1)
        copy_all_layer_kv_cache_cpu(*pointers([buffer]), torch.tensor([0]), torch.tensor([rows - 1]))
        assert buffer[0].item() == rows - 1
        del buffer


def test_one_layer_of_a_tensor_of_all_layers_is_moved_alone():
    layers = torch.arange(20.0).view(2, 10, 1)
    first, second = layers.unbind()
    copy_all_layer_kv_cache_cpu(*pointers([first]), torch.tensor([9]), torch.tensor([5]))
    assert (first[9].item(), second[9].item()) == (5.0, 19.0)
