"""MurmurHash3 (x86, 32 bits, seed 0) over (seed, position, column): SGLang's counter-based source of per-request noise.

Sixteen bytes are hashed: the 64-bit seed, low half first, then the position and the column, 32 bits each. Source:
Appleby's MurmurHash3 and sglang/kernels/ops/sampling/murmur_hash.py, whose Triton kernel does the same on a GPU, so a
seeded request draws the same tokens on both. int64 arithmetic wraps modulo 2**64, which leaves the low 32 bits right.
"""

import torch

_LOW = 0xFFFFFFFF


def _rotate_left(x: torch.Tensor, bits: int) -> torch.Tensor:
    return ((x << bits) | (x >> (32 - bits))) & _LOW


def _mix(state: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    block = _rotate_left((block * 0xCC9E2D51) & _LOW, 15)
    block = (block * 0x1B873593) & _LOW
    return (_rotate_left(state ^ block, 13) * 5 + 0xE6546B64) & _LOW


def _finish(state: torch.Tensor) -> torch.Tensor:
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _LOW
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _LOW
    return state ^ (state >> 16)


def murmur_hash32_cpu(seed: torch.Tensor, positions: torch.Tensor, col_indices: torch.Tensor) -> torch.Tensor:
    """`seed` and `positions` [rows], `col_indices` [columns], all 64-bit integers -> hashes [rows, columns] uint32."""
    seed = seed.view(torch.int64).unsqueeze(1)
    position = positions.view(torch.int64).unsqueeze(1) & _LOW
    column = col_indices.to(torch.int64).unsqueeze(0) & _LOW
    state = torch.zeros_like(seed)
    for block in (seed & _LOW, (seed >> 32) & _LOW, position, column):
        state = _mix(state, block)
    return _finish(state ^ 16).to(torch.uint32)
