"""Rules about ranks and the GPUs under them. Pure.

`layout` compares a recipe with itself and is part of every plan. `machine_findings` compares it with a machine and is asked by
whoever is about to start an engine there: a recipe is not wrong because this machine is.
"""

import re
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches

from spec_toolkit.errors import Finding, note, refuse, warn
from spec_toolkit.facts.checkpoint import is_folder
from spec_toolkit.facts.records import Machine, Tables
from spec_toolkit.recipe.schema import Hardware, Recipe


def known_gpu(hardware: Hardware, tables: Tables) -> Iterator[Finding]:
    facts = tables.gpus.get(hardware.gpu)
    if facts is not None and not facts.planned_for:
        why = "what depends on the GPU is left unchecked"
        yield warn("facts.gpu-unplanned", "hardware.gpu", f"is {facts.name.v}, which is not planned for", why)
    if hardware.gpu == "cpu" or facts is not None:
        return
    close = get_close_matches(hardware.gpu, tables.gpus, n=1, cutoff=0.8)  # a100 is no slip for h100
    remedy = f"Did you mean '{close[0]}'?" if close else f"Known are {', '.join(tables.gpus)} and cpu."
    yield warn(
        "facts.gpu-unknown", "hardware.gpu", f"is '{hardware.gpu}', of which the tables know nothing", remedy=remedy
    )


def known_model(recipe: Recipe, tables: Tables) -> Iterator[Finding]:
    if not is_folder(recipe.target.model) and tables.model(recipe.target.model) is None:
        why = "what depends on the model is left unchecked"
        yield note(
            "facts.model-unknown", "target.model", f"is {recipe.target.model}, of which the tables know nothing", why
        )


def rehearsal_model(recipe: Recipe) -> Iterator[Finding]:
    if recipe.is_rehearsal and not is_folder(recipe.target.model):
        why = "on a CPU the engine runs reference kernels, which answer for tiny models only"
        yield refuse(
            "machine.rehearsal-model",
            "target.model",
            f"is {recipe.target.model}, with gpu: cpu",
            why,
            "Write rehearsal:<name> or a folder.",
        )


def machine_findings(recipe: Recipe, machine: Machine, tables: Tables) -> tuple[Finding, ...]:
    """Why this recipe cannot run on this machine; empty where it can."""
    rule = _rehearsal_machine(machine) if recipe.is_rehearsal else _gpu_machine(recipe, machine, tables)
    return tuple(rule)


def _rehearsal_machine(machine: Machine) -> Iterator[Finding]:
    if machine.gpus:
        why = "a rehearsal replaces kernels, and beside a usable GPU nobody could tell which ran"
        remedy = "Set CUDA_VISIBLE_DEVICES to nothing (CUDA_VISIBLE_DEVICES= spec-toolkit ...)."
        yield refuse("machine.cuda-visible", "machine", f"shows {describe(machine)}", why, remedy)


def _gpu_machine(recipe: Recipe, machine: Machine, tables: Tables) -> Iterator[Finding]:
    hardware = recipe.hardware
    remedy = "Deploy it on such a machine; `--dry-run` shows what would be started there."
    if hardware.nodes > 1:
        found = f"the recipe spreads over {hardware.nodes} nodes"
        yield refuse(
            "machine.nodes",
            "machine",
            found,
            "`deploy` starts engines on this machine only",
            "Use the cluster's objects.",
        )
        return
    needed = f"{hardware.count} × {hardware.gpu.upper()}"  # noqa: RUF001 - it says "times"
    facts = tables.gpus.get(hardware.gpu)
    word = facts.name.v if facts else hardware.gpu
    fitting = sum(_is_named(gpu.name, word) for gpu in machine.gpus)
    if fitting < hardware.count:
        yield refuse("machine.gpu-missing", "machine", f"has {describe(machine)}", f"the recipe needs {needed}", remedy)


def describe(machine: Machine) -> str:
    """The machine in a phrase: "no NVIDIA GPU (no nvidia-smi on the path), 2 cores, 23 GiB of memory"."""
    counts = Counter(gpu.name for gpu in machine.gpus)
    gpus = ", ".join(f"{count} × {name}" for name, count in counts.items()) or f"no NVIDIA GPU ({machine.origin})"  # noqa: RUF001 - "times"
    hidden = f", {machine.hidden_gpus} more hidden by CUDA_VISIBLE_DEVICES" if machine.hidden_gpus else ""
    memory = f", {machine.memory_mib // 1024} GiB of memory" if machine.memory_mib is not None else ""
    return f"{gpus}{hidden}, {machine.cores} cores{memory}"


def _is_named(product: str, word: str) -> bool:
    """Whether the driver's product name holds the word by itself: a GH200 is no H200."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", product, re.IGNORECASE) is not None
