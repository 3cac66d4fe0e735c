"""What a rule about Kubernetes reads: a container that launches an engine, what it launches, and how long that takes. Pure records."""

from msgspec import Struct

from spec_toolkit.planning.situation import Situation
from spec_toolkit.recipe.manifest import PodLaunch


class Estimate(Struct, frozen=True, kw_only=True):
    """Seconds an engine answers nobody; None: not known."""

    start_seconds: float | None = None  # from the container's start to the first answer: weights, compilation, graphs
    stall_seconds: float | None = None  # the longest silence of one that serves: a long prefill, a kernel compiled late


class Deployed(Struct, frozen=True, kw_only=True):
    pod: PodLaunch
    situation: Situation
    estimate: Estimate = Estimate()
    beside: tuple[PodLaunch, ...] = ()  # every launch of the manifest, this one included; empty: nobody else is known
