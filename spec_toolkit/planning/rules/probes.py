"""Rules about the probes around an engine: they may not end one that loads, compiles or works on a long prefill. Pure.

Read in the engine: entrypoints/http_server.py. `/health` and `/health_generate` have it make a token and wait for any answer of it in
steps of one second, for 20 s unless SGLANG_HEALTH_CHECK_TIMEOUT says otherwise; `/ready` answers at once.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, note, refuse, warn
from spec_toolkit.planning.deployed import Deployed
from spec_toolkit.recipe.manifest import Probe
from spec_toolkit.recipe.schema import Policy

_START_MARGIN = 1.5  # of the estimate; C107
_STALL_MARGIN = 2.0  # C108
_OUR_LIMIT_SECONDS = Policy().ready_seconds  # what the toolkit itself gives a start, where a recipe says nothing
_GENERATES = frozenset({"/health", "/health_generate"})
_TIMEOUT = "SGLANG_HEALTH_CHECK_TIMEOUT"
_TIMEOUT_SECONDS = 20.0
_GENERATION = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
_OFF = frozenset({"0", "false", "no", "n", "f", "off"})
_STEP_SECONDS = 1  # the engine looks for an answer only after each of these


def start(deployed: Deployed) -> Iterator[Finding]:
    """A liveness probe begins with the container unless a startup probe holds it back; each kill begins the load again."""
    pod, seconds = deployed.pod, deployed.estimate.start_seconds
    if pod.liveness is None and pod.startup is None:
        return
    what, probe = ("startup", pod.startup) if pod.startup is not None else ("liveness", pod.liveness)
    assert probe is not None  # noqa: S101 - one of the two is there
    gives = f"the {what} probe ends the container after {probe.tolerance_seconds:,} s"
    if seconds is None:
        if probe.tolerance_seconds < _OUR_LIMIT_SECONDS:
            why = f"how long this engine takes to start is not known here, and the toolkit itself waits {_OUR_LIMIT_SECONDS:,.0f} s{_rate(deployed, probe)}"
            if pod.startup is None:
                yield warn(
                    "probes.start", probe.where, f"{gives}, and no startup probe holds it back", why, _startup(None)
                )
            else:
                yield note("probes.start", probe.where, gives, why)
    elif probe.tolerance_seconds < seconds:
        found = gives if pod.startup is not None else f"{gives}, and no startup probe holds it back"
        yield refuse("probes.start", probe.where, found, f"it starts in about {seconds:,.0f} s", _startup(seconds))
    elif probe.tolerance_seconds < seconds * _START_MARGIN:
        why = f"it starts in about {seconds:,.0f} s, which leaves less than half as much again"
        yield warn("probes.start", probe.where, gives, why, _startup(seconds))


def stall(deployed: Deployed) -> Iterator[Finding]:
    """An engine that works may be silent for as long as a long prefill or a kernel's late compilation takes."""
    probe, seconds = deployed.pod.liveness, deployed.estimate.stall_seconds
    if probe is None:
        return
    found = f"the liveness probe ends the container after {probe.stall_seconds:,} s of silence ({probe.failure_threshold} × {probe.period_seconds} s)"  # noqa: RUF001 - "times"
    if seconds is not None and probe.stall_seconds < seconds * _STALL_MARGIN:
        why = f"one that works may be silent for {seconds:,.0f} s"
        remedy = f"Let failureThreshold times periodSeconds be at least {seconds * _STALL_MARGIN:,.0f} s; readiness may stay short."
        yield refuse("probes.stall", probe.where, found, why, remedy)
    elif seconds is None and probe.failure_threshold == 1:
        why = "one missed answer, as of a kernel that compiles late, ends it and all it works on"
        yield warn("probes.stall", probe.where, found, why, "Raise failureThreshold; readiness may stay short.")


def health_timeout(deployed: Deployed) -> Iterator[Finding]:
    probe, silence = deployed.pod.liveness, deployed.estimate.stall_seconds
    if probe is None or not _generates(probe, deployed) or silence is None:
        return
    written = _variable(deployed, _TIMEOUT)
    limit = _number(written) if written is not None else _TIMEOUT_SECONDS
    if limit is not None and limit <= silence:
        found = f"is {limit:g} s" + ("" if written is not None else ", the engine's own")
        why = (
            f"liveness asks {probe.path}, which has the engine make a token, and it may be silent for {silence:,.0f} s"
        )
        yield correct("probes.health-timeout", _TIMEOUT, found, why, f"Set it above {silence:,.0f}.")


def probe_timeout(deployed: Deployed) -> Iterator[Finding]:
    """Kubernetes' default is one second, and the engine looks for the token it made after one second at the earliest."""
    pod = deployed.pod
    for what, probe in (("startup", pod.startup), ("liveness", pod.liveness), ("readiness", pod.readiness)):
        if probe is not None and _generates(probe, deployed) and probe.timeout_seconds <= _STEP_SECONDS:
            found = f"the {what} probe waits {probe.timeout_seconds} s for {probe.path}"
            why = "the engine answers there after 1 s at the earliest, so every question fails"
            yield refuse(
                "probes.timeout", probe.where, found, why, "Raise timeoutSeconds, or ask /ready for readiness."
            )


def _generates(probe: Probe, deployed: Deployed) -> bool:
    if probe.kind != "http" or probe.path is None:
        return False
    path = probe.path.partition("?")[0]
    silenced = (_variable(deployed, _GENERATION) or "").lower() in _OFF
    return path in _GENERATES and not (silenced and path == "/health")


def _variable(deployed: Deployed, name: str) -> str | None:
    return deployed.situation.environment.get(name, deployed.pod.environment.get(name))


def _number(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


def _rate(deployed: Deployed, probe: Probe) -> str:
    """How fast a pod's weights would have to come, before anything compiles. Tensor parallelism reads each of them once a group."""
    weights, pods = deployed.situation.target.weight_bytes, deployed.pod.group_size
    if weights is None or probe.tolerance_seconds == 0:
        return ""
    a_second = weights / pods / probe.tolerance_seconds
    return (
        f"; its {weights / 1e9:,.0f} GB of weights alone would have to come at {a_second / 1e9:,.2g} GB/s to each pod"
    )


def _startup(seconds: float | None) -> str:
    least = f" of at least {seconds * _START_MARGIN:,.0f} s" if seconds is not None else ""
    return f"Add a startup probe with failureThreshold times periodSeconds{least}."


POD_RULES = (start, stall, health_timeout, probe_timeout)
