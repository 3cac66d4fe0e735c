"""Who says what the tables know of a repository, a GPU or the engine: each fact with its level and source, and one line for people. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from spec_toolkit.facts.records import EngineDefaults, EngineFacts, Fact, GpuFacts, Level, ModelFacts, Tables

_ORDER = tuple(Level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    what: str  # "config.hidden_size", "checkpoint.bytes"
    value: Any  # None: unknown, or known to be absent; the level tells which
    level: Level
    source: str  # id in the table
    where: str  # the source itself, in words
    note: str


def provenance(repo: str, tables: Tables) -> tuple[Provenance, ...]:
    """Empty where the tables do not know the repository."""
    model = tables.model(repo)
    if model is None:
        return ()
    return _provenances(_facts_of(repo, model), tables)


def provenance_of(facts: GpuFacts | EngineFacts, tables: Tables) -> tuple[Provenance, ...]:
    return _provenances(_facts_in(facts), tables)


def in_one_line(repo: str, tables: Tables) -> str:
    """As in `official-config (nvidia-config-copies), third-party (deepseek-sizes)`: best level first, last what is unknown."""
    model = tables.model(repo)
    return _line(list(_facts_of(repo, model))) if model is not None else ""


def line_of(facts: GpuFacts | EngineFacts) -> str:
    return _line(list(_facts_in(facts)))


def _line(facts: list[tuple[str, Fact[Any]]]) -> str:
    known = sorted({(_ORDER.index(fact.e), fact.s) for _, fact in facts if fact.e is not Level.UNKNOWN})
    levels = dict.fromkeys(order for order, _ in known)
    parts = [f"{_ORDER[order].value} ({', '.join(s for o, s in known if o == order)})" for order in levels]
    unknown = [what.rpartition(".")[2] for what, fact in facts if fact.e is Level.UNKNOWN]
    return ", ".join([*parts, *([f"unknown: {', '.join(unknown)}"] if unknown else [])])


def _provenances(facts: Iterable[tuple[str, Fact[Any]]], tables: Tables) -> tuple[Provenance, ...]:
    return tuple(
        Provenance(what=what, value=fact.v, level=fact.e, source=fact.s, where=tables.sources[fact.s], note=fact.note)
        for what, fact in facts
    )


def _facts_in(facts: GpuFacts | EngineFacts | EngineDefaults) -> Iterator[tuple[str, Fact[Any]]]:
    fields = ((name, getattr(facts, name)) for name in facts.__struct_fields__)
    return ((name, fact) for name, fact in fields if isinstance(fact, Fact))


def _facts_of(repo: str, model: ModelFacts) -> Iterator[tuple[str, Fact[Any]]]:
    checkpoint = model.checkpoints[repo]
    yield "architecture", model.architecture
    yield "model_type", checkpoint.config.get("model_type", model.model_type)
    for name, fact in model.config.items():
        if name not in checkpoint.config:
            yield f"config.{name}", fact
    yield from ((f"config.{name}", fact) for name, fact in checkpoint.config.items() if name != "model_type")
    yield from ((f"wrapper.{name}", fact) for name, fact in model.wrapper.items())
    if model.engine is not None:
        yield from ((f"engine.{name}", fact) for name, fact in _facts_in(model.engine))
    yield from _named(
        ("checkpoint.weights", checkpoint.weights),
        ("checkpoint.bytes", checkpoint.bytes),
        ("checkpoint.draft", checkpoint.draft),
        ("checkpoint.draft_weights", checkpoint.draft_weights),
        ("checkpoint.draft_bytes", checkpoint.draft_bytes),
        ("checkpoint.quantization_config", checkpoint.quantization_config),
        ("checkpoint.hf_quant_config", checkpoint.hf_quant_config),
    )


def _named(*facts: tuple[str, Fact[Any] | None]) -> Iterable[tuple[str, Fact[Any]]]:
    return ((what, fact) for what, fact in facts if fact is not None)
