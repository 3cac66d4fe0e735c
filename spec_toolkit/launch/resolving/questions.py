"""From what is asked of the engine to a question that its resolver can be put. Pure."""

from typing import Any

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.config_json import config_json, hf_quant_config
from spec_toolkit.facts.records import GpuFacts, Tables
from spec_toolkit.launch.resolving.records import DescribedGpu


def describe(word: str, facts: GpuFacts | None, *, count: int) -> DescribedGpu:
    """FactsError where the tables do not know what the engine looks at."""
    capability = facts.compute_capability.v if facts else None
    memory = facts.memory_mib.v if facts else None
    if facts is None or capability is None or memory is None:
        raise FactsError.of(
            "resolve.unknown-gpu",
            "hardware.gpu",
            f"nothing is known of {word}'s compute capability and memory"
            if facts is None
            else f"of {word} {'the memory' if capability else 'the compute capability'} is not known",
            why="the engine resolves differently for different GPUs",
            remedy="Add it to spec_toolkit/facts/tables/gpus.yaml, with its source.",
        )
    return DescribedGpu(
        name=f"NVIDIA {facts.name.v}",
        capability=capability,
        memory_mib=memory,
        multiprocessors=facts.multiprocessors.v,
        count=count,
    )


def model_files(repo: str, tables: Tables) -> dict[str, Any]:
    """A repository's configuration, where the engine will look for it. FactsError where the tables have none."""
    config, quantized = config_json(repo, tables), hf_quant_config(repo, tables)
    if config is None:
        raise FactsError.of(
            "resolve.unknown-model",
            "target.model",
            f"the tables hold no config.json of {repo}",
            why="the engine reads it before it decides anything",
            remedy="Name a folder that holds one.",
        )
    return {f"{repo}/config.json": config} | ({f"{repo}/hf_quant_config.json": quantized} if quantized else {})
