"""Rules about how an engine's pod ends: it is taken out of service first, then has time for its longest request. Pure."""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, refuse, warn
from spec_toolkit.planning.deployed import Deployed

_UNLISTED_SECONDS = 5  # until every proxy has taken a pod that ends off its list; C117


def pre_stop(deployed: Deployed) -> Iterator[Finding]:
    """The signal and the removal from the endpoints start together: who is told late sends requests to a closed socket."""
    pod = deployed.pod
    waits = pod.pre_stop.seconds if pod.pre_stop is not None else 0
    if waits is not None and waits < _UNLISTED_SECONDS:
        found = f"waits {waits} s before the engine is told to end" if pod.pre_stop else "is left out"
        why = f"requests still arrive for about {_UNLISTED_SECONDS} s, and the engine no longer listens"
        where = pod.pre_stop.where if pod.pre_stop else pod.at("preStop")
        remedy = f"Have preStop sleep {_UNLISTED_SECONDS} s; liveness must go on answering meanwhile."
        yield correct("cluster.pre-stop", where, f"preStop {found}", why, remedy)


def grace(deployed: Deployed) -> Iterator[Finding]:
    pod, longest = deployed.pod, deployed.situation.workload.longest_request_seconds
    waits = (pod.pre_stop.seconds or 0) if pod.pre_stop is not None else 0
    if waits >= pod.grace_seconds:
        found, why = f"terminationGracePeriodSeconds is {pod.grace_seconds} s", f"preStop alone takes {waits} of them"
        remedy = f"Write more than {waits}, and time for the longest request."
        yield refuse("cluster.grace", pod.at("terminationGracePeriodSeconds"), found, why, remedy)
        return
    if longest is None or pod.grace_seconds >= longest + max(waits, _UNLISTED_SECONDS):
        return
    needed = longest + max(waits, _UNLISTED_SECONDS)
    found = f"terminationGracePeriodSeconds is {pod.grace_seconds} s"
    why = f"a request may take {longest:g} s, and what runs at the end is cut off"
    yield warn("cluster.grace", pod.at("terminationGracePeriodSeconds"), found, why, f"Write {needed:.0f} or more.")


POD_RULES = (pre_stop, grace)
