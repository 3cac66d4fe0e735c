"""Rules about adapters (LoRA) beside speculation. Pure.

The engine applies adapters to the target; one draft without them serves all. Answers stay the adapted target's, acceptance may fall.
Read in SGLang 0.5.23: `arg_groups/lora_hook.py`, which runs after the parser and the resolution.
"""

from collections.abc import Iterator

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding, refuse, warn
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.version import is_before
from spec_toolkit.planning.situation import Situation

REFUSED_BY_ENGINE = frozenset({"lora.algorithm", "lora.adaptive", "lora.ragged", "lora.size"})

_WHERE = "enable_lora"
_OF_ANY_ADAPTER = ("max_lora_rank", "lora_target_modules")
_COMBINES = frozenset({"EAGLE", "EAGLE3", "DFLASH", "DSPARK", "NGRAM"})
# Reports: NGRAM alone up to 0.5.9 (C045); adapters with EAGLE in 0.5.20 (C043), merged 2026-08. Between them nobody says.
_NGRAM_ALONE_BEFORE, _SEEN_IN = "0.5.10", "0.5.20"


def serves_adapters(asked: Arguments) -> bool:
    return bool(asked.enable_lora or (asked.lora_paths and asked.enable_lora is not False))


def named_or_sized(situation: Situation) -> Iterator[Finding]:
    """Without an adapter at the start the engine cannot know how large one may be."""
    asked = situation.arguments
    if not asked.enable_lora or asked.lora_paths:
        return
    missing = " and ".join(name for name in _OF_ANY_ADAPTER if not getattr(asked, name))
    if missing:
        why = "for adapters that come later the engine must be told how large they are"
        remedy = f"Write {missing}, or lora_paths."
        yield refuse("lora.size", _WHERE, "is asked for, and no adapter is named", why, remedy)


def with_speculation(situation: Situation) -> Iterator[Finding]:
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    if not serves_adapters(asked) or algorithm in {None, "NGRAM"}:
        return
    pinned, off = situation.pins.sglang, "Serve adapters without speculation."
    if algorithm not in _COMBINES:
        who = "a Gemma 4 assistant" if algorithm == "FROZEN_KV_MTP" else algorithm
        found = f"is asked for, with {who} as draft"
        yield refuse("lora.algorithm", _WHERE, found, "the engine has no layout of adapters for its verify pass", off)
        return
    if is_before(pinned, _NGRAM_ALONE_BEFORE):
        found = f"is asked for with {algorithm}, on {pinned}"
        why = "up to 0.5.9 the engine combines adapters with NGRAM alone"
        yield refuse(
            "lora.version", _WHERE, found, why, f"Use {situation.engine.version}, or leave one of the two out."
        )
        return
    if is_before(pinned, _SEEN_IN):
        found = f"is asked for with {algorithm}, on {pinned}"
        why = f"nobody reports the two together before {_SEEN_IN}"
        yield warn("lora.version", _WHERE, found, why, f"Use {situation.engine.version}.")
    if resolved.is_adaptive(situation):
        why = "a change of steps would leave the adapters' graphs behind"
        yield refuse("lora.adaptive", "speculative_adaptive", "is asked for, with adapters", why, "Leave it out.")
    mode = situation.environment.get("SGLANG_RAGGED_VERIFY_MODE", "static")
    if algorithm == "DSPARK" and mode != "static":
        why = "adapters need every request verified at one width"
        yield refuse("lora.ragged", "SGLANG_RAGGED_VERIFY_MODE", f"is {mode}, with adapters", why, "Write static.")
    why = "the draft is not adapted: answers stay the adapted target's, and fewer drafts may be accepted"
    yield warn(
        "lora.draft-unadapted", _WHERE, f"is asked for, with {algorithm}", why, "Measure acceptance per adapter."
    )


RULES = (named_or_sized, with_speculation)
