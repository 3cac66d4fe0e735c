"""Lets a request enter a scheduler's queue as if it had been retracted after the tokens its client has. Version-free.

That alone restores the length limit, usage, stop strings, the position a seed is hashed with, the KV budget and the text. A grammar, the
count of reasoning tokens and the offsets of log-probabilities are restored here; penalties in `resume_penalties`. Nothing raises: an
exception at that point would end the rank. All ranks judge by the same request, so they judge alike.
"""

import logging
import traceback
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from spec_toolkit.plugin.resume import check_ids
from spec_toolkit.resumption import KEYS, BadResumptionError, Resumption, decode_params, without_keys

_LOG = logging.getLogger("spec_toolkit")
_LOGPROBS: tuple[tuple[str, Any], ...] = (("token_logprobs", 0), ("top_logprobs", []), ("token_ids_logprobs", []))

CountReasoning = Callable[[Any, list[int]], None]


def enter(request: Any, *, is_split: bool, count_reasoning: CountReasoning) -> None:
    """Prime the request, or mark it to be answered with an error.

    `is_split`: this scheduler only prefills or only decodes; `count_reasoning`: the scheduler's own counter of reasoning tokens.
    """
    try:
        resumption = take(request.sampling_params)
        if resumption is None or request.finished() or request.to_finish:
            return
        _check(request, resumption, is_split=is_split)
        _prime(request, resumption.ids, count_reasoning)
    except Exception as error:  # noqa: BLE001 - whatever it is, raising here would end the rank and with it the engine
        request.output_ids = array("q")
        request.set_finish_with_abort(_answer(error))


def _answer(error: Exception) -> str:
    """For the client, and the engine logs it too. The text of what nobody foresaw may hold tokens, so it goes to neither."""
    if isinstance(error, BadResumptionError):
        return str(error)
    raised = "".join(traceback.format_tb(error.__traceback__))
    _LOG.warning("A request could not be resumed: %s\n%s", type(error).__name__, raised)
    return "the request: could not be resumed on this engine; its log names the place. Send it whole. [resume.failed]"


def take(sampling: Any) -> Resumption | None:
    """Remove our keys: a real retraction must not prime again, and a logit processor is shown what the client wrote."""
    params = sampling.custom_params
    if not isinstance(params, dict) or not KEYS & params.keys():
        return None
    sampling.custom_params = without_keys(params) or None
    return decode_params(params)


def _check(request: Any, resumption: Resumption, *, is_split: bool) -> None:
    if is_split or request.session is not None or request.beam_group is not None or request.input_embeds is not None:
        raise BadResumptionError(
            "a request of a session, with beams, with embeddings or between two engines cannot be resumed. [resume.unsupported]"
        )
    if request.output_ids:
        raise BadResumptionError("the request already has tokens of its own. [resume.unsupported]")
    # The engine has cut the limit to what its context leaves, so this also says that the tokens have room.
    check_ids(resumption.ids, vocabulary=request.vocab_size, limit=request.sampling_params.max_new_tokens)


def _prime(request: Any, ids: Sequence[int], count_reasoning: CountReasoning) -> None:
    if request.grammar is not None:
        _advance(request.grammar, ids)
    count_reasoning(request, list(ids))
    request.output_ids = array("q", ids)
    if request.return_logprob:
        # None of the prompt's, and a placeholder for each token: offsets count from the first output.
        request.logprob_start_len = len(request.origin_input_ids) + len(ids)
        for kind, blank in _LOGPROBS:
            for part in ("val", "idx"):
                rows = getattr(request.logprob, f"output_{kind}_{part}")
                if rows is not None:
                    rows.extend([blank] * len(ids))


def _advance(grammar: Any, ids: Sequence[int]) -> None:
    for place, token in enumerate(ids):
        if grammar.is_terminated():
            raise BadResumptionError(f"the request's grammar ends before token {place} of {len(ids)}. [resume.grammar]")
        try:
            grammar.accept_token(token)
        except ValueError:  # whose text holds every token so far
            raise BadResumptionError(
                f"the request's grammar does not allow token {place} of {len(ids)}. [resume.grammar]"
            ) from None
