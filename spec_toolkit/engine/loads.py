"""How much an engine has to do, out of `/v1/loads`. Pure.

It is answered from memory that the schedulers write into, so it costs them nothing and does not wait for one that hangs; a scheduler
that hangs leaves its last words there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LOADS_PATH = "/v1/loads?include=all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """Over all data-parallel ranks. None: the engine does not say."""

    queue_depth: int | None  # requests waiting, all ranks together
    running: (
        int | None
    )  # requests in the batch of a round, of the busiest rank: ranks of attention DP meet in every round


def read_loads(answer: Mapping[str, Any]) -> Loads:
    """ValueError where it is no such answer. A rank that has not spoken yet leaves unknown what only all can tell."""
    try:
        ranks = answer["loads"]
        queue = [_count(rank, "num_waiting_reqs") for rank in ranks]
        running = [_count(rank, "num_running_reqs") for rank in ranks]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the loads cannot be read: {error!r}") from error
    waiting = [count for count in queue if count is not None]
    busy = [count for count in running if count is not None]
    return Loads(
        queue_depth=sum(waiting) if waiting and len(waiting) == len(queue) else None,
        running=max(busy) if busy and len(busy) == len(running) else None,
    )


def _count(rank: Mapping[str, Any], name: str) -> int | None:
    value = rank.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
