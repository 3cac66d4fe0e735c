"""Reads tests/cases/*.yaml and asks every rule about each situation in them."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec.structs import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.facts.from_config import model_from_config
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.model import Model, Origin, Tensor, Weights
from spec_toolkit.facts.read_model import known_model
from spec_toolkit.planning import rules
from spec_toolkit.planning.deployed import Deployed, Estimate
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.planning.situation import Caps, Measured, Pins, Site, Situation, Workload
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.recipe.manifest import PodLaunch
from spec_toolkit.recipe.pods import read_manifest
from spec_toolkit.recipe.schema import Recipe

FOLDER = Path(__file__).resolve().parents[1] / "cases"
# Every id of the open set of field cases, and no other.
IDS = tuple(
    f"C{number:03}"
    for number in (
        *(1, 3, 5, 6, 7, 8, 10, 12, 13, 14, 15, 17, 18, 19, 21, 22, 24, 27, 28, 29, 31, 33, 34, 35, 36, 37, 40, 41),
        *(43, 45, 46, 49, 50, 51, 52, 53, 55, 57, 58, 60, 61, 62, 64, 65, 67, 69, 70, 72, 74, 75, 77, 78, 79, 81, 82),
        *(83, 84, 86, 88, 91, 92, 93, 94, 96, 97, 99, 100, 101, 103, 104, 105, 107, 108, 110, 111, 113, 114, 115, 117),
        *(118, 120, 122, 124, 125, 126, 128, 129, 131),
    )
)
_OWN_MODEL_KEYS = frozenset(
    {
        *("model", "tensors", "unindexed_files", "tokenizer", "commit"),
        *("weights", "weight_bytes", "draft_weight_bytes", "draft_weights"),
    }
)
_BESIDE = frozenset({"name", "expect", "roles", "pod", "manifest", "recipe", "estimate"})
_PARTS = frozenset(
    {
        *("server_args", "target", "draft", "gpu", "count", "nodes"),
        *("pins", "workload", "env", "require_graphs", "caps", "measured"),
    }
)


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rule: str
    verdict: Verdict
    says: tuple[str | int | float, ...] = ()  # must stand in the sentence

    def is_met_by(self, finding: Finding) -> bool:
        sentence = finding.sentence()
        same = (finding.rule, finding.verdict) == (self.rule, self.verdict)
        return same and all(str(word) in sentence for word in self.says)


class Action(Enum):
    """What the set of cases asks the toolkit to do."""

    REJECT = "reject"
    AUTO_CORRECT = "auto-correct"
    WARN = "warn"
    DETECT = "detect"
    PATCH = "patch"
    DOCUMENT = "document"


# The least that answers; the others are answered while an engine serves, or in words.
_LEAST = {Action.REJECT: Verdict.REFUSE, Action.AUTO_CORRECT: Verdict.CORRECT, Action.WARN: Verdict.WARN}


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    source: str
    title: str
    action: Action
    room: str
    situations: tuple[dict[str, Any], ...] = ()
    later: Any = None
    note: str = ""
    milder: str = ""  # why the answer is milder than `action`; empty: it is not

    @property
    def is_milder(self) -> bool:
        """Whether the worst that its situations expect falls short of what the set asks for."""
        least = _LEAST.get(self.action)
        if least is None or self.room != "planning":
            return False
        worst_first = list(Verdict)
        said = (wanted.verdict for situation in self.situations for wanted in expected(situation))
        return all(worst_first.index(verdict) > worst_first.index(least) for verdict in said)

    @property
    def rules(self) -> frozenset[str]:
        """That this case is about."""
        return frozenset(wanted.rule for situation in self.situations for wanted in expected(situation))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    case: Case
    name: str
    expected: tuple[Expected, ...]
    findings: tuple[Finding, ...]

    @property
    def is_near_miss(self) -> bool:
        return not self.expected

    def faults(self) -> Iterator[str]:
        """What is wrong with the findings, a sentence each."""
        for wanted in self.expected:
            if not any(wanted.is_met_by(finding) for finding in self.findings):
                says = f" saying {list(wanted.says)}" if wanted.says else ""
                yield f"no {wanted.verdict.value} of {wanted.rule}{says}"
        if not any(wanted.verdict is Verdict.REFUSE for wanted in self.expected):
            yield from (f"refused: {f.sentence()}" for f in self.findings if f.verdict is Verdict.REFUSE)
        if self.is_near_miss:
            yield from (f"not silent: {f.sentence()}" for f in self.findings if f.rule in self.case.rules)


@cache
def load_cases() -> tuple[Case, ...]:
    return tuple(load_case(path) for path in sorted(FOLDER.glob("C*.yaml")))


def load_case(path: Path) -> Case:
    return msgspec.convert(yaml.load(path.read_text("utf-8"), yaml.CSafeLoader), Case)


def expected(situation: Mapping[str, Any]) -> tuple[Expected, ...]:
    return msgspec.convert(situation["expect"], tuple[Expected, ...])


@cache
def offered(name: str) -> tuple[Callable[..., Iterable[Finding]], ...]:
    """What the modules of planning/rules offer under this name: RULES, PAIR_RULES, POD_RULES."""
    modules = [
        importlib.import_module(f"{rules.__name__}.{found.name}") for found in pkgutil.iter_modules(rules.__path__)
    ]
    return tuple(rule for module in modules for rule in getattr(module, name, ()))


def examine(case: Case, situation: Mapping[str, Any]) -> Outcome:
    unknown = situation.keys() - _BESIDE - _PARTS
    assert not unknown, f"{case.id}: no part {sorted(unknown)}"
    if "recipe" in situation:
        findings = of_recipe(situation["recipe"])
    elif "pod" in situation or "manifest" in situation:
        findings = of_pods(situation)
    elif "roles" in situation:
        findings = of_pair(situation)
    else:
        findings = of_launch(build(situation))
    return Outcome(case=case, name=situation["name"], expected=expected(situation), findings=tuple(findings))


def of_launch(situation: Situation) -> Iterator[Finding]:
    for rule in offered("RULES"):
        yield from rule(situation)


def of_pair(data: Mapping[str, Any]) -> Iterator[Finding]:
    both = {key: value for key, value in data.items() if key in _PARTS}
    prefill, decode = (build(both | data["roles"][role]) for role in ("prefill", "decode"))
    yield from of_launch(prefill)
    yield from of_launch(decode)
    for rule in offered("PAIR_RULES"):
        yield from rule(prefill, decode)


def build_deployed(data: Mapping[str, Any]) -> Deployed:
    situation = build(data)
    launch = {"arguments": msgspec.to_builtins(situation.arguments)}
    names = {"where": "pod.yaml:1", "object_kind": "Deployment", "object_name": "engine"}
    names |= {"template": "spec.template", "container": "engine"}
    pod = msgspec.convert(names | {"launch": launch} | data["pod"], PodLaunch)
    return Deployed(pod=pod, situation=situation, estimate=Estimate(**data.get("estimate", {})))


def of_pods(data: Mapping[str, Any]) -> Iterator[Finding]:
    for deployed in [build_deployed(data)] if "pod" in data else read_deployed(data):
        yield from of_launch(deployed.situation)
        for rule in offered("POD_RULES"):
            yield from rule(deployed)


def read_deployed(data: Mapping[str, Any]) -> Iterator[Deployed]:
    """Of a manifest as a person would apply it, what launches an engine."""
    pods = read_manifest(data["manifest"].encode(), "manifest.yaml")
    for pod in pods:
        launched = replace(build(data), arguments=pod.launch.arguments, environment=pod.environment)
        yield Deployed(pod=pod, situation=launched, estimate=Estimate(**data.get("estimate", {})), beside=pods)


def of_recipe(changes: Mapping[str, Any]) -> Iterator[Finding]:
    loaded = load_recipe(find_recipe(changes["of"]))
    data = msgspec.json.decode(msgspec.json.encode(loaded.recipe))
    for path, value in changes.items():
        if path == "of":
            continue
        *groups, key = path.split(".")
        group = data
        for name in groups:
            group = group[name]
        group[key] = value
    yield from make_plan(dataclasses.replace(loaded, recipe=msgspec.convert(data, Recipe)), load_tables()).findings


def build(data: Mapping[str, Any]) -> Situation:
    tables = load_tables()
    gpu = data.get("gpu")
    return Situation(
        arguments=msgspec.convert(data.get("server_args", {}), Arguments, strict=True),
        target=build_model(data.get("target", {}), "target"),
        draft=build_model(data["draft"], "draft") if "draft" in data else None,
        site=Site(gpu=gpu, facts=tables.gpus.get(gpu), gpus_per_node=data.get("count", 1), nodes=data.get("nodes", 1)),
        pins=msgspec.convert({"sglang": tables.engine.version} | data.get("pins", {}), Pins),
        engine=tables.engine,
        workload=Workload(**data.get("workload", {})),
        environment={str(name): str(value) for name, value in data.get("env", {}).items()},
        require_graphs=data.get("require_graphs", False),
        caps=Caps(**data.get("caps", {})),
        measured=Measured(**data.get("measured", {})),
    )


def build_model(data: Mapping[str, Any], name: str) -> Model:
    """Of a fragment of a config.json and of our own keys, or of a repository of the tables; what is not written is not known."""
    name, config = data.get("model", name), {key: value for key, value in data.items() if key not in _OWN_MODEL_KEYS}
    tensors = msgspec.convert(data["tensors"], dict[str, _Tensor]) if "tensors" in data else None
    own = {key: data[key] for key in ("tokenizer", "commit", "weight_bytes", "draft_weight_bytes") if key in data}
    own |= {key: Weights(data[key]) for key in ("weights", "draft_weights") if key in data}
    if not config and "model" in data:
        return replace(known_model(name, load_tables()), **own)
    read = model_from_config(
        config,
        name=name,
        origin=Origin.FOLDER,
        says="a field case",
        whole=False,
        tensors={name: Tensor(**msgspec.structs.asdict(tensor)) for name, tensor in tensors.items()}
        if tensors
        else None,
        unindexed_files=tuple(data.get("unindexed_files", ())),
    )
    return replace(read, **own)


class _Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bytes: int | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
