"""Rules about what requests may ask for and a speculating engine does not do. Pure.

Read in the engine: speculative/dflash_utils.py (`apply_dflash_verify_logits_adjustments`, which DSpark uses too) looks for a tensor of
accumulated penalties under a name that sampling/sampling_batch_info.py no longer gives it. Under the overlap schedule no penalty is then
applied at all; without it the additive ones are, and the multiplying one meets zeros. EAGLE's and NGRAM's verify applies them all.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, warn
from spec_toolkit.planning.rules.resolved import algorithm_of
from spec_toolkit.planning.situation import Situation

_BLOCKS = frozenset({"DFLASH", "DSPARK"})


def penalties(situation: Situation) -> Iterator[Finding]:
    algorithm = algorithm_of(situation)
    if algorithm not in _BLOCKS:
        return
    overlap = not situation.arguments.disable_overlap_schedule
    ignored = "frequency, presence and repetition penalties" if overlap else "repetition penalties"
    yield warn(
        "features.penalties-ignored",
        "speculative_algorithm",
        f"is {algorithm}",
        f"its verify leaves {ignored} of a request out, and answers as if they had not been asked for",
        "Send such requests to an autoregressive engine, or use EAGLE.",
    )


RULES = (penalties,)
