"""Parts of a pod and of what manages it, from the nodes of a manifest: probes, mounts, ending, budgets, rollout. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

from spec_toolkit.recipe.documents import Node
from spec_toolkit.recipe.manifest import Budget, Mount, PreStop, Probe, Rollout
from spec_toolkit.recipe.quantity import kubernetes_bytes

_HANDLERS = {"httpGet": "http", "exec": "exec", "tcpSocket": "tcp", "grpc": "grpc"}
_SLEEP = re.compile(r"\bsleep\s+(\d{1,6})\b")
_STRATEGIES = ("strategy", "updateStrategy", "rolloutStrategy")
_ROLLING = ("rollingUpdate", "rollingUpdateConfiguration")
_LONGEST_SECONDS = 10**9


def probe(container: Node, key: str, where: str) -> Probe | None:
    node = container.get(key)
    if node is None or node.keys is None:
        return None
    handler = next((name for name in _HANDLERS if name in node.keys), "")
    return Probe(
        where=f"{where}:{container.line_of(key)}",
        kind=_HANDLERS.get(handler, "unknown"),
        path=node.text(handler, "path"),
        port=node.text(handler, "port"),
        command=tuple(item.raw for item in node.each(handler, "command")),
        initial_delay_seconds=_seconds(node, "initialDelaySeconds", 0),
        period_seconds=_seconds(node, "periodSeconds", 10),
        timeout_seconds=_seconds(node, "timeoutSeconds", 1),
        failure_threshold=_seconds(node, "failureThreshold", 3),
        grace_seconds=node.number("terminationGracePeriodSeconds"),
    )


def _seconds(node: Node, key: str, default: int) -> int:
    value = node.number(key)
    return default if value is None or not 0 <= value <= _LONGEST_SECONDS else value


def pre_stop(container: Node, where: str) -> PreStop | None:
    node = container.get("lifecycle", "preStop")
    if node is None or node.keys is None:
        return None
    at = f"{where}:{node.line}"
    if "exec" in node.keys:
        command = tuple(item.raw for item in node.each("exec", "command"))
        slept = _SLEEP.search(" ".join(command))
        return PreStop(where=at, kind="exec", seconds=int(slept[1]) if slept else None, command=command)
    if "sleep" in node.keys:
        return PreStop(where=at, kind="sleep", seconds=node.number("sleep", "seconds"))
    return PreStop(where=at, kind="http" if "httpGet" in node.keys else "tcp")


def mounts(container: Node, pod: Node, above: Sequence[Node], where: str) -> Iterator[Mount]:
    volumes = {volume.text("name"): volume for volume in pod.each("volumes")}
    claims = {claim.text("metadata", "name") for node in above for claim in node.each("volumeClaimTemplates")}
    for mounted in container.each("volumeMounts"):
        name, volume = mounted.text("name"), volumes.get(mounted.text("name"))
        kinds = [key for key in (volume.keys or {}) if key != "name"] if volume is not None else []
        limit = volume.text("emptyDir", "sizeLimit") if volume is not None else None
        yield Mount(
            where=f"{where}:{mounted.line}",
            path=mounted.text("mountPath") or "",
            kind=kinds[0]
            if kinds
            else "claimTemplate"
            if name in claims
            else "missing"
            if volume is None
            else "emptyDir",
            medium=volume.text("emptyDir", "medium") if volume is not None else None,
            size_limit_bytes=kubernetes_bytes(limit) if limit else None,
        )


def rollout(above: Sequence[Node], max_skew: int | str | None, where: str) -> Rollout | None:
    """Of the nearest group around the template that says one, or of the skew alone."""
    for group in reversed(above):
        key = next((name for name in _STRATEGIES if group.get(name) is not None), None)
        if key is None:
            continue
        strategy = group.get(key) or group
        rolling = next((inner for name in _ROLLING if (inner := strategy.get(name)) is not None), strategy)
        return Rollout(
            where=f"{where}:{group.line_of(key)}",
            kind=strategy.text("type"),
            max_unavailable=_amount(rolling, "maxUnavailable"),
            max_skew=max_skew,
            partition=rolling.number("partition"),
        )
    return None if max_skew is None else Rollout(where=where, max_skew=max_skew)


def max_skew(node: Node) -> int | str | None:
    """How far coordinated roles may differ; a pod's spread over zones, which has the same key, is something else."""
    inner = [item for key, item in (node.keys or {}).items() if key != "topologySpreadConstraints"]
    found = _amount(node, "maxSkew")
    return next((skew for item in [*inner, *(node.items or ())] if (skew := max_skew(item)) is not None), found)


def _amount(node: Node, key: str) -> int | str | None:
    number = node.number(key)
    return node.text(key) if number is None else number


def budget(node: Node, where: str) -> Budget:
    return Budget(
        where=f"{where}:{node.line}",
        name=node.text("metadata", "name") or "",
        min_available=_amount(node.get("spec") or node, "minAvailable"),
        max_unavailable=_amount(node.get("spec") or node, "maxUnavailable"),
    )


def selects(node: Node, labels: Mapping[str, str]) -> bool:
    """Whether a budget's selector matches a pod; one that is not written matches none, an empty one all."""
    selector = node.get("spec", "selector")
    if selector is None:
        return False
    wanted = selector.pairs("matchLabels")
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_holds(expression, labels) for expression in selector.each("matchExpressions"))


def _holds(expression: Node, labels: Mapping[str, str]) -> bool:
    key = expression.text("key") or ""
    values = {item.raw for item in expression.each("values")}
    match expression.text("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False
