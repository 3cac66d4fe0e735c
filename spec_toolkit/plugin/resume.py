"""Says no to what cannot be resumed, before a scheduler hears of it. Version-free, touches nothing.

It reads the engine's request by its attributes, after defaults are in place, and speaks only about requests that carry one of our keys.
"""

from collections.abc import Mapping
from typing import Any

from spec_toolkit.resumption import IDS_KEY, KEYS, BadResumptionError, decode_params

# Attributes of a request that the tokens alone do not restore, or whose answers nobody has put together from two engines.
REFUSED_ATTRIBUTES: Mapping[str, str] = {
    "image_data": "multimodal input",
    "video_data": "multimodal input",
    "audio_data": "multimodal input",
    "input_embeds": "embeddings in the place of tokens",
    "positional_embed_overrides": "embeddings in the place of tokens",
    "session_params": "a session lives in one engine",
    "session_id": "a session lives in one engine",
    "lora_path": "an adapter may be another one on another engine",
    "custom_logit_processor": "it may keep a state of its own",
    "watermark": "its state is not restored",
    "return_hidden_states": "those of the first tokens are gone",
    "return_sampling_mask": "those of the first tokens are gone",
    "return_routed_experts": "those of the first tokens are gone",
    "return_indexer_topk": "those of the first tokens are gone",
    "return_entropy": "that of the first tokens is gone",
    "return_flat_raw_top_logprobs": "those of the first tokens are gone",
    "return_flat_raw_output_top_logprobs": "those of the first tokens are gone",
    "bootstrap_room": "prefill and decode on two engines",
    "multi_item_delimiter_indices": "a scored prompt, not a stream",
}
REFUSED_COUNTS: Mapping[str, str] = {  # sampling parameters that may be 1 and not more
    "n": "several choices",
    "beam_width": "beams",
}


def check(request: Any, *, vocabulary: int, incremental: bool) -> None:
    """BadResumptionError where this request asks for commit records or a resumption and cannot have them.

    `vocabulary`: token ids there are; `incremental`: the engine streams differences instead of the whole text so far.
    """
    sampling = request.sampling_params
    params = sampling.get("custom_params") if isinstance(sampling, Mapping) else None
    if not isinstance(params, Mapping) or not KEYS & params.keys():
        return
    if incremental:
        raise _refused("incremental streaming output", "a step is cut out of the whole text")
    for name, why in REFUSED_ATTRIBUTES.items():
        if getattr(request, name, None) not in (None, False, [], {}, ""):
            raise _refused(name, why)
    for name, why in REFUSED_COUNTS.items():
        count = sampling.get(name)
        if isinstance(count, int) and count > 1:
            raise _refused(f"{name} {count}", why)
    resumption = decode_params(params)
    if resumption is not None:
        check_ids(resumption.ids, vocabulary=vocabulary, limit=sampling.get("max_new_tokens"))


def check_ids(ids: tuple[int, ...], *, vocabulary: int, limit: object) -> None:
    """`limit`: most tokens of the answer; whatever is no whole number limits nothing here."""
    unknown = next((place for place, token in enumerate(ids) if token >= vocabulary), None)
    if unknown is not None:
        raise BadResumptionError(
            f"{IDS_KEY}: token {unknown} of {len(ids)} is none of the vocabulary's {vocabulary:,}. Resume on an engine of the same "
            "model. [resume.vocabulary]"
        )
    if isinstance(limit, int) and len(ids) >= limit:
        raise BadResumptionError(
            f"{IDS_KEY}: holds {len(ids)} tokens; the answer may have {limit}, so none is left to make. [resume.length]"
        )


def _refused(what: str, why: str) -> BadResumptionError:
    return BadResumptionError(f"{what}: cannot be resumed; {why}. Send it without {sorted(KEYS)}. [resume.unsupported]")
