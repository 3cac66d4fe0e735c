"""Rules about how long a request may be, by the positions that a model has. Pure.

The engine refuses a longer context while it reads its arguments, unless a variable tells it to go on. Read in SGLang 0.5.23:
`configs/model_config.py`. What `REFUSED_BY_ENGINE` names is compared with its resolver by
`tests/planning/rules/test_engine_agrees.py`.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, refuse, warn
from spec_toolkit.planning.situation import Situation

REFUSED_BY_ENGINE = frozenset({"positions.context"})

STRETCHES = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
_ON = frozenset({"1", "true", "yes", "y"})


def is_stretched(situation: Situation) -> bool:
    """Whether the engine is told to serve a context that a model has no positions for."""
    return situation.environment.get(STRETCHES, "").lower() in _ON


def context(situation: Situation) -> Iterator[Finding]:
    asked, largest = situation.arguments.context_length, situation.target.max_position_embeddings
    if asked is None or largest is None or asked <= largest:
        return
    found, why = f"is {asked:,} tokens", f"{situation.target.name} has positions for {largest:,}"
    if is_stretched(situation):
        why = f"{why}; {STRETCHES} lets it start, and past them it answers with nonsense or crashes"
        yield warn("positions.context", "context_length", found, why, f"Write at most {largest}.")
    else:
        yield refuse("positions.context", "context_length", found, why, f"Write at most {largest}.")


RULES = (context,)
