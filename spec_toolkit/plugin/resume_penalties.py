"""Rebuilds penalties from the tokens a request already has. Version-free; tensors only by the methods of those there are.

The engine starts penalties from zero at every prefill, so it forgets them at its own retractions as well as at a resumption. Under the
overlap schedule they are one token late: a round's result is not there yet when the next is prepared, and the last token of the prompt
is fed first. What is rebuilt is what an autoregressive engine with the same schedule would hold. A speculating one feeds one token a
round, however many it accepted; that depends on its rounds and cannot be told from the tokens.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_LOG = logging.getLogger("spec_toolkit")

# What the engine calls a kind of penalty, its neutral value, and whether every occurrence counts.
_KINDS = (("frequency", 0.0, True), ("presence", 0.0, False), ("repetition", 1.0, False))


def fed_tokens(output_ids: Sequence[int], last_of_prompt: int, *, overlap: bool) -> list[int]:
    """What was fed by the time the next token is sampled, in order."""
    ids = list(output_ids)
    return [last_of_prompt, *ids[:-1]] if overlap and ids else ids


def rebuild(penalizer: Any, requests: Iterable[Any], *, overlap: bool, as_index: Callable[[list[int]], Any]) -> None:
    """Right after a penalizer made its tensors, one row a request. `as_index` puts token ids where the tensors are. Never raises."""
    try:
        _rebuild(penalizer, requests, overlap=overlap, as_index=as_index)
    except Exception:  # noqa: BLE001 - wrong penalties are worse text; raising here would end the rank
        _LOG.exception("Penalties begin from zero: those of earlier tokens could not be rebuilt")


def _rebuild(penalizer: Any, requests: Iterable[Any], *, overlap: bool, as_index: Callable[[list[int]], Any]) -> None:
    for row, request in enumerate(requests):
        if not request.output_ids:
            continue
        fed = fed_tokens(request.output_ids, request.origin_input_ids[-1], overlap=overlap)
        for kind, neutral, every in _KINDS:
            total = getattr(penalizer, f"cumulated_{kind}_penalties", None)
            if total is None or getattr(request.sampling_params, f"{kind}_penalty") == neutral:
                continue
            penalty = getattr(penalizer, f"{kind}_penalties")[row].expand(len(fed))
            write = total[row].scatter_add_ if every else total[row].scatter_
            write(0, as_index(fed), penalty)
        if hasattr(penalizer, "len_output_tokens"):
            penalizer.len_output_tokens[row] = len(fed)
