"""A recipe or a command put to the engine's resolver: what it is asked, and what comes of it. Reads the world, changes nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.engine.flags import LAUNCH_MODULE, Flag
from spec_toolkit.engine.patches import Patch
from spec_toolkit.engine.patches import resolve as hand_over
from spec_toolkit.errors import Finding
from spec_toolkit.facts.checkpoint import is_folder, model_folder
from spec_toolkit.facts.json_file import read_object
from spec_toolkit.facts.model import Origin
from spec_toolkit.facts.records import Tables
from spec_toolkit.handover import Role
from spec_toolkit.launch.decided import cpu_values, decided, findings
from spec_toolkit.launch.foreseen import misjudged
from spec_toolkit.launch.resolve import ENGINES_OWN, Waiting, resolve_many
from spec_toolkit.launch.resolving.questions import describe, model_files
from spec_toolkit.launch.resolving.records import Answer, DescribedGpu, Outcome, Question, Resolution
from spec_toolkit.launch.spec import Place, steps_config, to_launch
from spec_toolkit.planning.asked import autoregressive
from spec_toolkit.planning.naming import in_command, in_recipe
from spec_toolkit.planning.plan import Plan
from spec_toolkit.planning.situation import Site
from spec_toolkit.recipe.command import CommandLaunch
from spec_toolkit.shipped import rehearsal

_STEPS = "steps.json"
_RENDEZVOUS = ("--dist-init-addr", "127.0.0.1:20000")  # of several nodes: a place of the machine, which changes nothing
# Destinations whose value may be a file or a folder; any other word that happens to be one's name stays as it is.
_NAMES_A_PLACE = frozenset(
    {"model_path", "tokenizer_path", "chat_template", "completion_template"}
    | {"speculative_draft_model_path", "speculative_adaptive_config", "speculative_token_map"}
)
# Where our hooks can change what is resolved; importing what the others hook would cost seconds and change nothing.
_ADAPTIVE = "sglang.srt.speculative.adaptive_spec_params."
_RESOLVER = ("sglang.srt.arg_groups.", _ADAPTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """What is to be asked about one recipe or command: first as it is, then perhaps without speculation."""

    name: str
    machine: str
    questions: tuple[Question, ...]
    asked: tuple[Arguments, ...]  # by question, what it asks
    findings: tuple[Finding, ...] = ()  # that reading it made
    named: Callable[[Finding], Finding]  # says a place as whoever brought it knows it
    plan: Plan | None = None  # a recipe's


def about_plan(plan: Plan, tables: Tables, patches: Sequence[Patch]) -> Inquiry:
    hardware = plan.recipe.hardware
    known = tables.gpus.get(hardware.gpu)
    gpu = None if plan.recipe.is_rehearsal else describe(hardware.gpu, known, count=hardware.count)
    asked = (plan.asked, autoregressive(plan.asked)) if plan.asked.speculates else (plan.asked,)
    return Inquiry(
        name=plan.name,
        machine=_machine(hardware.gpu, hardware.count, hardware.nodes),
        questions=tuple(_question(plan, tables, patches, gpu, speculate=each.speculates) for each in asked),
        asked=asked,
        named=lambda finding: in_recipe(finding, plan.recipe.engine.extra_args),
        plan=plan,
    )


def about_command(launch: CommandLaunch, tables: Tables, site: Site) -> Inquiry:
    """Relative places are the current folder's, as they would be for the command."""
    asked = launch.arguments
    models = _models([asked.model_path, asked.speculative_draft_model_path], tables)
    words: list[str] = []
    here: list[str] = []
    for flag in launch.written:
        if flag.unknown:
            continue
        places = [_place(value) for value in flag.values] if flag.destination in _NAMES_A_PLACE else []
        here += [place for place in places if place]
        words += (
            [flag.flag, *((place or value) for place, value in zip(places, flag.values, strict=True))]
            if places
            else [flag.flag, *flag.values]
        )
    question = Question(
        argv=tuple(words),
        gpu=describe(site.gpu or "", site.facts, count=site.gpus_per_node),
        files=models.files,
        environment={name: value for name, value in launch.environment.items() if name.startswith(ENGINES_OWN)},
        places=tuple(dict.fromkeys([*models.folders, *here])),
    )
    return Inquiry(
        name=asked.model_path or "the command",
        machine=_machine(site.gpu or "", site.gpus_per_node, site.nodes),
        questions=(question,),
        asked=(asked,),
        findings=launch.findings,
        named=in_command,
    )


def put(inquiry: Inquiry, *, waiting: Waiting = lambda: None) -> Resolution:
    return conclude(inquiry, resolve_many(inquiry.questions, waiting=waiting))


def conclude(inquiry: Inquiry, answers: Sequence[Answer]) -> Resolution:
    """Pure. `answers`: one a question, in order."""
    first, *others = answers
    found = [f for each in zip(inquiry.questions, inquiry.asked, answers, strict=True) for f in findings(*each)]
    made, cpus = decided(first), cpu_values(inquiry.questions[0], first)
    if inquiry.plan is not None and inquiry.questions[0].gpu is not None and made is not None and cpus is None:
        found += misjudged(inquiry.plan, made)
    return Resolution(
        name=inquiry.name,
        machine=inquiry.machine,
        engine=first.engine,
        answered=first.outcome is not Outcome.UNANSWERED and cpus is None,
        resolved=first.outcome is Outcome.RESOLVED,
        decided=made,
        autoregressive=decided(others[0]) if others else None,
        said=first.said,
        findings=(*inquiry.findings, *dict.fromkeys(inquiry.named(finding) for finding in found)),
        seconds=first.seconds,
        of_tables=not any(question.places for question in inquiry.questions) and _planned_by_tables(inquiry.plan),
    )


def _planned_by_tables(plan: Plan | None) -> bool:
    if plan is None:
        return True
    read = [plan.situation.target, *([plan.situation.draft] if plan.situation.draft else [])]
    return all(model.origin is Origin.TABLE for model in read)


def _question(
    plan: Plan, tables: Tables, patches: Sequence[Patch], gpu: DescribedGpu | None, *, speculate: bool
) -> Question:
    recipe = plan.recipe
    draft = None if recipe.draft.model == "same" or not speculate else recipe.draft.model
    place = Place(
        python="",
        rehearsal=str(rehearsal()),
        target=_local(recipe.target.model),
        target_commit=recipe.target.revision,
        draft=_local(draft) if draft else None,
        draft_commit=recipe.draft.revision,
        engine_config="",
        steps_config=_STEPS,
        patch_list="",
        port=30000,
        cores=1,
    )
    command = list(to_launch(plan, place, speculate=speculate).command)
    at = command.index(Flag.CONFIG.value)  # it carries the admin key and nothing else
    del command[at : at + 2]
    argv = command[command.index(LAUNCH_MODULE) + 1 :] if LAUNCH_MODULE in command else command[2:]
    models = _models([recipe.target.model, draft], tables)
    steps = {_STEPS: steps_config(plan.steps)} if plan.steps else {}
    return Question(
        argv=(*argv, *(_RENDEZVOUS if recipe.hardware.nodes > 1 else ())),
        gpu=gpu,
        hooks=tuple(_hooks(patches, attention_dp=plan.asked.attention_dp)),
        files={**models.files, **steps},
        environment=dict(plan.situation.environment),
        places=models.folders,
    )


def _hooks(patches: Sequence[Patch], *, attention_dp: int) -> Iterator[Mapping[str, str]]:
    for hook in hand_over(patches):
        if Role.LAUNCHER not in hook.roles or not hook.target.startswith(_RESOLVER):
            continue
        if hook.target.startswith(_ADAPTIVE) and attention_dp == 1:
            continue  # it says otherwise than the engine under attention DP only
        yield {"target": hook.target, "file": hook.file, "function": hook.function, "type": hook.type.value}


class _Models(NamedTuple):
    files: dict[str, Any]  # configuration of those in a repository
    folders: tuple[str, ...]  # of the others


def _models(models: Sequence[str | None], tables: Tables) -> _Models:
    """FactsError where the configuration of one is not known."""
    named = [model for model in models if model]
    local = [model for model in named if is_folder(model) or _is_directory(model)]
    for folder in local:
        read_object(Path(_local(folder)) / "config.json")
    files: dict[str, Any] = {}
    for repo in named:
        files |= {} if repo in local else model_files(repo, tables)
    return _Models(files, tuple(map(_local, local)))


def _place(value: str) -> str | None:
    """Where a value lies, if it names a file or folder of this machine."""
    try:
        path = Path(value).expanduser()
        return str(path.resolve()) if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # longer than a name can be, a user nobody knows, a null byte
        return None


def _local(model: str) -> str:
    folder = model_folder(model) or (Path(model) if _is_directory(model) else None)
    return str(folder.resolve()) if folder else model


def _is_directory(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # longer than a name can be
        return False


def _machine(gpu: str, count: int, nodes: int) -> str:
    each = f"{count} {gpu.upper()}"
    return f"{nodes} nodes of {each}" if nodes > 1 else each
