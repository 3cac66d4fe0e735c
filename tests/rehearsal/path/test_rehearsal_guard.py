import os
import subprocess
import sys
from pathlib import Path

import pytest
import rehearsal_guard

STANDINS = Path(__file__).resolve().parents[3] / "spec_toolkit" / "rehearsal" / "path"
CPU = {"SGLANG_USE_CPU_ENGINE": "1"}
NAMES = ["datasets", "sgl_kernel", "torchvision", "triton"]


def python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key not in ("SGLANG_USE_CPU_ENGINE", "PYTHONPATH")}
    return subprocess.run(
        [sys.executable, "-c", code], env={**clean, **environ}, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param(["nvidiactl"], id="driver-control"),
        pytest.param(["nvidia0"], id="one-gpu"),
        pytest.param(["nvidia7", "null"], id="only-the-eighth-gpu"),
    ],
)
def test_refuses_where_a_cuda_device_is_visible(tmp_path, nodes):
    for node in nodes:
        (tmp_path / node).touch()
    with pytest.raises(RuntimeError, match=nodes[0]):
        rehearsal_guard.permit("triton", CPU, tmp_path)


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_a_device_that_is_hidden_is_not_visible(tmp_path, hidden):
    (tmp_path / "nvidia0").touch()
    rehearsal_guard.permit("triton", CPU | {"CUDA_VISIBLE_DEVICES": hidden}, tmp_path)
    with pytest.raises(RuntimeError, match="nvidia0"):
        rehearsal_guard.permit("triton", CPU | {"CUDA_VISIBLE_DEVICES": "0"}, tmp_path)


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([], id="nothing"),
        pytest.param(["null", "nvme0", "kvm"], id="other-devices"),
        pytest.param(["nvidia-caps", "nvidia-uvm"], id="near-miss-modules-without-a-gpu"),
    ],
)
def test_permits_a_machine_without_one(tmp_path, nodes):
    for node in nodes:
        (tmp_path / node).touch()
    rehearsal_guard.permit("triton", CPU, tmp_path)


@pytest.mark.parametrize("environ", [{}, {"SGLANG_USE_CPU_ENGINE": "0"}, {"SGLANG_USE_CPU_ENGINE": ""}])
def test_refuses_without_the_cpu_switch(tmp_path, environ):
    with pytest.raises(RuntimeError, match="SGLANG_USE_CPU_ENGINE is not 1"):
        rehearsal_guard.permit("triton", environ, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_standin_asks_the_guard(name, tmp_path):
    (tmp_path / "nvidia0").touch()
    without_switch = python(f"import {name}", PYTHONPATH=str(STANDINS))
    assert without_switch.returncode == 1
    assert f"RuntimeError: {name}: " in without_switch.stderr
    assert "SGLANG_USE_CPU_ENGINE is not 1" in without_switch.stderr

    planted = (
        f"import pathlib, rehearsal_guard; rehearsal_guard.DEVICES = pathlib.Path({str(tmp_path)!r}); import {name}"
    )
    on_a_gpu_machine = python(planted, PYTHONPATH=str(STANDINS), **CPU)
    assert on_a_gpu_machine.returncode == 1
    assert "has a CUDA device (nvidia0)" in on_a_gpu_machine.stderr


def test_no_standin_is_importable_without_the_folder():
    names = [*NAMES, "rehearsal_guard", "rehearsal_inert"]
    code = f"import importlib.util; print([name for name in {names} if importlib.util.find_spec(name)])"
    found = python(code, **CPU)
    assert (found.returncode, found.stdout.strip()) == (0, "[]"), found.stderr


def test_the_rehearsal_is_not_a_package():
    found = python("import spec_toolkit.rehearsal")
    assert found.returncode == 1
    assert "ImportError: spec_toolkit.rehearsal is not importable" in found.stderr
    assert python("import spec_toolkit.rehearsal.path.triton").returncode == 1
