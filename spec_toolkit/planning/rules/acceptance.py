"""Rules about how drafts are accepted, by the engine's algorithm. Pure.

Rejection sampling needs the draft's distribution over the target's vocabulary, which the chains of EAGLE and EAGLE3 hand over. The
engine refuses it for STANDALONE and for trees at once; before a Gemma 4 assistant it starts, and fails at the first request that
samples (`speculative/eagle_utils.py`); NGRAM, DFLASH and DSPARK never look at it. An accept threshold below 1 takes tokens the target
would not have sampled. Read in SGLang 0.5.23.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, refuse, warn
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.situation import Situation
from spec_toolkit.terms import LOSSY

REFUSED_BY_ENGINE = frozenset({"features.rejection-needs-chain", "acceptance.thresholds-with-rejection"})

_CHAINS = frozenset({"EAGLE", "EAGLE3"})
_REJECTION = "speculative_use_rejection_sampling"
_THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
_IGNORES = "it never looks at the draft's distribution, and the switch would do nothing"
_WHY_NOT = {
    "FROZEN_KV_MTP": "a Gemma 4 assistant hands no distribution over: the engine starts, and fails at the first request that samples",
    "STANDALONE": "the engine takes it for EAGLE and EAGLE3 alone",
    "NGRAM": _IGNORES,
    "DFLASH": _IGNORES,
    "DSPARK": _IGNORES,
    "UNO": "it has a verification of its own",
}
_REMEDY = "Leave it out: the default rule is lossless too."


def rejection(situation: Situation) -> Iterator[Finding]:
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    if not asked.speculative_use_rejection_sampling or algorithm is None:
        return
    topk = resolved.branches_of(situation)
    if topk > 1:
        why = "rejection sampling is for chains (topk 1)"
        yield refuse("features.rejection-needs-chain", _REJECTION, f"is asked for, with topk {topk}", why, _REMEDY)
    if algorithm in _WHY_NOT:
        found = f"is asked for, with algorithm {algorithm}"
        yield refuse("features.rejection-method", _REJECTION, found, _WHY_NOT[algorithm], _REMEDY)
    if algorithm in _CHAINS and asked.speculative_token_map is not None:
        found = "is asked for, with a token map"
        why = "it needs a draft over the target's whole vocabulary, and a token map makes it smaller"
        yield refuse("acceptance.token-map", _REJECTION, found, why, "Leave one of the two out.")


def thresholds(situation: Situation) -> Iterator[Finding]:
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    if algorithm is None:
        return
    for where in _THRESHOLDS:
        value = getattr(asked, where)
        if value is None or value == 1:
            continue
        if not 0 < value <= 1:
            why = "a threshold is a probability"
            yield refuse("acceptance.threshold", where, f"is {value:g}", why, "Write one above 0 and at most 1.")
        elif asked.speculative_use_rejection_sampling:
            why = "rejection sampling has no threshold"
            yield refuse(
                "acceptance.thresholds-with-rejection", where, f"is {value:g}", why, "Leave one of the two out."
            )
        else:
            why = "below 1 tokens are accepted that need not be the target's"
            remedy = f"Leave it out; or keep it, and call what comes of it {LOSSY}."
            yield warn("features.relaxed-is-lossy", where, f"is {value:g}", why, remedy)


RULES = (rejection, thresholds)
