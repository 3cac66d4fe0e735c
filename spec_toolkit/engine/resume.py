"""What a request must be to go on after its engine ended, and how it is written for the next engine. Pure; speaks of request bodies.

    why = why_not_resumable(Endpoint.CHAT, body)         # None, or a typed reason: refuse it, or serve it without that promise
    first = first_request(Endpoint.CHAT, body, rid)      # to the first engine
    ...                                                  # forward a step's events when its record has come; keep the steps
    again = resumed_request(Endpoint.CHAT, body, rid, resumption_after(steps))       # to the next engine; None: `first` again

An event of a /generate stream carries the whole text and every id so far, so each is its own commit: `committed_ids`, `says_less`,
`with_earlier_logprobs`. A stream is whole only after its `[DONE]`, and an event of either endpoint that reports an error commits nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from spec_toolkit.resumption import RECORDS_KEY, Resumption, encode_params, without_keys


class Endpoint(Enum):
    GENERATE = "/generate"
    CHAT = "/v1/chat/completions"


class Unresumable(Enum):
    """The typed reason."""

    SEVERAL_CHOICES = "several_choices"  # records name no choice
    SEVERAL_PROMPTS = "several_prompts"
    BEAMS = "beams"
    MULTIMODAL = "multimodal"
    EMBEDDINGS = "embeddings"  # in the place of tokens
    ADAPTER = "adapter"
    SESSION = "session"  # lives in one engine
    LOGIT_PROCESSOR = "logit_processor"  # may keep a state of its own
    WATERMARK = "watermark"
    HIDDEN_STATES = "hidden_states"
    # Masks, experts, entropies: those of the first tokens are gone with their engine.
    ARRAYS_BY_TOKEN = "arrays_by_token"  # noqa: S105 - not a password
    SPLIT_ENGINES = "split_engines"  # prefill and decode apart
    SCORING = "scoring"  # prompts with items to be scored are no streams


class Caveat(Enum):
    """It goes on, but what comes need not be what the first engine would have said. Each holds without any resumption too."""

    SAMPLED = "sampled"  # temperature above 0: the engine's coins are not kept; the distribution is
    # A tool parser may lose what comes in one piece of several tokens, so where the steps of the engines differ its answers may.
    CHUNKS = "chunks"
    PENALTIES = "penalties"  # minimum lengths too: a speculating engine counts one token a round, an autoregressive one each: the texts part
    ENGINE_COUNTS = "engine_counts"  # cached tokens and acceptance are those of the last engine


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: Unresumable
    key: str  # of the body, as its writer spelled it


# Keys of both bodies. What is absent, null, false, zero or empty does not ask for the thing.
_KEYS: Mapping[str, Unresumable] = {
    "session_params": Unresumable.SESSION,
    "session_id": Unresumable.SESSION,
    "lora_path": Unresumable.ADAPTER,
    "custom_logit_processor": Unresumable.LOGIT_PROCESSOR,
    "watermark": Unresumable.WATERMARK,
    "return_hidden_states": Unresumable.HIDDEN_STATES,
    "return_sampling_mask": Unresumable.ARRAYS_BY_TOKEN,
    "return_routed_experts": Unresumable.ARRAYS_BY_TOKEN,
    "return_flat_raw_output_top_logprobs": Unresumable.ARRAYS_BY_TOKEN,
}
_GENERATE_KEYS: Mapping[str, Unresumable] = {
    **_KEYS,
    "image_data": Unresumable.MULTIMODAL,
    "video_data": Unresumable.MULTIMODAL,
    "audio_data": Unresumable.MULTIMODAL,
    "input_embeds": Unresumable.EMBEDDINGS,
    "positional_embed_overrides": Unresumable.EMBEDDINGS,
    "lora_id": Unresumable.ADAPTER,
    "return_indexer_topk": Unresumable.ARRAYS_BY_TOKEN,
    "return_entropy": Unresumable.ARRAYS_BY_TOKEN,
    "return_flat_raw_top_logprobs": Unresumable.ARRAYS_BY_TOKEN,
    "bootstrap_host": Unresumable.SPLIT_ENGINES,
    "bootstrap_room": Unresumable.SPLIT_ENGINES,
    "multi_item_delimiter_indices": Unresumable.SCORING,
}
_WORDS_ONLY = frozenset({"text", "refusal", "thinking", "reasoning"})  # kinds of a message's parts
_PENALTIES = (
    ("frequency_penalty", 0), ("presence_penalty", 0), ("repetition_penalty", 1), ("min_tokens", 0), ("min_new_tokens", 0)
)  # fmt: skip


def why_not_resumable(endpoint: Endpoint, body: Mapping[str, Any]) -> Refusal | None:
    """None: a stream of this request can go on elsewhere. A body that makes no sense is the engine's to refuse."""
    keys = _GENERATE_KEYS if endpoint is Endpoint.GENERATE else _KEYS
    for key, reason in keys.items():
        if body.get(key):
            return Refusal(reason, key)
    return _of_generate(body) if endpoint is Endpoint.GENERATE else _of_chat(body)


def _of_generate(body: Mapping[str, Any]) -> Refusal | None:
    sampling = body.get("sampling_params")
    prompt = body.get("text")
    ids = body.get("input_ids")
    if (
        isinstance(prompt, list)
        or isinstance(sampling, list)
        or (isinstance(ids, list) and ids and isinstance(ids[0], list))
    ):
        return Refusal(Unresumable.SEVERAL_PROMPTS, "text" if isinstance(prompt, list) else "input_ids")
    return _of_counts(sampling if isinstance(sampling, Mapping) else {}, "sampling_params.")


def _of_chat(body: Mapping[str, Any]) -> Refusal | None:
    adapter = str(body.get("model") or "").partition(":")[2]  # `model:adapter`
    if adapter:
        return Refusal(Unresumable.ADAPTER, "model")
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        parts = message.get("content") if isinstance(message, Mapping) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, Mapping) and part.get("type") not in _WORDS_ONLY:
                return Refusal(Unresumable.MULTIMODAL, "messages")
    return _of_counts(body, "")


def _of_counts(sampling: Mapping[str, Any], where: str) -> Refusal | None:
    for key, reason in (("n", Unresumable.SEVERAL_CHOICES), ("beam_width", Unresumable.BEAMS)):
        count = sampling.get(key)
        if isinstance(count, int | float) and count > 1:
            return Refusal(reason, f"{where}{key}")
    return None


def caveats(endpoint: Endpoint, body: Mapping[str, Any]) -> frozenset[Caveat]:
    """For the record of a resumed stream. A temperature that is absent is taken for one above 0, as the engine's default is."""
    sampling = body if endpoint is Endpoint.CHAT else body.get("sampling_params")
    sampling = sampling if isinstance(sampling, Mapping) else {}
    found = set()
    temperature = sampling.get("temperature")
    if (temperature is None or temperature) and sampling.get("top_k") != 1:
        found.add(Caveat.SAMPLED)
    if any(sampling.get(key) not in (None, neutral) for key, neutral in _PENALTIES):
        found.add(Caveat.PENALTIES)
    if endpoint is Endpoint.CHAT and body.get("tools"):
        found.add(Caveat.CHUNKS)
    if (
        endpoint is Endpoint.GENERATE
        or body.get("return_cached_tokens_details")
        or body.get("return_spec_tokens_details")
    ):
        found.add(Caveat.ENGINE_COUNTS)
    return frozenset(found)


def first_request(endpoint: Endpoint, body: Mapping[str, Any], rid: str) -> dict[str, Any]:
    """As the client sent it, under an id that the next engine can take over, without keys of ours that the client wrote."""
    ask = {RECORDS_KEY: True} if endpoint is Endpoint.CHAT and body.get("stream") else {}
    return _request(endpoint, body, rid, ask)


def resumed_request(
    endpoint: Endpoint, body: Mapping[str, Any], rid: str, resumption: Resumption | None
) -> dict[str, Any]:
    """The same request after what has been committed; None: nothing has."""
    first = first_request(endpoint, body, rid)
    return first if resumption is None else _request(endpoint, first, rid, encode_params(resumption), keep=True)


def _request(
    endpoint: Endpoint, body: Mapping[str, Any], rid: str, ours: Mapping[str, object], *, keep: bool = False
) -> dict[str, Any]:
    holder = body if endpoint is Endpoint.CHAT else body.get("sampling_params") or {}
    if not isinstance(holder, Mapping):  # several prompts, which are not resumed
        return {**body, "rid": rid}
    given = holder.get("custom_params") or {}
    mended = dict(holder)
    if isinstance(given, Mapping):  # anything else is the engine's to refuse
        params = {**(given if keep else without_keys(given)), **ours}
        if params or "custom_params" in holder:
            mended["custom_params"] = params or None
    if endpoint is Endpoint.CHAT:
        return {**mended, "rid": rid}
    return {**body, "rid": rid, "sampling_params": mended}


def committed_ids(event: Mapping[str, Any]) -> tuple[int, ...]:
    """Of an event of /generate. Its list of ids is live in the engine and may be ahead of its text: the count says how many belong to it."""
    return tuple(event["output_ids"][: event["meta_info"]["completion_tokens"]])


def says_less(event: Mapping[str, Any], sent_text: str) -> bool:
    """Whether a resumed engine's event is behind what the client has, which happens while a character is incomplete: do not forward it."""
    return event["meta_info"].get("finish_reason") is None and len(event.get("text") or "") < len(sent_text)


_LOGPROBS_OF_OUTPUT = ("output_token_logprobs", "output_top_logprobs", "output_token_ids_logprobs")
_LOGPROBS_OF_PROMPT = ("input_token_logprobs", "input_top_logprobs", "input_token_ids_logprobs")


def with_earlier_logprobs(event: Mapping[str, Any], earlier: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """An event of /generate whose first `tokens` log-probabilities, placeholders, are those of an earlier engine's last event."""
    meta, before = dict(event["meta_info"]), earlier["meta_info"]
    for key in _LOGPROBS_OF_OUTPUT:
        rows: Sequence[Any] | None = before.get(key)
        if rows is not None and meta.get(key) is not None:
            meta[key] = [*rows[:tokens], *meta[key][tokens:]]
    meta.update({key: before[key] for key in _LOGPROBS_OF_PROMPT if key in before})
    return {**event, "meta_info": meta}
