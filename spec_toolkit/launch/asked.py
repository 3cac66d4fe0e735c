"""What is to be said of launches that somebody wrote, before one is started: commands, or the pods of a manifest. Reads models, changes
nothing.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import FactsError, Finding, RecipeError, Verdict
from spec_toolkit.facts.model import Model, Origin
from spec_toolkit.facts.read_model import known_model, read_model
from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.deployed import Deployed
from spec_toolkit.planning.finding import note, warn
from spec_toolkit.planning.judge import judge_command
from spec_toolkit.planning.judge_around import judge_pair, judge_pod
from spec_toolkit.planning.naming import in_command
from spec_toolkit.planning.rules.machine import known_gpu
from spec_toolkit.planning.situate import site_of
from spec_toolkit.planning.situation import Pins, Site, Situation
from spec_toolkit.recipe.command import CommandLaunch
from spec_toolkit.recipe.from_command import Defaults, Machines
from spec_toolkit.recipe.manifest import PodLaunch
from spec_toolkit.recipe.schema import Hardware

_GPU_LABEL = "nvidia.com/gpu.product"  # of a node: NVIDIA-H200


class Given(Struct, frozen=True, kw_only=True):
    """What a person says of the machines; None: not said."""

    gpu: str | None = None
    count: int | None = None  # per node
    nodes: int | None = None


class Checked(Struct, frozen=True, kw_only=True):
    name: str  # what was looked at
    machine: str  # "2 nodes of 8 H200"
    findings: tuple[Finding, ...]  # worst first

    @property
    def may_launch(self) -> bool:
        return not any(finding.verdict is Verdict.REFUSE for finding in self.findings)


def check_commands(launches: Sequence[CommandLaunch], given: Given, tables: Tables) -> tuple[Checked, ...]:
    """RecipeError where nobody says which GPU."""
    drawn = [_draw(launch, given, tables, None) for launch in launches]
    names = [
        _name(launch, "the command" if len(launches) == 1 else f"launch {n}") for n, launch in enumerate(launches, 1)
    ]
    pairs = _pairs([situation for situation, _ in drawn])
    return tuple(
        _checked(
            name, situation, (*launch.findings, *read, *map(in_command, judge_command(situation)), *pairs.get(n, ()))
        )
        for n, (name, launch, (situation, read)) in enumerate(zip(names, launches, drawn, strict=True))
    )


def check_pods(pods: Sequence[PodLaunch], given: Given, tables: Tables) -> tuple[Checked, ...]:
    """Each container that launches an engine; a finding about its launch says its line."""
    drawn = [_draw(pod.launch, given, tables, pod) for pod in pods]
    pairs = _pairs([situation for situation, _ in drawn])
    checked: list[Checked] = []
    for number, (pod, (situation, read)) in enumerate(zip(pods, drawn, strict=True)):
        launch = (*pod.launch.findings, *read, *map(in_command, judge_command(situation)), *pairs.get(number, ()))
        around = judge_pod(Deployed(pod=pod, situation=situation, beside=tuple(pods)))
        name = f"{pod.object_kind} {pod.object_name}" + (f", {pod.role}" if pod.role else "")
        checked.append(_checked(name, situation, (*(_in_pod(pod, finding) for finding in launch), *around)))
    return tuple(checked)


def machines_for(launch: CommandLaunch, given: Given, tables: Tables, pod: PodLaunch | None = None) -> Machines:
    """The options, or else what manifest and command say, or else as many GPUs as the layout takes."""
    gpu = given.gpu or _gpu_of(pod, tables)
    if gpu is None:
        found = "no GPU is named"
        raise RecipeError.of("check.no-gpu", "--gpu", found, remedy=f"Add one of {', '.join(tables.gpus)}.")
    asked = launch.arguments
    nodes = given.nodes or (pod.group_size if pod is not None and pod.group_size > 1 else None) or asked.nnodes or 1
    count = given.count or (pod.gpus if pod is not None else None) or launch.gpus
    return Machines(gpu=gpu.lower(), count=count or math.ceil(_ranks(asked) / max(1, nodes)), nodes=nodes)


def defaults_for(launch: CommandLaunch, tables: Tables) -> Defaults:
    """What a recipe of this launch takes where the command says nothing."""
    target, _ = _target(launch.arguments, tables)
    known, engine = tables.model(target.name), tables.engine
    usual = known.engine if known is not None else None
    cap = engine.max_running_requests_of.v.get(target.architecture or "", engine.default_max_running_requests.v)
    return Defaults(
        sglang=engine.version,
        max_running_requests=cap,
        context_tokens=target.max_position_embeddings,
        steps_topk_width=usual.steps_topk_width.v if usual is not None else None,
        refused_flags={flag.flag: flag.why for flag in engine.refused_flags},
    )


def _draw(
    launch: CommandLaunch, given: Given, tables: Tables, pod: PodLaunch | None
) -> tuple[Situation, tuple[Finding, ...]]:
    """The situation that rules read, and what there is to say about how it was found."""
    asked = launch.arguments
    machines = machines_for(launch, given, tables, pod)
    site = site_of(tables, machines.gpu, machines.count, machines.nodes)
    target, said = _target(asked, tables)
    draft = asked.speculative_draft_model_path
    apart = _read(draft, "speculative_draft_model_path", tables) if draft and draft != asked.model_path else None
    of_gpu = [in_command(finding) for finding in known_gpu(Hardware(gpu=machines.gpu), tables)]
    situation = _situation(launch, tables, site=site, target=target, draft=apart[0] if apart else None)
    return situation, (*of_gpu, *said, *(apart[1] if apart else ()))


def _target(asked: Arguments, tables: Tables) -> tuple[Model, tuple[Finding, ...]]:
    if asked.model_path is None:  # that is a finding of the command already
        return Model(name="the model", origin=Origin.UNKNOWN, says="unknown: the command names none"), ()
    return _read(asked.model_path, "model_path", tables)


def _read(name: str, argument: str, tables: Tables) -> tuple[Model, tuple[Finding, ...]]:
    """A folder of this machine, or what the tables know of the name; a folder of another machine is taken for what it is called."""
    try:
        model = read_model(name, tables)
    except FactsError:
        model = known_model(name, tables)
    if model.origin is not Origin.UNKNOWN:
        return model, ()
    where = f"--{argument.replace('_', '-')}"
    last = PurePosixPath(name).name.lower()
    called = [
        repo
        for facts in tables.models.values()
        for repo in facts.checkpoints
        if repo.rpartition("/")[2].lower() == last
    ]
    if len(called) == 1:
        found = f"is taken for {called[0]}, for its name's sake"
        return replace(known_model(called[0], tables), name=called[0]), (note("facts.by-name", where, found),)
    found, why = "is not here, and the tables know nothing of it", "what depends on the model is left unchecked"
    return model, (warn("facts.model-unknown", where, found, why),)


def _gpu_of(pod: PodLaunch | None, tables: Tables) -> str | None:
    """The GPU that a pod's nodes are chosen by."""
    words = set((pod.node_labels.get(_GPU_LABEL, "") if pod is not None else "").upper().split("-"))
    return next((word for word, facts in tables.gpus.items() if facts.name.v.upper() in words), None)


def _ranks(asked: Arguments) -> int:
    copies = 1 if asked.enable_dp_attention or asked.attn_dp_size else asked.dp_size or 1
    return max(1, (asked.tp_size or 1) * (asked.pp_size or 1) * copies)


def _pairs(situations: Sequence[Situation]) -> dict[int, tuple[Finding, ...]]:
    """What a prefill and a decode launch must have in common, by the number of the decode launch."""
    roles = [situation.arguments.disaggregation_mode for situation in situations]
    if "prefill" not in roles or "decode" not in roles:
        return {}
    first, second = roles.index("prefill"), roles.index("decode")
    return {second: tuple(map(in_command, judge_pair(situations[first], situations[second])))}


def _checked(name: str, situation: Situation, findings: Iterable[Finding]) -> Checked:
    order = list(Verdict)
    told = sorted(dict.fromkeys(findings), key=lambda finding: order.index(finding.verdict))
    return Checked(name=name, machine=_machine(situation.site), findings=tuple(told))


def _in_pod(pod: PodLaunch, finding: Finding) -> Finding:
    flag = finding.where
    return (
        finding
        if flag.startswith(pod.where.partition(":")[0])
        else dataclasses.replace(finding, where=f"{pod.at(flag)}: {flag}")
    )


def _name(launch: CommandLaunch, fallback: str) -> str:
    return launch.arguments.model_path or fallback


def _machine(site: Site) -> str:
    each = f"{site.gpus_per_node} {(site.gpu or '').upper()}"
    return f"{site.nodes} nodes of {each}" if site.nodes > 1 else each


def _situation(launch: CommandLaunch, tables: Tables, *, site: Site, target: Model, draft: Model | None) -> Situation:
    return Situation(
        arguments=launch.arguments,
        target=target,
        draft=draft,
        site=site,
        pins=Pins(sglang=launch.sglang or tables.engine.version, image=launch.image),
        engine=tables.engine,
        environment=launch.environment,
    )
