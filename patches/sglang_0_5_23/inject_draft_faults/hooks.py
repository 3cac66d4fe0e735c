"""Where a rehearsal plants faults in the draft. Nothing is planted where a CUDA device exists."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sglang.srt.managers.io_struct import SetInternalStateReqOutput
from sglang.srt.runtime_context import get_parallel

from spec_toolkit.plugin.injection import INJECTION, KEYS, PlantedFaultError
from spec_toolkit.terms import FaultPoint

_LOG = logging.getLogger("spec_toolkit")


def set_internal_state(original: Callable[..., Any], controller: Any, request: Any) -> Any:
    """`SchedulerInternalStateController.set_internal_state`: every rank runs it at the same point, before a batch is built."""
    if not KEYS & request.server_args.keys():
        return original(controller, request)
    refused = (
        "a CUDA device exists: this engine serves" if torch.cuda.is_available() else INJECTION.take(request.server_args)
    )
    if refused:
        _LOG.warning("No fault planted by %s: %s", request.server_args, refused)
    return SetInternalStateReqOutput(updated=not refused)


def draft(original: Callable[..., Any], worker: Any, batch: Any, **kwargs: Any) -> Any:
    """`EagleDraftWorker.draft`."""
    _fail(FaultPoint.DRAFT_BEFORE)
    verify_input = original(worker, batch, **kwargs)
    if _due(FaultPoint.UNLIKE_DRAFTS):
        tokens = verify_input.draft_token.clone().view(batch.seq_lens.shape[0], verify_input.draft_token_num)
        tokens[:, 1:] += 1
        verify_input.draft_token = tokens.flatten()
    _fail(FaultPoint.DRAFT_AFTER)
    return verify_input


def draft_forward(original: Callable[..., Any], worker: Any, forward_batch: Any) -> Any:
    """`EagleDraftWorker.draft_forward`: one forward after another, each with its collectives."""
    with _after_a_forward(worker, FaultPoint.DRAFT_IN, FaultPoint.DRAFT_NOT_FINITE):
        return original(worker, forward_batch)


def draft_extend(original: Callable[..., None], worker: Any, batch: Any, result: Any, **kwargs: Any) -> None:
    """`EagleDraftWorker._draft_extend_for_decode`."""
    _fail(FaultPoint.DRAFT_EXTEND_BEFORE)
    with _after_a_forward(worker, None, FaultPoint.DRAFT_EXTEND_NOT_FINITE):
        original(worker, batch, result, **kwargs)
    _fail(FaultPoint.DRAFT_EXTEND_AFTER)


def prefill(original: Callable[..., Any], worker: Any, *args: Any, **kwargs: Any) -> Any:
    """`EagleDraftWorker._draft_extend_for_prefill`."""
    _fail(FaultPoint.PREFILL_BEFORE)
    with _after_a_forward(worker, None, FaultPoint.PREFILL_NOT_FINITE):
        made = original(worker, *args, **kwargs)
    _fail(FaultPoint.PREFILL_AFTER)
    return made


def _rank() -> int:
    return int(get_parallel().tp_group.rank_in_group)


def _due(point: FaultPoint) -> bool:
    return INJECTION.due(point, _rank())


def _fail(point: FaultPoint) -> None:
    INJECTION.fail(point, _rank())


@contextmanager
def _after_a_forward(worker: Any, fails: FaultPoint | None, not_finite: FaultPoint) -> Iterator[None]:
    """The next forward of the draft's runner fails once it is done, or its logits become NaN, where that is due."""
    raises = fails is not None and _due(fails)
    spoils = _due(not_finite)
    if not (raises or spoils):
        yield
        return
    runner = worker.draft_runner
    forward = runner.forward

    def once(*args: Any, **kwargs: Any) -> Any:
        runner.forward = forward
        output = forward(*args, **kwargs)
        if fails is not None and raises:
            raise PlantedFaultError.at(fails)
        output.logits_output.next_token_logits.fill_(float("nan"))
        return output

    runner.forward = once
    try:
        yield
    finally:
        del runner.forward  # the instance's own; the class' stays
