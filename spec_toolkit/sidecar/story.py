"""What becomes of decisions, told so that people can follow: a line for each move, and one where the reason for none is another. Pure."""

import re
from collections import deque
from datetime import UTC, datetime

from spec_toolkit.policy.state import Decision
from spec_toolkit.sidecar.records import Confirmed, Taken
from spec_toolkit.sidecar.scrape import Look

_LATEST = 5  # decisions that are shown


class Story:
    def __init__(self) -> None:
        self.why = "nothing was looked at yet"
        self.latest: deque[str] = deque(maxlen=_LATEST)
        self._said = ""  # the kind of reason last told

    def moved(
        self, decision: Decision, now_s: float, look: Look | None = None, confirmed: Confirmed | None = None
    ) -> list[Taken]:
        """The engine has it; `confirmed` where that is a matter of one engine, judged by `look`."""
        self._said = _kind(decision.why)
        ended_s = look.telemetry.at_s if look and look.telemetry else now_s
        began = max((rank.rounds for rank in look.ranks), default=None) if look else None
        at_end = confirmed.rounds if confirmed else None
        return self._tell(
            Taken(
                at=as_text(now_s),
                why=decision.why,
                before=str(decision.before),
                rung=str(decision.state.rung),
                signal=decision.signal.value if decision.signal else "",
                moved=decision.moved,
                confirmed_ms=round(1000 * (confirmed.at_s - ended_s), 1) if confirmed else None,
                rounds=None if began is None or at_end is None else at_end - began,
            )
        )

    def stays(self, why: str, rung: str, now_s: float) -> list[Taken]:
        """Worth a line when the reason is another one, not when its numbers are."""
        self.why = why
        if _kind(why) == self._said:
            return []
        self._said = _kind(why)
        return self._tell(Taken(at=as_text(now_s), why=why, before=rung, rung=rung))

    def _tell(self, taken: Taken) -> list[Taken]:
        self.why = taken.why
        self.latest.append(f"{taken.at} {taken.why}")
        return [taken]


def as_text(at_s: float) -> str:
    """ISO 8601, UTC."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")


def _kind(why: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "#", why)
