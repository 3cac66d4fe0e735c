"""Lets a speculating engine sample on a CPU, per-request seeds included, where it would commit argmax at any temperature."""

from collections.abc import Callable
from typing import Any

import torch

# What the engine resolves to nothing, or to a Triton kernel, without a GPU.
KERNELS = {
    "chain_speculative_sampling_triton": "chain_speculative_sampling",
    "tree_speculative_sampling_target_only": "tree_speculative_sampling_target_only",
    "top_k_renorm_prob": "top_k_renorm_prob",
    "top_p_renorm_prob": "top_p_renorm_prob",
}


def greedy_only_where_asked(_original: Callable[..., bool], *, is_all_greedy: bool, **_: bool) -> bool:
    """The engine answers yes on a CPU whatever the requests ask for."""
    return is_all_greedy


def sample_with_kernels(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The engine's own verify; the kernels it looks up by these names are None on a CPU, so no hook could be put on them."""
    import sgl_kernel  # noqa: PLC0415 - the rehearsal's, which only an engine process can import
    from sglang.srt.speculative import eagle_utils  # noqa: PLC0415 - as above

    for name, kernel in KERNELS.items():
        setattr(eagle_utils, name, getattr(sgl_kernel, kernel))
    return original(*arguments, **options)


def argmax_of_rows(scores: torch.Tensor) -> torch.Tensor:
    """[rows, vocabulary] -> [rows], the lowest index of a tie. What the original does, less its Triton kernel."""
    return scores.argmax(dim=-1)


def seeds_without_gpu_attention(_original: Callable[[Any], None], _arguments: Any) -> None:
    """`--enable-deterministic-inference` seeds each request; on a CPU that is all of it.

    What the original adds is the choice of GPU attention kernels whose sums do not depend on the batch, and a refusal of others.
    """


def seeds_with_rejection(original: Callable[[Any], None], arguments: Any) -> None:
    """The engine refuses seeded rejection off CUDA, because its hash is a Triton kernel there; the rehearsal brings it."""
    from sglang.srt.arg_groups.overrides import declare_resolution, resolving_view  # noqa: PLC0415 - only in an engine

    seeded = resolving_view(arguments).enable_deterministic_inference
    if seeded:
        declare_resolution(arguments, "cpu-sampling", enable_deterministic_inference=False)
    original(arguments)
    if seeded:
        declare_resolution(arguments, "cpu-sampling", enable_deterministic_inference=True)


def no_gpu_kernels_for_batch_invariance(_original: Callable[[Any], None], _runner: Any) -> None:
    """They are Triton kernels. On a CPU the same sums may round differently in another batch, as without the flag."""
