"""What a machine has against what the pinned engine needs, a line each: right, wrong with the way to mend it, or not known. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from spec_toolkit.facts.environment import Environment, Held, Holder
from spec_toolkit.facts.packages import Installed
from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.rules.machine import describe, machine_findings
from spec_toolkit.recipe.schema import Recipe

# Least driver for any program built for a CUDA of this major version: docs.nvidia.com/deploy/cuda-compatibility, minor version
# compatibility, table 1. Newer drivers run older programs.
_LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
_NAMED = {"torch": "torch", "sglang-kernel": "sglang-kernel", "flashinfer-python": "flashinfer"}
_OPEN_FILES = 65_535  # the engine raises its own soft limit to this, and goes on with fewer where it may not (srt/utils/common.py)
_CONTAINER_DEFAULT = 64 * 2**20  # bytes of /dev/shm; a segment of NCCL's is about 10 MB, and there are several (C115)
_DRIVERS_OWN = 1024  # MiB of a GPU in use that no process need account for
_MOST_NAMES = 4
_HUB_ANSWERS = frozenset({401, 429})  # it wants a token, or fewer questions: it is there, and it is a hub
_CUDA = "cuda-python"  # whose version is CUDA's


class Health(Enum):
    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"


class Line(Struct, frozen=True, kw_only=True):
    about: str  # stable: gpus, driver, torch, ...
    health: Health
    found: str
    fix: str = ""


def examine(environment: Environment, tables: Tables, recipe: Recipe | None) -> tuple[Line, ...]:
    """In the order in which they are mended: what a later line says may follow from an earlier one."""
    return (
        *_recipe(environment, tables, recipe),
        *_gpus(environment),
        *_driver(environment),
        *_cuda(environment),
        *_engine(environment, tables),
        *_packages(environment, tables),
        *_nccl(environment),
        *_memory(environment),
        *_shared_memory(environment),
        *_open_files(environment),
        *_hub(environment),
        *_disk(environment, tables, recipe),
    )


def _recipe(environment: Environment, tables: Tables, recipe: Recipe | None) -> Iterator[Line]:
    if recipe is None:
        return
    findings = machine_findings(recipe, environment.machine, tables)
    for finding in findings:
        yield _wrong("recipe", f"{finding.where} {finding.found}; {finding.why}", finding.remedy)
    if not findings:
        yield _ok("recipe", "its hardware is here")


def _gpus(environment: Environment) -> Iterator[Line]:
    machine = environment.machine
    if machine.gpus:
        yield _ok("gpus", describe(machine))
    elif machine.hidden_gpus:
        yield _wrong("gpus", describe(machine), "Set CUDA_VISIBLE_DEVICES to the GPUs the engine may use, or unset it.")
    else:
        fix = "Production recipes need GPUs and their driver; planning and rehearsals run here."
        yield _wrong("gpus", describe(machine), fix)


def _driver(environment: Environment) -> Iterator[Line]:
    driver, cuda = environment.machine.driver, environment.torch_cuda
    if driver is None:
        yield _unknown("driver", f"no driver answered ({environment.machine.origin})")
        return
    if not cuda:
        yield _unknown("driver", f"{driver}; which one is needed follows from torch's CUDA")
        return
    least, major = _LEAST_DRIVER.get(int(cuda.partition(".")[0])), driver.partition(".")[0]
    if least is None or not major.isdigit():
        yield _unknown("driver", f"{driver}, with a torch for CUDA {cuda}; which it needs is not in the tables")
    elif int(major) < least:
        found = f"{driver}, and torch is built for CUDA {cuda}, which needs {least} or newer"
        yield _wrong("driver", found, f"Install driver {least} or newer on the host.")
    else:
        yield _ok("driver", f"{driver}; CUDA {cuda} needs {least} or newer")


def _cuda(environment: Environment) -> Iterator[Line]:
    """The CUDA of torch against that of the engine's other packages: their libraries are one process's."""
    cuda = environment.torch_cuda
    wanted = next((each for each in environment.required or () if each.requirement.name == _CUDA), None)
    major = next((version.partition(".")[0] for _, version in wanted.requirement.clauses), None) if wanted else None
    if cuda is None:
        yield _unknown("cuda", "no torch is here that says which it is built for")
    elif not cuda:
        fix = f"Install a torch that is built for CUDA{f' {major}' if major else ''}."
        yield _wrong("cuda", "torch is a build without it, as rehearsals use", fix)
    elif major is None:
        yield _unknown("cuda", f"torch is built for {cuda}; what the engine's packages are built for is not known")
    elif cuda.partition(".")[0] != major:
        fix = f"Install a torch that is built for CUDA {major}."
        yield _wrong("cuda", f"torch is built for {cuda}, and the engine's packages for {major}", fix)
    else:
        yield _ok("cuda", f"torch is built for {cuda}, the engine's packages for {major}")


def _engine(environment: Environment, tables: Tables) -> Iterator[Line]:
    wanted, found = tables.engine.version, environment.engine
    fix = f"pip install sglang=={wanted}"
    if found is None:
        yield _wrong("engine", "no sglang in this Python environment", fix)
    elif found != wanted:
        yield _wrong("engine", f"sglang {found}; recipes and patches are for {wanted}", fix)
    else:
        yield _ok("engine", f"sglang {found}")


def _packages(environment: Environment, tables: Tables) -> Iterator[Line]:
    """By the engine's own metadata: it is built and tested with exactly these."""
    required = environment.required
    if required is None:
        yield _unknown("packages", "what the engine requires is not known until it is installed")
        return
    by_name = {each.requirement.name: each for each in required}
    for package, about in _NAMED.items():
        if package in by_name:
            yield _package(about, by_name[package])
    others = [each for each in required if each.requirement.name not in _NAMED and each.requirement.is_exact]
    misfits = [each for each in others if each.fits is False]
    if misfits:
        names = ", ".join(_said(each) for each in misfits[:_MOST_NAMES])
        more = f" and {len(misfits) - _MOST_NAMES} more" if len(misfits) > _MOST_NAMES else ""
        found = f"{len(misfits)} of the engine's other {len(others)} exact pins are not met: {names}{more}"
        yield _wrong("packages", found, f"pip install sglang=={tables.engine.version} in an environment of its own")
    else:
        yield _ok("packages", f"the engine's other {len(others)} exact pins are met")


def _package(about: str, found: Installed) -> Line:
    wanted = f"the engine requires {found.requirement.spelled}"
    match found.fits:
        case True:
            return _ok(about, f"{found.version}, as the engine requires")
        case False:
            fix = f"pip install '{found.requirement.name}{found.requirement.spelled}'"
            return _wrong(about, f"{found.version or 'not installed'}; {wanted}", fix)
        case _:
            return _unknown(about, f"{found.version}; {wanted}")


def _nccl(environment: Environment) -> Iterator[Line]:
    if not environment.nccl:
        yield _unknown(
            "nccl", "the installed torch's metadata names none: a build for CPUs, or one that brings its own"
        )
    for each in environment.nccl:
        if each.fits is False:
            fix = f"pip install '{each.requirement.name}{each.requirement.spelled}'"
            found = f"{each.version or 'not installed'}; torch requires {each.requirement.spelled}"
            yield _wrong("nccl", found, fix)
        elif each.fits:
            yield _ok("nccl", f"{each.version}, as torch requires")
        else:
            yield _unknown("nccl", f"{each.version}; torch requires {each.requirement.spelled}")


def _memory(environment: Environment) -> Iterator[Line]:
    held = environment.held
    if not held:
        yield _unknown("memory", "nvidia-smi does not tell how much of a GPU is free")
        return
    holders: dict[str, list[Holder]] = defaultdict(list)
    for holder in environment.holders or ():
        holders[holder.gpu_uuid].append(holder)
    taken = [each for each in held if each.used > _DRIVERS_OWN or holders[each.gpu.uuid]]
    for each in taken:
        yield _held(each, holders[each.gpu.uuid])
    if not taken:
        yield _ok("memory", f"at least {min(each.free for each in held):,} MiB free on each of {len(held)} GPUs")


def _held(held: Held, holders: list[Holder]) -> Line:
    found = f"GPU {held.gpu.index} has {held.free:,} MiB free, {held.used:,} MiB in use"
    if not holders:
        fix = "Look for it on the host (nvidia-smi), or choose other GPUs with CUDA_VISIBLE_DEVICES."
        return _wrong("memory", f"{found} by a process that is not shown here", fix)
    names = ", ".join(f"pid {one.pid} ({one.name}{_mib(one)})" for one in holders[:_MOST_NAMES])
    return _wrong("memory", f"{found} by {names}", "End them, or choose other GPUs with CUDA_VISIBLE_DEVICES.")


def _shared_memory(environment: Environment) -> Iterator[Line]:
    found = environment.shared_memory
    if found is None:
        yield _unknown("shared-memory", "cannot be read")
        return
    said = f"{found.path}: {_gib(found.free)} free of {_gib(found.total)}"
    fix = "docker run --shm-size=32g, or an emptyDir of medium Memory mounted there in a pod."
    if len(environment.machine.gpus) > 1 and found.total <= _CONTAINER_DEFAULT:
        yield _wrong("shared-memory", f"{said}, a container's default; ranks that meet there do not fit", fix)
    elif len(environment.machine.gpus) > 1 and found.free <= _CONTAINER_DEFAULT:
        yield _wrong("shared-memory", f"{said}: it is full", "Delete what ended processes left in it.")
    else:
        yield _ok("shared-memory", said)


def _open_files(environment: Environment) -> Iterator[Line]:
    soft, hard = environment.open_files
    said = f"{_limit(soft)}, and at most {_limit(hard)}"
    if 0 <= hard < _OPEN_FILES:
        fix = f"ulimit -Hn {_OPEN_FILES} as root, or docker run --ulimit nofile={_OPEN_FILES}:{_OPEN_FILES}."
        yield _wrong("open-files", f"{said}; the engine raises its own limit to {_OPEN_FILES:,}, and may not", fix)
    else:
        yield _ok("open-files", said)


def _hub(environment: Environment) -> Iterator[Line]:
    hub = environment.hub
    if not hub.asked:
        yield _unknown("hub", f"{hub.said}: nobody asks {hub.address}, and models must lie in its cache")
    elif isinstance(hub.said, int) and (200 <= hub.said < 300 or hub.said in _HUB_ANSWERS):
        yield _ok("hub", f"{hub.address} answers")
    else:
        said = f"answers {hub.said}" if isinstance(hub.said, int) else f"does not answer ({hub.said})"
        fix = "Check network, proxy and HF_ENDPOINT; or fetch the models elsewhere and set HF_HUB_OFFLINE=1."
        yield _wrong("hub", f"{hub.address} {said}", fix)


def _disk(environment: Environment, tables: Tables, recipe: Recipe | None) -> Iterator[Line]:
    cache = environment.cache
    if cache is None:
        yield _unknown("disk", "the hub's cache has no place here")
        return
    said = f"{_gib(cache.free)} free in {cache.path}"
    needed = None if recipe is None else _needed(tables, recipe)
    if needed is None:
        why = "name a recipe to have it compared" if recipe is None else "how large its model is stands in no table"
        yield _unknown("disk", f"{said}; {why}")
    elif cache.free < needed:
        fix = "Make room, or set HF_HOME to a larger disk; nothing is needed for files that are there already."
        yield _wrong("disk", f"{said}; the recipe's models take {needed / 2**30:,.0f} GiB", fix)
    else:
        yield _ok("disk", f"{said}; the recipe's models take {needed / 2**30:,.0f} GiB")


def _needed(tables: Tables, recipe: Recipe) -> int | None:
    """Bytes of the target's files and of a draft apart, as the tables have them."""
    models = [recipe.target.model, *([] if recipe.draft.model == "same" else [recipe.draft.model])]
    facts = [tables.checkpoint(model) for model in models]
    sizes = [each.bytes.v if each is not None else None for each in facts]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _said(each: Installed) -> str:
    return f"{each.requirement.name} {each.version or 'is missing'} ({each.requirement.spelled})"


def _mib(holder: Holder) -> str:
    return "" if holder.used is None else f", {holder.used:,} MiB"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


def _limit(value: int) -> str:
    return "no limit" if value < 0 else f"{value:,}"


def _ok(about: str, found: str) -> Line:
    return Line(about=about, health=Health.OK, found=found)


def _wrong(about: str, found: str, fix: str) -> Line:
    return Line(about=about, health=Health.WRONG, found=found, fix=fix)


def _unknown(about: str, found: str) -> Line:
    return Line(about=about, health=Health.UNKNOWN, found=found)
