"""Rules about caches beside speculation: the host's copy of the KV cache, its storage, and the radix cache of a decode role. Pure.

What comes back from the host must bring the draft's KV with it, or drafts are made from nothing and refused.
"""

import json
from collections.abc import Iterator

from spec_toolkit.errors import Finding, refuse, warn
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.version import is_after, is_before, is_same
from spec_toolkit.planning.situation import Situation

REFUSED_BY_ENGINE = frozenset({"cache.decode-radix"})

_HIERARCHICAL, _STORAGE = "enable_hierarchical_cache", "hicache_storage_backend"
_WITHOUT_DRAFT_KV = frozenset(
    {"NGRAM", "FROZEN_KV_MTP"}
)  # NGRAM drafts from a table, an assistant reads the target's KV
_SAVED_WITH_DRAFT_FROM = "0.5.17"  # the earliest release reported with the draft's own pools on the host (C065)
_STANDALONE_BROKE_IN = "0.5.13"
_DECODE_RADIX = frozenset({"EAGLE", "EAGLE3", "DSPARK"})


def host_copies(situation: Situation) -> Iterator[Finding]:
    """C055: acceptance fell from 4.5 to 1.6 once requests came back from the host, without an error."""
    if not _copies_draft_kv(situation) or not is_before(situation.pins.sglang, _SAVED_WITH_DRAFT_FROM):
        return
    yield warn(
        "cache.draft-kv-not-saved",
        _HIERARCHICAL,
        f"is asked for with speculation, on {situation.pins.sglang}",
        "what comes back from the host has no draft KV, and acceptance collapses without an error",
        f"Leave it out, or use {situation.engine.version}. Flushing the cache restores acceptance for a while.",
    )


def host_copies_of_decode(situation: Situation) -> Iterator[Finding]:
    """C065: seen on 0.5.17, where the draft's KV is saved; not known to be settled."""
    mode = situation.arguments.disaggregation_mode
    if mode in {"prefill", "decode"} and _copies_draft_kv(situation):
        yield warn(
            "cache.replay-in-roles",
            _HIERARCHICAL,
            f"is asked for with speculation, in a {mode} role",
            "between separate roles acceptance has been lower after a replay from the host than before it",
            "Compare acceptance before and after a replay; if it falls, leave the cache out before speculation.",
        )


def storage_apart(situation: Situation) -> Iterator[Finding]:
    """C058: the draft's pool lies outside of the segment that a Mooncake client of its own registers."""
    asked, pinned = situation.arguments, situation.pins.sglang
    if not asked.speculates or not asked.enable_hierarchical_cache or asked.hicache_storage_backend != "mooncake":
        return
    if not _stands_alone(asked.hicache_storage_backend_extra_config) or is_before(pinned, _STANDALONE_BROKE_IN):
        return
    found = "is mooncake with standalone_storage, beside speculation"
    why = "the draft's pool cannot be registered with a client that stands alone"
    remedy = "Let the engine hold the store (standalone_storage false), or leave the storage out."
    if is_same(pinned, _STANDALONE_BROKE_IN):
        yield refuse("cache.standalone-storage", _STORAGE, found, why, remedy)
    elif pinned is None or is_after(pinned, _STANDALONE_BROKE_IN):
        yield warn(
            "cache.standalone-storage", _STORAGE, found, f"{why}: so on 0.5.13, and nobody says it is settled", remedy
        )


def decode_radix(situation: Situation) -> Iterator[Finding]:
    """C064. The check runs after aliases: NEXTN passes for DeepSeek, and fails before a Gemma 4 assistant."""
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    if asked.disaggregation_mode != "decode" or not asked.disaggregation_decode_enable_radix_cache or algorithm is None:
        return
    if algorithm not in _DECODE_RADIX:
        who = "a Gemma 4 assistant" if algorithm == "FROZEN_KV_MTP" else algorithm
        yield refuse(
            "cache.decode-radix",
            "disaggregation_decode_enable_radix_cache",
            f"is asked for, with {who} as draft",
            f"a decode role caches prefixes beside {', '.join(sorted(_DECODE_RADIX))} alone",
            "Leave it out, or serve this role without speculation.",
        )


def _copies_draft_kv(situation: Situation) -> bool:
    algorithm = resolved.algorithm_of(situation)
    return bool(situation.arguments.enable_hierarchical_cache) and algorithm not in {None, *_WITHOUT_DRAFT_KV}


def _stands_alone(extra: str | None) -> bool:
    try:
        config = json.loads(extra) if extra is not None else {}
    except (ValueError, RecursionError):
        return False
    return isinstance(config, dict) and config.get("standalone_storage") is True


RULES = (host_copies, host_copies_of_decode, storage_apart, decode_radix)
