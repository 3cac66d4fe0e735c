"""Rules about DSpark by engine version: where its answers were seen to be wrong. Pure.

Source: sgl-project/sglang#33800, #32038, #34959, #33985 (2026-07, 2026-08): with the checkpoint's own depth of 5, 0.5.15 to 0.5.17
answered wrongly and said nothing; on compute capability 12 they did not start, or answered wrongly. Nobody has shown either of 0.5.23.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, refuse, warn
from spec_toolkit.planning.rules.pairing import asked_algorithm
from spec_toolkit.planning.rules.resolved import has_draft_of_its_own
from spec_toolkit.planning.situation import Situation

_AFFECTED = ("0.5.15", "0.5.16", "0.5.17")
_SEEN_WRONG = 5  # block size
_SEEN_RIGHT = 3
_REPLAY = "Replay greedy requests against the autoregressive engine before it serves."


def depth(situation: Situation) -> Iterator[Finding]:
    if asked_algorithm(situation) != "DSPARK":
        return
    where, written = "speculative_dspark_block_size", situation.arguments.speculative_dspark_block_size
    drafts = written or situation.target.dspark_block_size
    if drafts is None or drafts != _SEEN_WRONG:
        return
    found = f"is {drafts}" if written else f"is left out, and the checkpoint's is {drafts}"
    if _is_affected(situation):
        why = f"with {_SEEN_WRONG} sglang {situation.pins.sglang} was seen to answer wrongly, without a word"
        yield correct(
            "dspark.depth", where, found, why, f"Planned with {_SEEN_RIGHT}. {_REPLAY}", ((where, _SEEN_RIGHT),)
        )
    else:
        why = f"with {_SEEN_WRONG} sglang {_AFFECTED[0]} to {_AFFECTED[-1]} answered wrongly, and this version was not shown to be right"
        yield warn("dspark.depth", where, found, why, _REPLAY)


def beyond_the_block(situation: Situation) -> Iterator[Finding]:
    """The engine takes any block size over the checkpoint's."""
    where, written = "speculative_dspark_block_size", situation.arguments.speculative_dspark_block_size
    trained = None if has_draft_of_its_own(situation) else situation.target.dspark_block_size
    if asked_algorithm(situation) != "DSPARK" or written is None or trained is None or written <= trained:
        return
    why = f"the checkpoint's stages were trained for blocks of {trained}, and drafts beyond were never trained"
    yield warn("dspark.beyond", where, f"is {written}", why, f"Write at most {trained}, or leave it out.")


def gpu(situation: Situation) -> Iterator[Finding]:
    facts = situation.site.facts
    capability = facts.compute_capability.v if facts is not None else None
    if asked_algorithm(situation) != "DSPARK" or capability is None or capability[0] != 12:
        return
    where = situation.pins.flashinfer
    beside = f" with FlashInfer {where}" if where else ""
    found = f"is DSPARK, on compute capability {capability[0]}.{capability[1]}"
    if _is_affected(situation):
        why = f"on sglang {situation.pins.sglang}{beside} it does not start there, or answers wrongly"
        yield refuse("dspark.gpu", "speculative_algorithm", found, why, "Use EAGLE, or run autoregressive.")
    else:
        why = f"sglang {_AFFECTED[0]} to {_AFFECTED[-1]} could not, and this version was not shown to"
        yield warn("dspark.gpu", "speculative_algorithm", found, why, _REPLAY)


def _is_affected(situation: Situation) -> bool:
    version = situation.pins.sglang
    return version is not None and version.startswith(_AFFECTED)


RULES = (depth, beyond_the_block, gpu)
