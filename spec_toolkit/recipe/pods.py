"""Finds the pods of a manifest that launch an engine, wherever in an object their template stands. Pure.

A template is whatever has a list of containers: of a Deployment, a LeaderWorkerSet's leader and workers, the roles of a RoleBasedGroup, a
custom resource nobody here has heard of. What surrounds it (replicas, rollout, role) is that of the nearest group around it that says so.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spec_toolkit.engine.command_line.say import shown
from spec_toolkit.errors import RecipeError
from spec_toolkit.recipe import pod_parts
from spec_toolkit.recipe.command import without_secret_values
from spec_toolkit.recipe.documents import Node, read_documents
from spec_toolkit.recipe.manifest import PodLaunch
from spec_toolkit.recipe.pod_words import environment_of, launches_of
from spec_toolkit.recipe.quantity import kubernetes_bytes

_ONE_REPLICA = {
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    "LeaderWorkerSet",
    "Pod",
    "Job",
}  # where replicas are not said
_SIZES = (("size",), ("leaderWorkerTemplate", "size"), ("leaderWorkerSet", "size"), ("leaderWorkerPattern", "size"))
_ROLE_OF_KEY = {"leaderTemplate": "leader", "workerTemplate": "worker"}
_MOST_PODS = 200


@dataclass(frozen=True, slots=True)
class _Template:
    """A pod's spec, the groups around it from the object inwards, and the path to it."""

    pod: Node
    above: tuple[Node, ...]
    path: tuple[str, ...]


def read_manifest(content: bytes, where: str = "manifest") -> tuple[PodLaunch, ...]:
    """At least one; RecipeError where nothing in it launches an engine, or it is no YAML."""
    documents = read_documents(content, where)
    objects = [item for node in documents for item in ([*node.each("items")] if node.get("items") else [node])]
    budgets = [node for node in objects if node.text("kind") == "PodDisruptionBudget"]
    templates = [[*_templates(node, (), ())] for node in objects]
    # A policy that coordinates roles may be an object of its own, which names them in ways of its own.
    skews = [pod_parts.max_skew(node) for node, found in zip(objects, templates, strict=True) if not found]
    skew = next((one for one in skews if one is not None), None)
    pods: list[PodLaunch] = []
    for node, found in zip(objects, templates, strict=True):
        for template in found:
            own = pod_parts.max_skew(node)
            for pod in _launches(node, template, budgets, skew if own is None else own, where):
                pods.append(pod)
                if len(pods) > _MOST_PODS:
                    raise RecipeError.of("manifest.size", where, f"launches more than {_MOST_PODS} engines")
    if not pods:
        raise _no_launch(objects, where)
    return tuple(pods)


def _templates(node: Node, above: tuple[Node, ...], path: tuple[str, ...]) -> Iterator[_Template]:
    if any(container.keys is not None for container in _containers(node)):
        yield _Template(node, above, path)
        return
    for key, inner in (node.keys or {}).items():
        yield from _templates(inner, (*above, node), (*path, key))
    for number, inner in enumerate(node.items or ()):
        yield from _templates(inner, (*above, node), (*path, f"[{number}]"))


def _containers(pod: Node) -> Iterator[Node]:
    yield from pod.each("containers")
    main = pod.get("mainContainer")  # as Dynamo's graphs have it, beside what else a pod's spec holds
    if main is not None:
        yield main


def _launches(
    node: Node, template: _Template, budgets: Sequence[Node], skew: int | str | None, where: str
) -> Iterator[PodLaunch]:
    pod, above = template.pod, template.above
    kind, name, namespace = (
        node.text("kind") or "",
        node.text("metadata", "name") or "",
        node.text("metadata", "namespace"),
    )
    labels = _labels(node, template, kind, name)
    replicas = _nearest_number(above, ("replicas",), ("parallelism",))
    group_size = _nearest_number(above, *_SIZES)
    for container in _containers(pod):
        variables = environment_of(container, f"{where}:{container.line}")
        for launch in launches_of(container, variables, where):
            yield PodLaunch(
                where=f"{where}:{container.line}",
                object_kind=kind,
                object_name=name,
                template=_path(template.path),
                role=_role(template),
                container=container.text("name") or "",
                launch=launch,
                image=launch.image,
                replicas=1 if replicas is None and kind in _ONE_REPLICA else replicas,
                group_size=group_size if group_size and group_size > 0 else 1,
                labels=labels,
                environment=without_secret_values(variables.values),
                startup=pod_parts.probe(container, "startupProbe", where),
                liveness=pod_parts.probe(container, "livenessProbe", where),
                readiness=pod_parts.probe(container, "readinessProbe", where),
                mounts=tuple(pod_parts.mounts(container, pod, above, where)),
                grace_seconds=_or(pod.number("terminationGracePeriodSeconds"), 30),
                pre_stop=pod_parts.pre_stop(container, where),
                gpus=_gpus(container),
                memory_limit_bytes=_memory_limit(container),
                host_ipc=pod.truth("hostIPC"),
                node_labels=pod.pairs("nodeSelector"),
                rollout=pod_parts.rollout(above, skew, where),
                budgets=tuple(
                    pod_parts.budget(one, where)
                    for one in budgets
                    if pod_parts.selects(one, labels) and _same_namespace(one, namespace)
                ),
                lines=_lines(node, template, container, where),
            )


def _labels(node: Node, template: _Template, kind: str, name: str) -> dict[str, str]:
    around = template.above[-1] if template.above else node
    labels = around.pairs("metadata", "labels")
    # Its controller adds these, and budgets select by them.
    return labels | ({"leaderworkerset.sigs.k8s.io/name": name} if kind == "LeaderWorkerSet" else {})


def _nearest_number(above: Sequence[Node], *paths: tuple[str, ...]) -> int | None:
    found = (group.number(*path) for group in reversed(above) for path in paths)
    return next((number for number in found if number is not None), None)


def _role(template: _Template) -> str | None:
    for key, group in zip(reversed(template.path), reversed((*template.above, template.pod)), strict=False):
        if key in _ROLE_OF_KEY:
            return _ROLE_OF_KEY[key]
        if key.startswith("[") and (name := group.text("name")):
            return name
    return None


def _path(path: Sequence[str]) -> str:
    joined = "".join(key if key.startswith("[") else f".{key}" for key in path).removeprefix(".")
    return joined.removesuffix(".spec") or "spec"


def _gpus(container: Node) -> int | None:
    for kind in ("limits", "requests"):
        text = container.text("resources", kind, "nvidia.com/gpu")
        if text is not None and re.fullmatch(r"\d{1,4}", text):
            return int(text)
    return None


def _memory_limit(container: Node) -> int | None:
    text = container.text("resources", "limits", "memory")
    return kubernetes_bytes(text) if text is not None else None


def _same_namespace(budget: Node, namespace: str | None) -> bool:
    own = budget.text("metadata", "namespace")
    return own is None or namespace is None or own == namespace


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _lines(node: Node, template: _Template, container: Node, where: str) -> dict[str, str]:
    """Of what a finding may be about: the container's and the pod's keys, its variables, its flags, and the replicas."""
    lines = {key: line for group in (template.pod, container) for key, line in group.lines.items()}
    lines |= {f"env.{one.text('name') or ''}": one.line for one in container.each("env")}
    words = [*container.each("command"), *container.each("args")]
    lines |= {
        word.raw.partition("=")[0]: word.line for word in words if word.raw.startswith("--") and "\n" not in word.raw
    }
    around = next((group for group in reversed(template.above) if "replicas" in group.lines), node)
    lines |= {"replicas": around.line_of("replicas")} if "replicas" in around.lines else {}
    return {key: f"{where}:{line}" for key, line in lines.items()}


def _no_launch(objects: Sequence[Node], where: str) -> RecipeError:
    kinds = ", ".join(sorted({kind for node in objects if (kind := node.text("kind"))})[:6])
    found = (
        f"launches no engine (it holds {shown(kinds)})"
        if kinds
        else "holds no Kubernetes object that launches an engine"
    )
    why = "no container's command is 'python3 -m sglang.launch_server' or 'sglang serve'"
    return RecipeError.of("manifest.no-launch", where, found, why=why)
