"""How many requests may be in flight, and when one that is turned away may come again. Pure: the time is an argument.

In flight is whatever was admitted and is not answered: running in an engine, queued there, or waiting here for one. The engine runs
`running_cap` of them and queues the rest, so that its queue stays the measure of load that the policy reads.
"""

import math

from spec_toolkit.gateway.refusal import Reason, Refused

WINDOW_SECONDS = 60.0  # answers completed in the last so many give the rate
LEAST_SECONDS, MOST_SECONDS = 1, 60  # of Retry-After


class Admission:
    def __init__(self, *, running_cap: int, waiting_cap: int, now: float) -> None:
        self.running_cap = running_cap
        self.cap = running_cap + waiting_cap
        self.in_flight = 0
        self._began = now
        self._completed: dict[int, int] = {}  # answers, by the second in which they were complete, oldest first

    def start_anew(self, now: float) -> None:
        """Requests go to another engine, which is as fast as it is."""
        self._began = now
        self._completed.clear()

    def enter(self, now: float) -> None:
        """Raises Refused where there are as many as there may be."""
        self.check(now)
        self.in_flight += 1

    def check(self, now: float) -> None:
        if self.in_flight >= self.cap:
            seconds = self.retry_after(now)
            raise Refused(
                Reason.OVERLOADED,
                f"{self.in_flight} requests are in flight, the most allowed ({self.running_cap} at once, the others waiting).",
                f"Try again in {seconds} s.",
                retry_after=seconds,
            )

    def leave(self, now: float, *, completed: bool) -> None:
        self.in_flight -= 1
        if completed:
            self._forget(now)
            self._completed[int(now)] = self._completed.get(int(now), 0) + 1

    def rate(self, now: float) -> float | None:
        """Answers completed in a second, lately; None where none was."""
        self._forget(now)
        observed = min(WINDOW_SECONDS, now - self._began)
        return sum(self._completed.values()) / observed if self._completed and observed > 0 else None

    def _forget(self, now: float) -> None:
        """What was complete before the window."""
        for second in tuple(self._completed):
            if second >= int(now - WINDOW_SECONDS):
                return
            del self._completed[second]

    def retry_after(self, now: float) -> int:
        """Seconds until those that wait now have begun, at the measured rate; without one, as long as none was seen."""
        rate = self.rate(now)
        waiting = max(1, self.in_flight - self.running_cap)
        seconds = min(WINDOW_SECONDS, now - self._began) if rate is None else waiting / rate
        return min(MOST_SECONDS, max(LEAST_SECONDS, math.ceil(seconds)))
