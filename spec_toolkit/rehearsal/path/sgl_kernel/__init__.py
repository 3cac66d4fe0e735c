"""Reference kernels in place of SGLang's compiled `sgl_kernel`, in plain PyTorch, for a machine without a GPU or AMX.

They are written to be read and checked, not to be fast: a rehearsal proves bookkeeping and losslessness, never speed.
Only what SGLang 0.5.23 needs on `--device cpu` is here; a kernel that is missing raises and names itself.

`torch.ops.sgl_kernel.convert_weight_packed` must stay absent: SGLang takes it as the sign of a compiled build and would,
on a CPU with AMX, call a dozen kernels that have no counterpart here. Without it every CPU takes the same path.
"""

import rehearsal_guard

rehearsal_guard.permit("sgl_kernel")

# ruff: noqa: E402 - nothing else may load where the guard refuses
import torch

from .attention import decode_attention_cpu, extend_attention_cpu
from .cache_slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    fill_accept_out_cache_loc_cpu,
)
from .filters import top_k_renorm_prob, top_p_renorm_prob
from .hashing import murmur_hash32_cpu
from .kv_copy import copy_all_layer_kv_cache_cpu
from .round_tokens import fill_bonus_tokens_cpu, rotate_input_ids_cpu
from .sampling import chain_speculative_sampling, tree_speculative_sampling_target_only
from .selection import select_positions_cpu
from .tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "chain_speculative_sampling",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "select_positions_cpu",
    "top_k_renorm_prob",
    "top_p_renorm_prob",
    "tree_speculative_sampling_target_only",
    "verify_tree_greedy_cpu",
]

__version__ = "0.0.0+rehearsal"

# What SGLang calls as torch.ops.sgl_kernel.<name>; (a!) marks an argument that is written.
_OPERATORS = {
    "decode_attention_cpu(Tensor query, Tensor(a!) k_buffer, Tensor(b!) v_buffer, float k_scale, float v_scale, "
    "Tensor(c!) output, Tensor? key, Tensor? value, Tensor? loc, Tensor attn_logits, Tensor req_to_token, "
    "Tensor req_pool_indices, Tensor seq_lens, float sm_scale, float logit_cap, bool is_cross_attn, "
    "int sliding_window_size, Tensor? encoder_lens, Tensor? sinks) -> ()": decode_attention_cpu,
    "extend_attention_cpu(Tensor q_extend, Tensor? k_extend, Tensor? v_extend, Tensor(a!) o_extend, Tensor k_buffer, "
    "Tensor v_buffer, float k_scale, float v_scale, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, "
    "Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend, float sm_scale, float logit_cap, "
    "bool is_cross_attn, int sliding_window_size, Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask, "
    "bool is_causal) -> ()": extend_attention_cpu,
    "murmur_hash32_cpu(Tensor seed, Tensor positions, Tensor col_indices) -> Tensor": murmur_hash32_cpu,
}

_library = torch.library.Library("sgl_kernel", "DEF")  # kept: the registrations live as long as it does
for _schema, _kernel in _OPERATORS.items():
    _library.define(_schema)
    _library.impl(_schema.partition("(")[0], _kernel, "CPU")


def __getattr__(name: str) -> object:
    raise AttributeError(f"sgl_kernel.{name}: the rehearsal has no such kernel; it knows {', '.join(__all__)}.")
