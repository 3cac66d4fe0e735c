"""Top-k and top-p: the tokens a request may draw at all, renormalised.

The cuts are those of the sampler that an autoregressive engine uses on a CPU (top_k_top_p_min_p_sampling_from_probs_torch in
sglang/srt/layers/sampler.py), so that both engines draw from the same tokens: exactly k, the lower token first where two are
equally likely, and the most likely ones until their mass *before* the token exceeds p. Each cut alone is then the same in
both; of the two together the engine's verify takes top-p of what top-k left, and that sampler top-p of the whole.
Caller: eagle_sample in sglang/srt/speculative/eagle_utils.py.
"""

import torch

from . import bounds


def top_k_renorm_prob(probs: torch.Tensor, top_ks: torch.Tensor) -> torch.Tensor:
    """`probs` [rows, vocabulary], `top_ks` [rows], at least 1; a k beyond the vocabulary keeps all of it."""
    bounds.equal("top_k_renorm_prob", "top_ks' length", top_ks.numel(), len(probs))
    order = probs.argsort(dim=1, descending=True, stable=True)
    return _kept(probs, order, torch.arange(probs.shape[1]) < top_ks.view(-1, 1))


def top_p_renorm_prob(probs: torch.Tensor, top_ps: torch.Tensor) -> torch.Tensor:
    """`probs` [rows, vocabulary], `top_ps` [rows] in (0, 1]; the most likely token always stays."""
    bounds.equal("top_p_renorm_prob", "top_ps' length", top_ps.numel(), len(probs))
    ranked, order = probs.sort(dim=1, descending=True, stable=True)
    return _kept(probs, order, ranked.cumsum(1) - ranked <= top_ps.view(-1, 1))


def _kept(probs: torch.Tensor, order: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """`keep` [rows, vocabulary] in rank order."""
    cut = torch.where(torch.zeros_like(keep).scatter(1, order, keep), probs, torch.zeros_like(probs))
    return cut / cut.sum(1, keepdim=True)
