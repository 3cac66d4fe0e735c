"""Rules about what stands around an engine's pod: shared memory, GPUs, disruption budgets, rollout. Pure."""

import math
from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, refuse, warn
from spec_toolkit.planning.deployed import Deployed
from spec_toolkit.planning.situation import Situation
from spec_toolkit.recipe.manifest import Budget

_MIB = 2**20
_CONTAINERS_OWN_MIB = 64  # what a container runtime gives; C115
_SHARED = "/dev/shm"  # noqa: S108 - the path in the container


def shared_memory(deployed: Deployed) -> Iterator[Finding]:
    """Ranks of one pod speak through it. A memory-backed volume counts against the container's memory limit."""
    pod, ranks = deployed.pod, ranks_per_node(deployed.situation)
    mount, most = pod.shared_memory, pod.memory_limit_bytes
    if ranks <= 1 or pod.host_ipc:
        return
    size = mount.size_limit_bytes if mount is not None else None
    rule, remedy = "cluster.shared-memory", "Mount an emptyDir of medium Memory there, such as 32Gi."
    if mount is None or mount.kind == "missing":
        where = pod.at("volumeMounts") if mount is None else mount.where
        found = f"{_SHARED} is the container's own, {_CONTAINERS_OWN_MIB} MiB"
        yield correct(rule, where, found, f"NCCL fails to make its segments for {ranks} ranks there", remedy)
    elif size is not None and size <= _CONTAINERS_OWN_MIB * _MIB:
        found = f"{_SHARED} holds {size // _MIB:,} MiB"
        yield correct(rule, mount.where, found, f"NCCL fails to make its segments for {ranks} ranks there", remedy)
    elif mount.kind == "emptyDir" and mount.medium != "Memory":
        found, why = f"{_SHARED} is an emptyDir on disk", f"{ranks} ranks would exchange tensors through the disk"
        yield warn(rule, mount.where, found, why, "Write medium: Memory.")
    elif size is not None and most is not None and size > most:
        found = f"{_SHARED} may hold {size // _MIB:,} MiB"
        why = f"it counts against the container's memory limit, {most // _MIB:,} MiB"
        yield warn(rule, mount.where, found, why, "Raise the limit, or lower sizeLimit.")


def gpus(deployed: Deployed) -> Iterator[Finding]:
    pod, ranks = deployed.pod, ranks_per_node(deployed.situation)
    if deployed.situation.arguments.device == "cpu":
        return
    where = pod.at("nvidia.com/gpu")
    if pod.gpus is None:
        why = f"the layout takes {ranks} on each node, and a container sees none it did not ask for"
        yield warn("cluster.gpus", where, "asks for no nvidia.com/gpu", why, f"Write a limit of {ranks}.")
    elif pod.gpus < ranks:
        found, why = f"asks for {pod.gpus} GPUs", f"the layout takes {ranks} on each node"
        yield refuse("cluster.gpus", where, found, why, f"Write {ranks}, or lower the parallelism.")
    elif pod.gpus > ranks:
        found, why = f"asks for {pod.gpus} GPUs", f"the layout takes {ranks} on each node, the others stand idle"
        yield warn("cluster.gpus", where, found, why, f"Write {ranks}, or raise the parallelism.")


def nodes(deployed: Deployed) -> Iterator[Finding]:
    pod, spread = deployed.pod, deployed.situation.arguments.nnodes
    if spread is not None and spread != pod.group_size:
        found = f"{pod.object_kind} {pod.object_name} makes groups of {_count(pod.group_size, 'pod')}"
        why = f"the launch spreads over {_count(spread, 'node')}, and waits for every one of them"
        yield refuse("cluster.nodes", pod.at("size"), found, why, "Let both be the same.")


def budgets(deployed: Deployed) -> Iterator[Finding]:
    """A budget that never lets a pod go blocks every drain of its node."""
    for budget in deployed.pod.budgets:
        under = [pod for pod in deployed.beside or (deployed.pod,) if budget in pod.budgets]
        if under and under[0] != deployed.pod:
            continue  # said of the first
        counts = [pod.replicas * pod.group_size if pod.replicas is not None else None for pod in under]
        pods = sum(count for count in counts if count is not None) if None not in counts else None
        allowed = _allowed(budget, pods)
        if allowed is not None and allowed < 1:
            said = (
                f"minAvailable is {budget.min_available}"
                if budget.min_available is not None
                else f"maxUnavailable is {budget.max_unavailable}"
            )
            found = f"{said} of {_count(pods, 'pod')}" if pods is not None else said
            why = "no pod may ever be taken away, so a node under it is never drained"
            yield refuse("cluster.budget", budget.where, found, why, "Write maxUnavailable: 1, or raise replicas.")


def max_skew(deployed: Deployed) -> Iterator[Finding]:
    """A coordinated rollout moves in steps of a share of each role; a share that is less than one replica moves nothing."""
    pod = deployed.pod
    skew = pod.rollout.max_skew if pod.rollout is not None else None
    if pod.rollout is None or skew is None or not pod.replicas:
        return
    share = _share(skew) if isinstance(skew, str) else None
    step = skew if isinstance(skew, int) else math.floor(pod.replicas * share) if share is not None else None
    if step is not None and step < 1:
        found = f"maxSkew is {skew} of {_count(pod.replicas, 'replica')}" + (f" of role {pod.role}" if pod.role else "")
        why = "that is less than one, so no replica may ever be replaced and the rollout stands still"
        yield refuse("cluster.max-skew", pod.rollout.where, found, why, "Leave it out and recreate, or raise replicas.")


def ranks_per_node(situation: Situation) -> int:
    """GPUs that a launch takes on each of its nodes."""
    asked = situation.arguments
    inside = (asked.tp_size or 1) * (asked.pp_size or 1)
    copies = asked.dp_size or 1 if asked.attention_dp == 1 else 1  # without attention DP, dp counts whole copies
    return max(1, inside * copies // max(1, asked.nnodes or 1))


def _allowed(budget: Budget, pods: int | None) -> int | None:
    """Pods that may be away at once, rounded as Kubernetes does: both shares up. None: that cannot be told."""
    said = budget.max_unavailable if budget.max_unavailable is not None else budget.min_available
    stays = budget.max_unavailable is None
    share = _share(said) if isinstance(said, str) else None
    if isinstance(said, int):
        part: int | None = said
    elif share is None or pods is None:
        part = None
    else:
        part = math.ceil(pods * share)
    if not stays:
        return 0 if share == 0 else part
    if share is not None and share >= 1:
        return 0
    return pods - part if pods is not None and part is not None else None


def _share(percent: str) -> float | None:
    """Of "25%"; None where that is not what stands there."""
    number = percent.strip().removesuffix("%")
    return int(number) / 100 if number.isdecimal() else None


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


POD_RULES = (shared_memory, gpus, nodes, budgets, max_skew)
