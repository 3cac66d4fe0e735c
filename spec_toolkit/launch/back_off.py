"""How long to wait before something that ended is started again, and when to give up. Pure but for the clock it is handed."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

PERIOD_SECONDS = 3600.0
_LARGEST_EXPONENT = 32  # a wait has long met its longest


@dataclass(slots=True, kw_only=True)
class BackOff:
    """Each end within the hour doubles the wait."""

    most: int  # ends within the hour after which it is still started again
    first_seconds: float
    longest_seconds: float
    now: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random  # 0 to 1
    _ends: list[float] = field(default_factory=list)

    def wait_after_end(self) -> float | None:
        """Count one more end; seconds to wait, half to one and a half times the nominal; None: too many."""
        now = self.now()
        self._ends = [end for end in self._ends if now - end < PERIOD_SECONDS] + [now]
        if len(self._ends) > self.most:
            return None
        grown = self.first_seconds * 2.0 ** min(len(self._ends) - 1, _LARGEST_EXPONENT)
        return min(grown, self.longest_seconds) * (0.5 + self.jitter())
