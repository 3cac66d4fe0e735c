import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

hash_op = torch.ops.sgl_kernel.murmur_hash32_cpu.default
U64 = st.integers(0, 2**64 - 1)


def murmur3_x86_32(data: bytes) -> int:
    """Appleby's MurmurHash3_x86_32 with seed 0, over whole 4-byte blocks, in Python's unbounded integers."""
    state = 0
    for (block,) in struct.iter_unpack("<I", data):
        mixed = block * 0xCC9E2D51 % 2**32
        state ^= (mixed << 15 | mixed >> 17) % 2**32 * 0x1B873593 % 2**32
        state = ((state << 13 | state >> 19) % 2**32 * 5 + 0xE6546B64) % 2**32
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ state >> shift) * factor % 2**32
    return state ^ state >> 16


def test_the_formula_in_this_file_is_murmur3():
    # Published vectors, seed 0.
    assert murmur3_x86_32(b"") == 0
    assert murmur3_x86_32(b"test") == 0xBA6BD213
    assert murmur3_x86_32(bytes(4)) == 0x2362F9DE


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(U64, U64), min_size=1, max_size=4), columns=st.lists(st.integers(0, 2**32 - 1), min_size=1)
)
def test_hashes_seed_position_and_column_as_sixteen_bytes(rows, columns):
    seeds = torch.tensor([seed for seed, _ in rows], dtype=torch.uint64)
    positions = torch.tensor([position for _, position in rows], dtype=torch.uint64)
    found = hash_op(seeds, positions, torch.tensor(columns))
    assert found.dtype == torch.uint32
    assert found.tolist() == [
        [murmur3_x86_32(struct.pack("<QII", seed, position % 2**32, column)) for column in columns]
        for seed, position in rows
    ]


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64])
def test_positions_may_be_signed(dtype):
    # The second row and third column of the known values in SGLang's own test of this op.
    found = hash_op(torch.tensor([1], dtype=torch.uint64), torch.tensor([7], dtype=dtype), torch.tensor([2]))
    assert found.item() == 1002451629
