"""Where a resumed request is judged, where it enters a scheduler's queue, where penalties begin, and where chat is streamed."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import torch
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers.io_struct import GenerateReqInput

from spec_toolkit.plugin import resume_chat, resume_penalties, resume_queue
from spec_toolkit.plugin.resume import check


def validate(original: Callable[..., None], manager: Any, request: Any, input_ids: Any) -> None:
    """`TokenizerManager._validate_one_request`: a ValueError here is an answer with status 400."""
    original(manager, request, input_ids)
    if isinstance(request, GenerateReqInput):
        check(
            request,
            vocabulary=manager.model_config.vocab_size,
            incremental=manager.incremental_streaming_output,
        )


def enter_queue(original: Callable[..., None], scheduler: Any, request: Any, is_retracted: bool = False) -> None:
    """`Scheduler._add_request_to_queue`: every request passes here once it is whole, its grammar compiled."""
    resume_queue.enter(
        request,
        is_split=scheduler.disaggregation_mode != DisaggregationMode.NULL,
        count_reasoning=scheduler.batch_result_processor._maybe_update_reasoning_tokens,  # noqa: SLF001 - as its own results do
    )
    original(scheduler, request, is_retracted)


def prepare_penalties(original: Callable[..., None], penalizer: Any) -> None:
    """`_BatchedPenalizer.prepare`: called again where tensors are there already, which must not count twice."""
    is_new = not penalizer.is_prepared()
    original(penalizer)
    if is_new:
        batch = penalizer.orchestrator.batch
        device = penalizer.orchestrator.device
        resume_penalties.rebuild(
            penalizer,
            batch.reqs,
            overlap=batch.enable_overlap,
            as_index=lambda ids: torch.tensor(ids, dtype=torch.int64, device=device),
        )


def chat_stream(
    original: Callable[..., AsyncIterator[str]], handler: Any, adapted: Any, request: Any, raw: Any
) -> AsyncIterator[str]:
    """`OpenAIServingChat._generate_chat_stream`."""
    chunks = original(handler, adapted, request, raw)
    return resume_chat.without_role(chunks, request.custom_params) if resume_chat.concerns(request) else chunks


def stream_content(original: Callable[..., AsyncIterator[str]], handler: Any, **arguments: Any) -> AsyncIterator[str]:
    """`OpenAIServingChat._generate_stream_content`: one step of one choice."""
    if resume_chat.concerns(arguments["request"]):
        return resume_chat.step(original, handler, arguments)
    return original(handler, **arguments)
