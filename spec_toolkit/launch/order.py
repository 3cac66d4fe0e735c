"""What is asked of the succession of engines, and how far one is. Pure."""

from dataclasses import dataclass
from enum import Enum


class Step(Enum):
    STARTING = "the first engine is being started"
    SERVING = "an engine serves"
    REPLACING = "the engine is being replaced"
    RETURNING = "a speculating engine is being started to take over"


@dataclass(frozen=True, slots=True)
class Order:
    """Somebody asked for another engine."""

    speculate: bool
    why: str
    hung: bool = (
        False  # the one that serves does not answer: nothing of it is waited for, and whoever says so counts it as lost
    )
