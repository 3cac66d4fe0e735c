"""What is to be said of launches that somebody wrote, before one is started: commands, or the pods of a manifest. Reads models, changes
nothing.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import FactsError, Finding, RecipeError, Verdict, note, warn
from spec_toolkit.facts.model import Model, Origin
from spec_toolkit.facts.read_model import known_model, read_model
from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.deployed import Deployed
from spec_toolkit.planning.judge import judge_command
from spec_toolkit.planning.judge_around import judge_group, judge_pair, judge_pod
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
        _checked(name, situation, (*launch.findings, *read, *_judged(launch, situation), *pairs.get(n, ())))
        for n, (name, launch, (situation, read)) in enumerate(zip(names, launches, drawn, strict=True))
    )


def check_pods(pods: Sequence[PodLaunch], given: Given, tables: Tables) -> tuple[Checked, ...]:
    """Each container that launches an engine; a finding about its launch says its line."""
    drawn = [_draw(pod.launch, given, tables, pod) for pod in pods]
    pairs = _pairs([situation for situation, _ in drawn]) | _groups(pods, [situation for situation, _ in drawn])
    checked: list[Checked] = []
    for number, (pod, (situation, read)) in enumerate(zip(pods, drawn, strict=True)):
        # How many GPUs a pod asks for is said once, where it stands.
        judged = (finding for finding in _judged(pod.launch, situation) if finding.rule != "layout.count")
        launch = (*pod.launch.findings, *read, *judged, *pairs.get(number, ()))
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
    gpu = _gpu_called(gpu, tables) or gpu.lower()
    if gpu not in tables.gpus and gpu != "cpu":
        close = get_close_matches(gpu, tables.gpus, n=1, cutoff=0.8)
        remedy = f"Did you mean '{close[0]}'?" if close else f"Name one of {', '.join(tables.gpus)}."
        raise RecipeError.of("check.unknown-gpu", "--gpu", f"is '{gpu}', of which nothing is known", remedy=remedy)
    asked = launch.arguments
    nodes = given.nodes or (pod.group_size if pod is not None and pod.group_size > 1 else None) or asked.nnodes or 1
    count = given.count or (pod.gpus if pod is not None else None) or launch.gpus
    return Machines(gpu=gpu, count=count or math.ceil(_ranks(asked) / max(1, nodes)), nodes=nodes)


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
    machines = machines_for(launch, given, tables, pod)
    launch = _in_its_group(launch, pod)
    asked = launch.arguments
    site = site_of(tables, machines.gpu, machines.count, machines.nodes)
    target, said = _target(asked, tables)
    draft = asked.speculative_draft_model_path
    apart = _read(draft, "speculative_draft_model_path", tables) if draft and draft != asked.model_path else None
    of_gpu = [in_command(finding) for finding in known_gpu(Hardware(gpu=machines.gpu), tables)]
    situation = _situation(launch, tables, site=site, target=target, draft=apart[0] if apart else None)
    return situation, (*of_gpu, *said, *(apart[1] if apart else ()))


def _in_its_group(launch: CommandLaunch, pod: PodLaunch | None) -> CommandLaunch:
    """A launch that leaves its number of nodes to the group it will run in spreads over just that group."""
    left_to_it = any(flag.destination == "nnodes" and flag.unknown for flag in launch.written)
    if pod is None or pod.group_size < 2 or not left_to_it:
        return launch
    return dataclasses.replace(launch, arguments=replace(launch.arguments, nnodes=pod.group_size))


def _judged(launch: CommandLaunch, situation: Situation) -> Iterator[Finding]:
    """Where a value could not be read, sizes that would follow from it are not reckoned with the engine's default."""
    unread = any(finding.verdict is Verdict.REFUSE for finding in launch.findings)
    for finding in judge_command(situation):
        if not (unread and finding.rule.startswith(("capacity.", "layout."))):
            yield in_command(finding)


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
    return _gpu_called(pod.node_labels.get(_GPU_LABEL, ""), tables) if pod is not None else None


def _gpu_called(name: str, tables: Tables) -> str | None:
    """A recipe's word for a GPU, of that word or of a product's name: NVIDIA-H200."""
    if name.lower() in tables.gpus:
        return name.lower()
    words = set(name.upper().replace(" ", "-").split("-"))
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


def _groups(pods: Sequence[PodLaunch], situations: Sequence[Situation]) -> dict[int, tuple[Finding, ...]]:
    """Where the workers of a group launch otherwise than its leader, by the worker's number."""
    found: dict[int, tuple[Finding, ...]] = {}
    for number, pod in enumerate(pods):
        for other, leader in enumerate(pods):
            same = (pod.object_kind, pod.object_name) == (leader.object_kind, leader.object_name)
            if same and pod.role == "worker" and leader.role == "leader":
                found[number] = tuple(map(in_command, judge_group(situations[other], situations[number])))
    return found


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
