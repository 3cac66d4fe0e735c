"""Moving accepted KV rows together after a tree round.

SGLang hands over raw addresses (`pool.data_ptrs`) and row sizes, no lengths: nothing in the arguments says where a buffer
ends. So each address is traced to the live tensor that owns it, and the copy goes through that tensor, which has bounds.
An address that no tensor owns is refused. Caller: sglang/kernels/ops/kvcache/cache_move.py (trees only).
"""

import gc
import weakref

import torch

from . import bounds

_owners: dict[int, "weakref.ref[torch.Tensor]"] = {}  # address -> the tensor found there; the pool keeps it alive


def _owner(address: int, row_bytes: int) -> torch.Tensor:
    """The live tensor whose memory starts at `address`: of several the one with such rows, as one layer's buffer is
    where all layers' are one tensor; then the largest, which is the buffer and not a view of its start.
    """
    known = _owners.get(address)
    tensor = known() if known is not None else None
    if tensor is not None and tensor.data_ptr() == address and _row_bytes(tensor) == row_bytes:
        return tensor
    candidates = [
        found
        for found in gc.get_objects()
        if type(found) is torch.Tensor and found.device.type == "cpu" and found.data_ptr() == address
    ]
    if not candidates:
        raise bounds.OutOfBoundsError(f"copy_all_layer_kv_cache_cpu: no live tensor begins at address {address:#x}.")
    tensor = max(candidates, key=lambda found: (_row_bytes(found) == row_bytes, found.nbytes))
    _owners[address] = weakref.ref(tensor)
    return tensor


def _row_bytes(buffer: torch.Tensor) -> int:
    return buffer.nbytes // buffer.shape[0] if buffer.dim() and buffer.shape[0] else 0


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
) -> None:
    """In every buffer, row tgt_loc[i] becomes what row src_loc[i] was before the call, overlaps included.

    `data_ptrs` [buffers] addresses, `strides` [buffers] bytes per row, `tgt_loc` and `src_loc` [rows] slots.
    Writes the buffers behind the addresses.
    """
    op = "copy_all_layer_kv_cache_cpu"
    bounds.equal(op, "tgt_loc's length", tgt_loc.numel(), src_loc.numel())
    for address, row_bytes in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        buffer = _owner(address, row_bytes)
        bounds.equal(op, "the buffer's bytes per row", _row_bytes(buffer), row_bytes)
        bounds.inside(op, "tgt_loc", tgt_loc, buffer.shape[0])
        bounds.inside(op, "src_loc", src_loc, buffer.shape[0])
        buffer[tgt_loc.long()] = buffer[src_loc.long()]  # the right side is gathered before anything is written
