from pathlib import Path

import pytest

from spec_toolkit.facts.machine import parse_driver_files, parse_meminfo_mib, parse_nvidia_smi, read_machine, visible

LINES = "".join(f"{n}, GPU-{n}aaaa-bbbb, NVIDIA H200, 143771, 570.86.15\n" for n in range(8))
GPUS, _ = parse_nvidia_smi(LINES)


def test_nvidia_smi_is_read() -> None:
    gpus, driver = parse_nvidia_smi(LINES)
    assert len(gpus) == 8
    assert driver == "570.86.15"
    assert (gpus[3].index, gpus[3].name, gpus[3].memory_mib) == (3, "NVIDIA H200", 143771)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "a, b, c, d, e",
        "0, GPU",
    ],
    ids=["nothing", "no-device", "no-driver", "no-index", "cut-short"],
)
def test_what_is_no_gpu_is_no_gpu(text: str) -> None:
    assert parse_nvidia_smi(text) == ((), None)


def test_memory_that_is_not_told_is_none() -> None:
    gpus, _ = parse_nvidia_smi("0, GPU-x, NVIDIA GB10, [N/A], 580.1\n")
    assert gpus[0].memory_mib is None


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        pytest.param(None, [0, 1, 2, 3, 4, 5, 6, 7], id="unset"),
        pytest.param("", [], id="empty"),
        pytest.param("-1", [], id="minus-one"),
        pytest.param("2,0", [2, 0], id="in-its-order"),
        pytest.param("0, 1", [0, 1], id="with-a-space"),
        pytest.param("0,9,1", [0], id="up-to-the-first-unknown"),
        pytest.param("0,0,1", [0], id="up-to-the-first-repeated"),
        pytest.param("GPU-3aaaa", [3], id="by-the-beginning-of-a-uuid"),
        pytest.param("GPU-", [], id="a-beginning-of-all"),
        pytest.param("MIG-1", [], id="a-slice"),
    ],
)
def test_cuda_visible_devices_is_respected(setting: str | None, indices: list[int]) -> None:
    assert [gpu.index for gpu in visible(GPUS, setting)] == indices


def test_the_drivers_files_name_gpus_without_memory() -> None:
    (gpu,) = parse_driver_files(["Model: \t\t NVIDIA H200\nIRQ:   \t\t 12\nGPU UUID: \t GPU-1\n"])
    assert (gpu.name, gpu.uuid, gpu.memory_mib) == ("NVIDIA H200", "GPU-1", None)


@pytest.mark.parametrize(
    ("meminfo", "limit", "mib"),
    [
        pytest.param("MemTotal:  2048 kB\n", None, 2, id="no-container"),
        pytest.param("MemTotal:  2048 kB\n", "max\n", 2, id="no-limit"),
        pytest.param("MemTotal:  2048 kB\n", "1048576\n", 1, id="a-limit"),
        pytest.param("MemTotal:  2048 kB\n", "9999999999\n", 2, id="a-limit-above"),
        pytest.param("", None, None, id="nothing-known"),
    ],
)
def test_memory_is_what_this_process_may_use(meminfo: str, limit: str | None, mib: int | None) -> None:
    assert parse_meminfo_mib(meminfo, limit) == mib


def script(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_machine_with_gpus_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, f"cat <<'EOF'\n{LINES}EOF", monkeypatch)
    machine = read_machine({"CUDA_VISIBLE_DEVICES": "0,1"})
    assert (len(machine.gpus), machine.hidden_gpus, machine.driver, machine.origin) == (2, 6, "570.86.15", "nvidia-smi")
    assert machine.cores >= 1


@pytest.mark.parametrize(
    ("body", "origin"),
    [
        pytest.param("exec sleep 60", "nvidia-smi did not answer within 0.5 s", id="hangs"),
        pytest.param("echo no driver; exit 9", "nvidia-smi ended with 9 and said 'no driver'", id="fails"),
        pytest.param("exit 0", "nvidia-smi ended with 0 and said 'nothing'", id="is-silent"),
    ],
)
def test_a_driver_that_does_not_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, origin: str
) -> None:
    script(tmp_path, body, monkeypatch)
    machine = read_machine({}, deadline_seconds=0.5 if "sleep" in body else 30)
    assert machine.origin == origin


def test_a_machine_without_nvidia_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_machine({}).origin == "no nvidia-smi on the path"
