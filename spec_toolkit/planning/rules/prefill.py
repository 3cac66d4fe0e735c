"""Rules about how prompts are worked off beside speculation: mixed with running requests, in chunks, and how long a one was tried. Pure."""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, refuse, warn
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.situation import Situation

REFUSED_BY_ENGINE = frozenset({"prefill.chunk-pages", "prefill.multiplexed"})

_MIXES = frozenset({"EAGLE", "EAGLE3", "DFLASH", "DSPARK"})
_LONG = (
    262_144  # tokens of context from which sparse and compressed attention take paths that a short prompt never sees
)
_TRIED = 65_536  # tokens: a canary of this length counts for any context


def mixed(situation: Situation) -> Iterator[Finding]:
    """C099: switched off with a line in the log."""
    algorithm = resolved.algorithm_of(situation)
    if not situation.arguments.enable_mixed_chunk or algorithm is None or algorithm in _MIXES:
        return
    who = "a Gemma 4 assistant" if algorithm == "FROZEN_KV_MTP" else algorithm
    yield warn(
        "prefill.mixed-ignored",
        "enable_mixed_chunk",
        f"is asked for, with {who} as draft",
        "the engine switches it off: such a draft cannot go on from a mixed step",
        "It runs without; leave it out.",
    )


def chunk_of_pages(situation: Situation) -> Iterator[Finding]:
    asked, page = situation.arguments, resolved.page_tokens(situation)
    chunk, ranks = asked.chunked_prefill_size, asked.attention_dp
    if chunk is None or chunk <= 0 or page is None or ranks < 1 or asked.disaggregation_mode == "decode":
        return
    if chunk // ranks % page:
        share = f", {chunk // ranks} on each of {ranks} ranks" if ranks > 1 else ""
        yield refuse(
            "prefill.chunk-pages",
            "chunked_prefill_size",
            f"is {chunk} tokens{share}",
            f"a chunk is whole pages, and a page is {page} tokens here",
            f"Write a multiple of {page * ranks}.",
        )


def multiplexed(situation: Situation) -> Iterator[Finding]:
    """Prefill and decode side by side on one GPU: what the engine does not combine it with."""
    asked = situation.arguments
    if not asked.enable_pdmux:
        return
    against = (
        ((asked.pp_size or 1) > 1, "pipeline stages", "pp_size", "1"),
        (asked.chunked_prefill_size != -1, "chunks of a prompt", "chunked_prefill_size", "-1"),
        (asked.disaggregation_mode in {"prefill", "decode"}, "a role of its own", "disaggregation_mode", "null"),
        (not asked.disable_overlap_schedule, "the overlap schedule", "disable_overlap_schedule", ""),
    )
    said = [(what, f"{name} {value}".strip()) for holds, what, name, value in against if holds]
    if said:
        why = f"the engine does not combine it with {' or with '.join(what for what, _ in said)}"
        remedy = f"Write {' and '.join(flag for _, flag in said)}, or leave it out."
        yield refuse("prefill.multiplexed", "enable_pdmux", "is asked for", why, remedy)


def canary(situation: Situation) -> Iterator[Finding]:
    """C097: an engine that answers short prompts may end at the first long one."""
    context, tried = situation.arguments.context_length, situation.workload.canary_prompt_tokens
    if context is None or tried is None or context < _LONG or tried >= min(_TRIED, context):
        return
    if situation.arguments.speculates:
        yield warn(
            "prefill.canary",
            "workload.canary_prompt_tokens",
            f"is {tried:,} tokens, {tried / context:.1%} of the {context:,} that are offered",
            "long prompts take kernels of their own, and the first client to send one would be the first to try them",
            f"Try one of {_TRIED:,} tokens or more before traffic.",
        )


RULES = (mixed, chunk_of_pages, multiplexed, canary)
