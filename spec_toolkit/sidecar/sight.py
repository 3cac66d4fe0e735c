"""What is known of the engine that takes requests, and of those before it. Pure."""

from collections import deque

from spec_toolkit.launch.route import Route
from spec_toolkit.planning.limits import Limits
from spec_toolkit.policy.state import State
from spec_toolkit.policy.telemetry import Telemetry, Window, latest_window
from spec_toolkit.sidecar.scrape import Look

_SCRAPES = 600  # how far acceptance may look back: ten minutes of looks
_LONGEST_STEP_SECONDS = (
    15.0  # counted as silence at most: a sidecar that slept must not take that for the engine's hang
)


class Sight:
    def __init__(self, *, engine: int, lost: int) -> None:
        self.route: Route | None = None
        self.engine = engine  # that takes requests, or did last; 0: none yet
        self.lost = lost  # of the deployment's engines, those noticed
        self.is_unknown = True  # the rung the engine is on was never read
        self.is_other = False  # the engine is not the one the state is about
        self.silent_seconds = 0.0  # since its schedulers last answered, while they should
        self.look = Look()
        self.scraped_s: float | None = None  # the last good look
        self._scrapes: deque[Telemetry] = deque(maxlen=_SCRAPES)
        self._noted_s: float | None = None

    def note(self, look: Look, now_s: float) -> bool:
        """`look` is at the engine the route names. Whether an engine was lost since the last call."""
        passed = 0.0 if self._noted_s is None else now_s - self._noted_s
        self._noted_s, self.look, route = now_s, look, self.route
        if route is None:
            return False
        if route.address and route.engine != self.engine:
            self.engine, self.is_unknown, self.is_other = route.engine, True, True
            self._scrapes.clear()
            self.silent_seconds = passed = 0.0
        if look.answered or not route.address:
            self.silent_seconds = 0.0
        else:
            self.silent_seconds += min(passed, _LONGEST_STEP_SECONDS)
        if look.telemetry is not None:
            self.scraped_s = look.telemetry.at_s
            self._scrapes.append(look.telemetry)
        lost, self.lost = route.lost > self.lost, max(route.lost, self.lost)
        return lost

    def window(self, state: State, limits: Limits, *, engine_lost: bool = False) -> Window:
        return latest_window(
            list(self._scrapes),
            seconds=limits.window_seconds,
            min_rounds=limits.min_rounds,
            since_s=state.since_s,
            engine_lost=engine_lost,
        )

    @property
    def why(self) -> str:
        """What the supervisor says of its last change, in brackets; empty where it says nothing."""
        return f" ({self.route.why})" if self.route and self.route.why else ""
