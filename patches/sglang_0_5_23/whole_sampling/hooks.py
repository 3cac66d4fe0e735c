"""Makes the verify sample from the law an autoregressive engine samples from: its cuts in its order, and penalties token by token.

The engine's verify adds to every node of a round the same penalties, and feeds them one token a round. Here each node has those of
its own context: the tokens before the round, its ancestors' and its own, as an autoregressive engine without the overlap schedule
counts them. (With that schedule the engine feeds penalties a token late, and one twice where a prefill comes between: no law of the
answer's tokens. Without that schedule it applies them in the iteration order of a set of classes, which differs between processes;
`scale_last` puts scaling last, as the schedule does.) What a request has said is counted here, on the device, since a round's result is
not on the host when the next begins.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

_SAID = "whole_sampling"  # attribute of a request: (its retractions so far, how often it said each token)
_PENALTIES = "whole_sampling_penalties"  # attribute of a batch's sampling information
_JOINT = "pytorch"  # the sampler that cuts jointly whatever is asked; the others take one cut of the other beside min-p


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalties:
    """What the requests of a batch ask for, a row each; None where none of them asks for that kind."""

    frequency: torch.Tensor | None = None  # [batch, 1]
    presence: torch.Tensor | None = None  # [batch, 1]
    repetition: torch.Tensor | None = None  # [batch, 1]
    shortest: torch.Tensor | None = None  # [batch, 1]; tokens an answer must have before it may stop
    stops: torch.Tensor | None = None  # [batch, vocabulary]; -inf where a token would stop it


def keep_penalties(original: Callable[..., Any], info: Any) -> Any:
    """`SamplingBatchInfo.copy_for_forward`: the copy loses the penalizers, of which the verify needs what was asked for."""
    copied = original(info)
    keepers = info.penalizer_orchestrator
    if keepers is not None and keepers.is_required:
        setattr(copied, _PENALTIES, _asked(keepers.penalizers))
    return copied


def _asked(penalizers: Mapping[type, Any]) -> Penalties:
    found: dict[str, Any] = {}
    names = {
        "frequency": "frequency_penalties",
        "presence": "presence_penalties",
        "repetition": "repetition_penalties",
        "shortest": "min_new_tokens",
        "stops": "stop_token_penalties",
    }
    for penalizer in penalizers.values():
        if penalizer.is_prepared():
            found |= {ours: getattr(penalizer, theirs) for ours, theirs in names.items() if hasattr(penalizer, theirs)}
    return Penalties(**found)


def scale_last(original: Callable[..., Any], keepers: Any, *arguments: Any, **options: Any) -> None:
    """`BatchedPenalizerOrchestrator.__init__`: it holds them, and applies them, in the order of the set it was given."""
    original(keepers, *arguments, **options)
    keepers.penalizers = dict(sorted(keepers.penalizers.items(), key=lambda each: each[1].is_multiplicative))


def sample_whole(original: Callable[..., Any], verify: Any, batch: Any, output: Any, *more: Any, **options: Any) -> Any:
    """`eagle_sample`, with penalties already in the logits and the cuts made where it takes the softmax."""
    info = batch.sampling_info
    asked = getattr(info, _PENALTIES, None)
    if batch.forward_mode.is_idle() or (asked is None and not _needs_cut(info)):
        return original(verify, batch, output, *more, **options)
    said, drafted = None, None
    if asked is not None:
        drafted = verify.draft_token.view(len(batch.reqs), verify.draft_token_num).long()
        said = counts_before(batch.reqs, batch.seq_lens, output.next_token_logits.shape[-1])
        penalise(output.next_token_logits, asked, counts_behind(said, drafted, ancestors(verify)))
        info.acc_additive_penalties = info.acc_scaling_penalties = None  # this forward's copy
    with _cut_whole(info, verify.draft_token_num):
        predict, emitted, path = original(verify, batch, output, *more, **options)
    if said is not None and drafted is not None:
        remember(batch.reqs, said, drafted, path)
    return predict, emitted, path


# --- penalties ---


def ancestors(verify: Any) -> torch.Tensor:
    """[batch, node, node], 1 where the second lies on the first's path from the root, itself included."""
    nodes, device = verify.draft_token_num, verify.draft_token.device
    if verify.topk == 1 or nodes == 1:
        return torch.ones(nodes, nodes, device=device).tril().expand(verify.draft_token.numel() // nodes, nodes, nodes)
    return tree_ancestors(verify.retrieve_next_token, verify.retrieve_next_sibling)


def tree_ancestors(first_child: torch.Tensor, next_sibling: torch.Tensor) -> torch.Tensor:
    """From links [batch, node], -1 for none. Children: the first one's siblings; ancestors: parents of parents."""

    def linked(links: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(links.long() + 1, nodes + 1)[:, :, 1:].float()

    def closed(steps: torch.Tensor) -> torch.Tensor:
        """Where any number of steps leads, none included."""
        reached = (steps + torch.eye(nodes, device=steps.device)).clamp(max=1)
        for _ in range((nodes - 1).bit_length()):
            reached = (reached @ reached).clamp(max=1)
        return reached

    nodes = first_child.shape[1]
    children = linked(first_child) @ closed(linked(next_sibling))
    return closed(children).transpose(1, 2)


def counts_before(requests: list[Any], lengths: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """[batch, vocabulary]: how often each request said each token before the round's root. `lengths` [batch]: tokens before it."""
    rows = []
    for row, request in enumerate(requests):
        retractions, counts = getattr(request, _SAID, (None, None))
        if (
            counts is None or retractions != request.retraction_count
        ):  # its first round, or the first after a retraction
            counts = _counted(request, lengths[row], vocabulary)
        rows.append(counts)
    return torch.stack(rows)


def _counted(request: Any, length: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """[vocabulary]. The host may hold the root already, or not yet: only what lies before it counts."""
    said = torch.tensor(list(request.output_ids), dtype=torch.long).to(length.device, non_blocking=True)
    is_before = torch.arange(len(said), device=length.device) < length - len(request.origin_input_ids)
    return torch.zeros(vocabulary, device=length.device).scatter_add_(0, said, is_before.float())


def counts_behind(said: torch.Tensor, drafted: torch.Tensor, paths: torch.Tensor) -> torch.Tensor:
    """[batch, node, vocabulary]: how often a context that ends with the node has each token."""
    batch, nodes = drafted.shape
    index = drafted[:, None, :].expand(batch, nodes, nodes)
    return said[:, None, :].expand(batch, nodes, said.shape[1]).clone().scatter_add_(2, index, paths.float())


def penalise(logits: torch.Tensor, asked: Penalties, counts: torch.Tensor) -> None:
    """`logits` [batch x node, vocabulary], in place: what is added first, then what scales, as the engine's sampler has them."""
    rows = logits.view(counts.shape)
    if asked.frequency is not None:
        rows.sub_(counts * asked.frequency[:, None])
    if asked.presence is not None:
        rows.sub_((counts > 0) * asked.presence[:, None])
    if asked.shortest is not None and asked.stops is not None:
        is_short = counts.sum(-1, keepdim=True) < asked.shortest[:, None]
        rows.add_(torch.where(is_short, asked.stops[:, None], 0.0))
    if asked.repetition is not None:
        scale = torch.where(counts > 0, asked.repetition[:, None], 1.0)
        rows.copy_(torch.where(rows < 0, rows * scale, rows / scale))


def remember(requests: list[Any], said: torch.Tensor, drafted: torch.Tensor, path: torch.Tensor) -> None:
    """Count the root and the accepted drafts; the bonus token is the next round's root. `path` [batch, depth]: nodes, -1 for none."""
    tokens = drafted.flatten()[path.clamp(min=0).long()]
    counts = said.scatter_add(1, tokens, (path >= 0).to(said.dtype))
    for request, row in zip(requests, counts.unbind(), strict=True):
        setattr(request, _SAID, (request.retraction_count, row))


# --- cuts ---


def cut(
    probs: torch.Tensor, *, top_k: Callable[..., Any], top_p: Callable[..., Any], in_turn: bool, **asked: Any
) -> torch.Tensor:
    """`probs` [rows, vocabulary] without the tokens that may not be drawn, renormalised.

    `top_ks`, `top_ps`, `min_ps` [rows], or None where nobody asks; `top_k` and `top_p` renormalise what they leave. Top-p is taken of
    the whole (or of what top-k left, `in_turn`), min-p of the likeliest token's probability.
    """
    kept = probs
    if asked["top_ks"] is not None:
        kept = top_k(probs, asked["top_ks"])
    if asked["top_ps"] is not None:
        kept = top_p(kept, asked["top_ps"]) if in_turn else torch.where(top_p(probs, asked["top_ps"]) > 0, kept, 0.0)
    if asked["min_ps"] is not None:
        kept = torch.where(kept < kept.amax(-1, keepdim=True) * asked["min_ps"][:, None], 0.0, kept)
    return kept / kept.sum(-1, keepdim=True)


def _needs_cut(info: Any) -> bool:
    both = info.need_top_k_sampling and info.need_top_p_sampling
    return not info.is_all_greedy and (both or info.need_min_p_sampling)


@contextmanager
def _cut_whole(info: Any, nodes: int) -> Iterator[None]:
    """While this lasts the verify's softmax cuts, and its own cuts are off. One cut alone is the engine's as it is."""
    from sglang.srt.runtime_context import get_exec  # noqa: PLC0415 - only in an engine
    from sglang.srt.speculative import eagle_utils  # noqa: PLC0415 - as above

    if not _needs_cut(info):
        yield
        return

    def of_nodes(values: torch.Tensor, *, needed: bool) -> torch.Tensor | None:
        return values.repeat_interleave(nodes, dim=0) if needed else None

    def cutting(logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
        return cut(
            softmax(logits, temperatures=temperatures),
            top_k=eagle_utils.top_k_renorm_prob,
            top_p=eagle_utils.top_p_renorm_prob,
            in_turn=info.need_min_p_sampling and get_exec().kernel.sampling_backend != _JOINT,
            top_ks=of_nodes(info.top_ks, needed=needs[0]),
            top_ps=of_nodes(info.top_ps, needed=needs[1]),
            min_ps=of_nodes(info.min_ps, needed=info.need_min_p_sampling),
        )

    softmax, needs = eagle_utils.sampling_softmax, (info.need_top_k_sampling, info.need_top_p_sampling)
    try:
        eagle_utils.sampling_softmax = cutting
        info.need_top_k_sampling = info.need_top_p_sampling = False
        yield
    finally:
        eagle_utils.sampling_softmax = softmax
        info.need_top_k_sampling, info.need_top_p_sampling = needs
