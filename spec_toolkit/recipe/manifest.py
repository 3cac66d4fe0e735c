"""What Kubernetes objects say around an engine's launch, as records: probes, volumes, grace, budgets, rollout. Pure.

Where Kubernetes has a default for what is left out (a probe's period), the record holds that default; where it depends on the cluster
or means "none", the record holds None. Every part knows its line.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spec_toolkit.recipe.command import CommandLaunch


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A question the kubelet asks; defaults are Kubernetes' own."""

    where: str  # "deployment.yaml:31"
    kind: str  # http, exec, tcp, grpc; "unknown" where no handler stands there
    path: str | None = None  # http only
    port: str | None = None  # a number or a port's name; http, tcp, grpc
    command: tuple[str, ...] = ()  # exec only
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    failure_threshold: int = 3  # failures in a row that count
    grace_seconds: int | None = None  # the probe's own; None: the pod's

    @property
    def tolerance_seconds(self) -> int:
        """From the first question to the kill or, of readiness, to the removal, if no answer is ever good."""
        return self.initial_delay_seconds + self.stall_seconds

    @property
    def stall_seconds(self) -> int:
        """The longest silence of an engine that has answered before."""
        return self.failure_threshold * self.period_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A volume in the container; a mount whose volume the pod does not have is `missing`."""

    where: str
    path: str  # in the container: /dev/shm
    kind: str  # emptyDir, persistentVolumeClaim, hostPath, claimTemplate, missing, ...
    medium: str | None = None  # emptyDir only: Memory
    size_limit_bytes: int | None = None  # emptyDir only


@dataclass(frozen=True, slots=True, kw_only=True)
class PreStop:
    """What runs before the engine is told to end; its time counts against the grace period."""

    where: str
    kind: str  # exec, http, sleep, tcp
    seconds: int | None = None  # it waits at least so long; None: cannot be told
    command: tuple[str, ...] = ()  # exec only


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A PodDisruptionBudget whose selector matches the pod's labels; "25%" stays text."""

    where: str
    name: str
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """How a new version replaces the old; "25%" stays text."""

    where: str
    kind: str | None = None  # RollingUpdate, Recreate, OnDelete
    max_unavailable: int | str | None = None
    max_skew: int | str | None = None  # of coordinated roles
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLaunch:
    """One container that launches an engine, and what surrounds it."""

    where: str  # of the container: "deployment.yaml:18"
    object_kind: str  # Deployment, LeaderWorkerSet, RoleBasedGroup, ...
    object_name: str
    template: str  # the path of the pod template in its object: "spec.template", "spec.roles[0].template"
    role: str | None = None  # a role's name, or leader and worker; None: the object has one template
    container: str  # its name
    launch: CommandLaunch
    image: str | None = None
    replicas: int | None = None  # of the object or role: pods, or groups of pods; None: not said, or not a number
    group_size: int = 1  # pods that make up one replica
    labels: Mapping[str, str] = field(default_factory=dict)  # of the pod
    environment: Mapping[str, str] = field(
        default_factory=dict
    )  # literal values, not those that a secret, a config map or a field holds; secrets are "***"
    startup: Probe | None = None
    liveness: Probe | None = None
    readiness: Probe | None = None
    mounts: tuple[Mount, ...] = ()
    grace_seconds: int = 30  # terminationGracePeriodSeconds; Kubernetes' default
    pre_stop: PreStop | None = None
    gpus: int | None = None  # limit of nvidia.com/gpu; None: none is asked for
    memory_limit_bytes: int | None = None
    host_ipc: bool = False  # /dev/shm is then the node's
    node_labels: Mapping[str, str] = field(default_factory=dict)  # nodeSelector
    rollout: Rollout | None = None
    budgets: tuple[Budget, ...] = ()
    lines: Mapping[str, str] = field(
        default_factory=dict
    )  # where a part stands, by its Kubernetes key: "replicas", "env.NAME"

    @property
    def shared_memory(self) -> Mount | None:
        """The volume at /dev/shm; None: the container's own, 64 MiB by default."""
        return next((mount for mount in self.mounts if mount.path.rstrip("/") == "/dev/shm"), None)  # noqa: S108 - a path in the container

    def at(self, key: str) -> str:
        """Where a part stands; the container where it is not written."""
        return self.lines.get(key, self.where)
