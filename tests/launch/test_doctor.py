"""A machine held against what the engine needs: one row a complaint, each with its near miss."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from spec_toolkit.cli.doctor import command
from spec_toolkit.facts.environment import Environment, Held, Holder, Hub, Room
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.packages import Installed, parse_requirement
from spec_toolkit.facts.records import Gpu, Machine
from spec_toolkit.launch.doctor import Health, Line, examine
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.report.doctor import examination
from spec_toolkit.shipped import shipped

TABLES = load_tables()
GPUS = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200", memory_mib=143771) for n in range(8))
GIB = 2**30


def installed(requirement: str, version: str | None) -> Installed:
    wanted = parse_requirement(requirement)
    assert wanted is not None
    return Installed(wanted, version)


def machine(*, gpus: tuple[Gpu, ...] = GPUS, hidden: int = 0, driver: str | None = "580.95.05") -> Machine:
    origin = "nvidia-smi" if gpus else "no nvidia-smi on the path"
    return Machine(gpus=gpus, hidden_gpus=hidden, driver=driver, cores=96, memory_mib=2_000_000, origin=origin)


SOUND = Environment(
    machine=machine(),
    held=tuple(Held(gpu, 4, 143766) for gpu in GPUS),
    holders=(),
    engine="0.5.23",
    required=(
        installed("torch==2.14.1", "2.14.1+cu130"),
        installed("sglang-kernel==0.4.10", "0.4.10"),
        installed("flashinfer_python[cu13]==0.7.2", "0.7.2"),
        installed("xgrammar==0.2.7", "0.2.7"),
        installed("cuda-python>=13.0", "13.0.1"),
        installed("ninja", None),
    ),
    nccl=(installed("nvidia-nccl-cu13==2.29.3", "2.29.3"),),
    torch_cuda="13.0",
    shared_memory=Room(Path("/dev/shm"), 32 * GIB, 31 * GIB),  # noqa: S108 - as the machine has it
    open_files=(1024, 1_048_576),
    hub=Hub("https://hub.example", asked=True, said=200),
    cache=Room(Path("/cache"), 4000 * GIB, 3000 * GIB),
)


def lines(environment: Environment, recipe: str | None = None) -> tuple[Line, ...]:
    chosen = load_recipe(shipped("recipes") / f"{recipe}.yaml").recipe if recipe else None
    return examine(environment, TABLES, chosen)


def wrong(environment: Environment, recipe: str | None = None) -> list[str]:
    return [f"{line.about}: {line.found}" for line in lines(environment, recipe) if line.health is Health.WRONG]


def test_a_sound_machine_has_nothing_wrong() -> None:
    assert wrong(SOUND, "deepseek_v3_h200") == []
    assert {line.health for line in lines(SOUND, "deepseek_v3_h200")} == {Health.OK}


def test_every_complaint_says_what_to_do() -> None:
    ruin = replace(SOUND, machine=machine(gpus=(), driver=None), engine=None, open_files=(10, 10), held=None)
    assert all(line.fix for line in lines(ruin, "deepseek_v3_h200") if line.health is Health.WRONG)


def without(name: str, requirement: str, version: str | None) -> tuple[Installed, ...]:
    assert SOUND.required is not None
    return tuple(installed(requirement, version) if each.requirement.name == name else each for each in SOUND.required)


def shm(total: int, free: int) -> Room:
    return Room(Path("/dev/shm"), total, free)  # noqa: S108 - as above


ONE_HELD = tuple(Held(gpu, 90_000 if gpu.index == 3 else 4, 50_000) for gpu in GPUS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"machine": machine(gpus=(), driver=None)}, "gpus: no NVIDIA GPU", id="no-gpu"),
        pytest.param({"machine": machine(gpus=(), hidden=8)}, "gpus: no NVIDIA GPU", id="all-hidden"),
        pytest.param(
            {"machine": machine(driver="570.86.15")},
            "driver: 570.86.15, and torch is built for CUDA 13.0, which needs 580 or newer",
            id="an-old-driver",
        ),
        pytest.param(
            {"torch_cuda": "12.8"}, "cuda: torch is built for 12.8, and the engine's packages for 13", id="an-old-cuda"
        ),
        pytest.param({"engine": None}, "engine: no sglang", id="no-engine"),
        pytest.param({"engine": "0.5.22"}, "engine: sglang 0.5.22; recipes and patches are for", id="another-engine"),
        pytest.param(
            {"required": without("torch", "torch==2.14.1", "2.13.0+cu130")},
            "torch: 2.13.0+cu130; the engine requires ==2.14.1",
            id="another-torch",
        ),
        pytest.param({"torch_cuda": ""}, "cuda: torch is a build without it", id="a-torch-for-cpus"),
        pytest.param(
            {"required": without("sglang-kernel", "sglang-kernel==0.4.10", "0.4.9")},
            "sglang-kernel: 0.4.9; the engine requires ==0.4.10",
            id="another-kernel",
        ),
        pytest.param(
            {"required": without("flashinfer-python", "flashinfer-python==0.7.2", None)},
            "flashinfer: not installed",
            id="no-flashinfer",
        ),
        pytest.param(
            {"required": without("xgrammar", "xgrammar==0.2.7", "0.2.6")},
            "packages: 1 of the engine's other 1 exact pins are not met: xgrammar 0.2.6 (==0.2.7)",
            id="another-package",
        ),
        pytest.param(
            {"nccl": (installed("nvidia-nccl-cu13==2.29.3", "2.28.1"),)},
            "nccl: 2.28.1; torch requires ==2.29.3",
            id="another-nccl",
        ),
        pytest.param(
            {"held": ONE_HELD, "holders": (Holder("GPU-3", 42, "python", 89_000),)},
            "memory: GPU 3 has 50,000 MiB free, 90,000 MiB in use by pid 42 (python, 89,000 MiB)",
            id="somebody-holds-a-gpu",
        ),
        pytest.param({"held": ONE_HELD}, "by a process that is not shown here", id="somebody-outside-holds-one"),
        pytest.param({"shared_memory": shm(64 * 2**20, 64 * 2**20)}, "a container's default", id="C115"),
        pytest.param({"shared_memory": shm(32 * GIB, 1000)}, "it is full", id="full-shared-memory"),
        pytest.param({"open_files": (1024, 4096)}, "open-files: 1,024, and at most 4,096", id="few-files"),
        pytest.param(
            {"hub": Hub("https://hub.example", asked=True, said="Connection refused")},
            "hub: https://hub.example does not answer (Connection refused)",
            id="no-hub",
        ),
        pytest.param(
            {"hub": Hub("https://hub.example", asked=True, said=404)},
            "hub: https://hub.example answers 404",
            id="something-else-at-its-address",
        ),
        pytest.param(
            {"hub": Hub("https://hub.example", asked=True, said=302)},
            "hub: https://hub.example answers 302",
            id="a-portal-in-between",
        ),
        pytest.param(
            {"hub": Hub("https://hub.example", asked=True, said=502)},
            "hub: https://hub.example answers 502",
            id="a-broken-hub",
        ),
    ],
)
def test_what_is_wrong_is_one_line(change: dict[str, object], said: str) -> None:
    (line,) = wrong(replace(SOUND, **change))  # type: ignore[arg-type]
    assert said in line


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"machine": machine(driver="590.1")}, id="a-newer-driver"),
        pytest.param({"torch_cuda": "13.2"}, id="another-minor-version-of-cuda"),
        pytest.param({"held": tuple(Held(gpu, 600, 143171) for gpu in GPUS)}, id="what-a-driver-keeps"),
        pytest.param({"shared_memory": shm(GIB, GIB)}, id="some-shared-memory"),
        pytest.param(
            {"machine": machine(gpus=GPUS[:1]), "shared_memory": shm(64 * 2**20, 1000)}, id="one-gpu-meets-nobody"
        ),
        pytest.param({"open_files": (1024, -1)}, id="no-limit-of-files"),
        pytest.param({"hub": Hub("https://hub.example", asked=True, said=401)}, id="a-hub-that-wants-a-token"),
        pytest.param({"hub": Hub("https://hub.example", asked=False, said="HF_HUB_OFFLINE is set")}, id="offline"),
    ],
)
def test_near_misses_are_not_wrong(change: dict[str, object]) -> None:
    assert wrong(replace(SOUND, **change)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "about"),
    [
        pytest.param({"machine": machine(driver=None)}, "driver", id="no-driver-answers"),
        pytest.param({"torch_cuda": None}, "driver", id="a-torch-that-does-not-say"),
        pytest.param({"required": None}, "packages", id="requirements-of-nothing"),
        pytest.param({"nccl": ()}, "nccl", id="no-nccl-named"),
        pytest.param({"held": None}, "memory", id="memory-not-told"),
        pytest.param({"shared_memory": None}, "shared-memory", id="no-shared-memory-told"),
        pytest.param({"cache": None}, "disk", id="no-cache"),
    ],
)
def test_what_is_not_known_is_said_to_be(change: dict[str, object], about: str) -> None:
    found = {line.about: line.health for line in lines(replace(SOUND, **change), "deepseek_v3_h200")}  # type: ignore[arg-type]
    assert found[about] is Health.UNKNOWN


@pytest.mark.parametrize(
    ("gpus", "free", "said"),
    [
        pytest.param(GPUS[:4], 3000 * GIB, ["recipe"], id="four-of-eight-gpus"),
        pytest.param(GPUS, 100 * GIB, ["disk"], id="no-room-for-the-model"),
        pytest.param(GPUS, 3000 * GIB, [], id="near-miss-all-there"),
    ],
)
def test_a_recipe_is_held_against_the_machine(gpus: tuple[Gpu, ...], free: int, said: list[str]) -> None:
    found = replace(SOUND, machine=machine(gpus=gpus), cache=Room(Path("/cache"), free, free))
    assert [line.partition(":")[0] for line in wrong(found, "deepseek_v3_h200")] == said


def test_every_line_is_shown_and_counted() -> None:
    found = lines(replace(SOUND, engine=None, nccl=()))
    text = examination(found, as_json=False)
    assert text.splitlines()[-1] == f"{len(found) - 3} ok, 1 wrong, 2 unknown."
    assert "-> pip install sglang==0.5.23" in text
    assert [line["about"] for line in json.loads(examination(found, as_json=True))["lines"]] == [
        line.about for line in found
    ]


def test_the_command_works_without_a_gpu_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # a driver's own files may name GPUs
    answer = CliRunner().invoke(command, [], standalone_mode=False)
    assert answer.return_value == 1
    assert "no NVIDIA GPU (no nvidia-smi on the path)" in answer.stdout
