# ruff: noqa: RUF001 - in what people read, the sign says "times"
from typing import Any

import pytest

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.records import Gpu, Machine, Tables
from spec_toolkit.planning.rules import machine


def with_gpus(*names: str, hidden: int = 0) -> Machine:
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{n}", name=name, memory_mib=143_771) for n, name in enumerate(names))
    return Machine(gpus=gpus, hidden_gpus=hidden, driver="570", cores=16, memory_mib=131_072, origin="nvidia-smi")


BARE = Machine(gpus=(), hidden_gpus=0, driver=None, cores=2, memory_mib=24_105, origin="no nvidia-smi on the path")


@pytest.mark.parametrize(
    ("here", "found"),
    [
        pytest.param(with_gpus(*["NVIDIA H200"] * 8), [], id="eight"),
        pytest.param(with_gpus(*["NVIDIA H200 NVL"] * 8), [], id="eight-of-the-card-form"),
        pytest.param(
            with_gpus(*["NVIDIA H200"] * 7), ["has 7 × NVIDIA H200, 16 cores, 128 GiB of memory"], id="one-too-few"
        ),
        pytest.param(
            with_gpus(*["NVIDIA H200"] * 4, hidden=4),
            ["has 4 × NVIDIA H200, 4 more hidden by CUDA_VISIBLE_DEVICES, 16 cores, 128 GiB of memory"],
            id="half-of-them-hidden",
        ),
        pytest.param(
            with_gpus(*["NVIDIA GH200 480GB"] * 8),
            ["has 8 × NVIDIA GH200 480GB, 16 cores, 128 GiB of memory"],
            id="another-gpu-with-its-letters",
        ),
        pytest.param(BARE, ["has no NVIDIA GPU (no nvidia-smi on the path), 2 cores, 23 GiB of memory"], id="none"),
    ],
)
def test_a_recipe_needs_its_gpus(change: Any, tables: Tables, here: Machine, found: list[str]) -> None:
    findings = machine.machine_findings(change(), here, tables)
    assert [finding.found for finding in findings] == found
    assert all(finding.rule == "machine.gpu-missing" for finding in findings)
    assert all(finding.why == "the recipe needs 8 × H200" for finding in findings)


def test_the_wrong_machine_is_no_fault_of_the_recipe(change: Any, tables: Tables) -> None:
    error = FactsError(*machine.machine_findings(change(), BARE, tables))
    assert error.exit_code == 3
    assert str(error) == (
        "machine: has no NVIDIA GPU (no nvidia-smi on the path), 2 cores, 23 GiB of memory; the recipe needs 8 × H200. "
        "Deploy it on such a machine; `--dry-run` shows what would be started there. [machine.gpu-missing]"
    )


def test_several_nodes_are_not_one_machine(change: Any, tables: Tables) -> None:
    (finding,) = machine.machine_findings(change(hardware__nodes=2), with_gpus(*["NVIDIA H200"] * 8), tables)
    assert finding.rule == "machine.nodes"


def test_a_rehearsal_does_not_run_beside_a_usable_gpu(change: Any, tables: Tables) -> None:
    rehearsal = change(hardware__gpu="cpu", target__model="rehearsal:deepseek_v3_tiny")
    (finding,) = machine.machine_findings(rehearsal, with_gpus("NVIDIA H200"), tables)
    assert finding.rule == "machine.cuda-visible"
    assert machine.machine_findings(rehearsal, BARE, tables) == ()
    assert machine.machine_findings(rehearsal, with_gpus(hidden=1), tables) == ()


@pytest.mark.parametrize(("gpu", "remedy"), [("gb20o", "Did you mean 'gb200'?"), ("tpu", "Known are h100, h200, ")])
def test_an_unknown_gpu_is_warned_of(change: Any, tables: Tables, gpu: str, remedy: str) -> None:
    (finding,) = machine.known_gpu(change(hardware__gpu=gpu).hardware, tables)
    assert finding.remedy.startswith(remedy)
    assert not list(machine.known_gpu(change().hardware, tables))
    assert not list(machine.known_gpu(change(hardware__gpu="cpu").hardware, tables))


def test_a_gpu_that_is_only_known_to_exist_is_warned_of(change: Any, tables: Tables) -> None:
    (finding,) = machine.known_gpu(change(hardware__gpu="mi355x").hardware, tables)
    assert (finding.rule, finding.found) == ("facts.gpu-unplanned", "is MI355X, which is not planned for")


@pytest.mark.parametrize(("model", "found"), [("deepseek-ai/DeepSeek-V3-0324", 0), ("org/model", 1), ("/models/x", 0)])
def test_an_unknown_model_is_noted(change: Any, tables: Tables, model: str, found: int) -> None:
    assert len(list(machine.known_model(change(target__model=model), tables))) == found


@pytest.mark.parametrize(
    ("gpu", "model", "found"),
    [("cpu", "org/model", 1), ("cpu", "rehearsal:x", 0), ("cpu", "./x", 0), ("h200", "org/model", 0)],
)
def test_a_cpu_rehearses_with_a_model_that_is_here(change: Any, gpu: str, model: str, found: int) -> None:
    assert len(list(machine.rehearsal_model(change(hardware__gpu=gpu, target__model=model)))) == found
