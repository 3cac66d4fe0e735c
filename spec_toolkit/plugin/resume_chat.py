"""A chat stream with commit records, and one that goes on: its parsers hear again what they heard, and what they say is dropped.

Version-free: the engine's generator is called with a content whose text and token count are those of each step in turn, so reasoning and
tool parsers cut where they cut before.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spec_toolkit.resumption import (
    KEYS,
    BadResumptionError,
    Resumption,
    Step,
    asks_records,
    decode_params,
    encode_record,
)

_STATE = "spec_toolkit"  # beside the choices' numbers, in the engine's own record of one stream
_STEPS_IN_A_ROW = 32  # replayed before other streams of this process get their turn
_ROLE = '"role":"assistant"'

Generator = Callable[..., AsyncIterator[str]]


@dataclass
class _Standing:
    """Where one stream stands."""

    resumption: Resumption | None
    records: bool
    ids: int = 0  # tokens the parsers have heard
    chars: int = 0
    primed: bool = False
    late: list[Any] = field(default_factory=list)  # log-probabilities of steps that said nothing yet
    passes: int = 0


def concerns(request: Any) -> bool:
    """Anything else streams as if nothing were hooked."""
    return bool(KEYS & (request.custom_params or {}).keys())


async def without_role(chunks: AsyncIterator[str], params: object) -> AsyncIterator[str]:
    """A resumed stream opens no message: the client was told the role before the cut."""
    resumption = decode_params(params)
    if resumption is not None and not resumption.cuts:
        raise BadResumptionError(
            "resume_steps: missing; a chat stream goes on only where its parsers can be primed. Send the steps as they were committed. "
            "[resume.steps]"
        )
    skip = resumption is not None
    async for chunk in chunks:
        if skip and _ROLE in chunk:
            skip = False
            continue
        yield chunk


async def step(original: Generator, handler: Any, arguments: dict[str, Any]) -> AsyncIterator[str]:
    """`arguments`: those of the engine's `_generate_stream_content`, by name."""
    content, offsets, request = arguments["content"], arguments["stream_offsets"], arguments["request"]
    params = request.custom_params
    standing: _Standing = offsets.setdefault(_STATE, _Standing(decode_params(params), asks_records(params)))
    finished = arguments["finish_reason_type"] is not None
    if standing.resumption is not None and not standing.primed:
        arguments = _mended(arguments, standing, placeholders=len(standing.resumption.ids))
        if len(content["text"]) < standing.resumption.chars:
            # One decode of all tokens ends in an incomplete character, which hides text the client already has.
            if not finished:
                return
            _check_trimmed(content, standing.resumption)
        await _replay(original, handler, arguments, standing, standing.resumption.cuts)
    async for chunk in original(handler, **arguments):
        yield chunk
    if finished:
        return
    text, count = content["text"], content["meta_info"]["completion_tokens"]
    # The list of ids is live and may be ahead of this text: it is cut at the count that belongs to it.
    said = Step(tuple(content["output_ids"][standing.ids : count]), len(text) - standing.chars)
    standing.ids, standing.chars = count, len(text)
    if standing.records:
        yield encode_record(said)


async def _replay(
    original: Generator, handler: Any, arguments: dict[str, Any], standing: _Standing, cuts: Sequence[tuple[int, int]]
) -> None:
    content = arguments["content"]
    silent = {**arguments, "finish_reason_type": None, "choice_logprobs": None}
    for number, (tokens, chars) in enumerate(cuts):
        if number % _STEPS_IN_A_ROW == 0:
            await asyncio.sleep(0)
        standing.ids += tokens
        standing.chars += chars
        meta = {**content["meta_info"], "completion_tokens": standing.ids, "finish_reason": None}
        then = {**content, "text": content["text"][: standing.chars], "meta_info": meta}
        async for _ in original(handler, **{**silent, "content": then}):
            pass
    standing.primed = True


def _mended(arguments: dict[str, Any], standing: _Standing, *, placeholders: int) -> dict[str, Any]:
    """Less the placeholders that stand for the log-probabilities of committed tokens, and with those of passes that were held back."""
    standing.passes += 1
    logprobs = arguments["choice_logprobs"]
    if not logprobs:
        return arguments
    blank = placeholders if standing.passes == 1 else 0
    standing.late = standing.late + logprobs["content"][blank:]
    return {**arguments, "choice_logprobs": {**logprobs, "content": standing.late}}


def _check_trimmed(content: dict[str, Any], resumption: Resumption) -> None:
    """A finished text may be shorter than what was sent where a stop string was cut off its end, or where it did not finish by itself."""
    reason = content["meta_info"]["finish_reason"]
    if reason["type"] != "abort" and not isinstance(reason.get("matched"), str):
        raise BadResumptionError(
            f"resume_steps: hold {resumption.chars} characters; the whole answer has {len(content['text'])}. Send them as they "
            "were committed. [resume.steps]"
        )
