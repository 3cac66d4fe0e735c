import subprocess
import sys
import time
from pathlib import Path

import pytest

from spec_toolkit.facts.environment import _hub, parse_held, parse_holders, read_environment, room

NOBODY = {"HF_HUB_OFFLINE": "1"}
MACHINE = "0, GPU-aaaa, NVIDIA H200, 143771, 580.95.05\n1, GPU-bbbb, NVIDIA H200, 143771, 580.95.05"
MEMORY = "0, GPU-aaaa, NVIDIA H200, 4, 143766\n1, GPU-bbbb, NVIDIA H200, 90000, 53771"
HOLDERS = "GPU-bbbb, 4242, python, with a comma, 89000\nGPU-bbbb, 4243, [Not Found], [N/A]"


def smi(folder: Path, monkeypatch: pytest.MonkeyPatch, *, body: str | None = None) -> None:
    """A fake nvidia-smi that knows the three questions."""
    script = body or (
        f'case "$1" in\n*compute-apps*) cat <<"EOF"\n{HOLDERS}\nEOF\n;;\n*memory.used*) cat <<"EOF"\n{MEMORY}\nEOF\n;;\n'
        f'*) cat <<"EOF"\n{MACHINE}\nEOF\n;;\nesac'
    )
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_who_holds_which_gpu_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch)
    found = read_environment(NOBODY)
    assert found.held is not None
    assert found.holders is not None
    assert [(each.gpu.index, each.used, each.free) for each in found.held] == [(0, 4, 143766), (1, 90000, 53771)]
    assert [(each.pid, each.name, each.used) for each in found.holders] == [
        (4242, "python, with a comma", 89000),
        (4243, "[Not Found]", None),
    ]


def test_hidden_gpus_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch)
    found = read_environment(NOBODY | {"CUDA_VISIBLE_DEVICES": "1"})
    assert found.held is not None
    assert [each.gpu.uuid for each in found.held] == ["GPU-bbbb"]


@pytest.mark.parametrize(
    "body", ["exec sleep 60", "exit 9", "echo nonsense"], ids=["hangs", "fails", "says-something-else"]
)
def test_a_driver_that_does_not_answer_is_none_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    smi(tmp_path, monkeypatch, body=body)
    began = time.monotonic()
    found = read_environment(NOBODY, deadline_seconds=0.5 if "sleep" in body else 30)
    assert time.monotonic() - began < 20
    assert found.held is None
    assert not found.holders


def test_without_a_gpu_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = read_environment(NOBODY)
    assert (found.held, found.holders) == (None, None)
    assert found.shared_memory is not None
    assert found.open_files[0] != 0


@pytest.mark.parametrize(
    "text", ["", "\n", "No devices were found", "0, GPU-a, NVIDIA GB10, [N/A], [N/A]", "a, b, c, d, e"]
)
def test_what_is_no_memory_is_none(text: str) -> None:
    assert parse_held(text) == ()
    assert parse_holders(text) == ()


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        pytest.param({"HF_HUB_CACHE": "/a/b"}, "/a/b", id="by-name"),
        pytest.param({"HF_HOME": "/a"}, "/a/hub", id="by-home"),
        pytest.param({"XDG_CACHE_HOME": "/a"}, "/a/huggingface/hub", id="by-the-systems-cache"),
    ],
)
def test_the_cache_is_where_the_hubs_client_has_it(settings: dict[str, str], place: str) -> None:
    found = read_environment(NOBODY | settings).cache
    assert found is not None
    assert found.path == Path(place)
    ask = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    pytest.importorskip("huggingface_hub")
    told = subprocess.run([sys.executable, "-c", ask], env=settings, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == place


def test_room_is_that_of_the_nearest_folder_there_is(tmp_path: Path) -> None:
    here, below = room(tmp_path), room(tmp_path / "not" / "yet")
    assert here is not None
    assert below is not None
    assert below.total == here.total


def test_an_offline_hub_is_not_asked_and_one_that_is_not_there_is_said() -> None:
    assert not read_environment({"HF_HUB_OFFLINE": "TRUE"}).hub.asked
    hub = read_environment({"HF_ENDPOINT": "http://127.0.0.1:1/"}).hub
    assert (hub.address, hub.said) == ("http://127.0.0.1:1", "Connection refused")
    assert isinstance(read_environment({"HF_ENDPOINT": "nonsense"}).hub.said, str)


def test_torch_is_not_imported() -> None:
    ask = "import sys; from spec_toolkit.facts.environment import read_environment as r; r({'HF_HUB_OFFLINE': '1'}); print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://bob:hunter2@hub.example/a", "https://hub.example/a"),
        ("https://hub.example", "https://hub.example"),
        ("https://hub.example/@scope", "https://hub.example/@scope"),
    ],
)
def test_the_login_of_a_hubs_address_is_not_shown(address: str, shown: str) -> None:
    settings = {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "1", "HOME": "/nowhere"}
    assert _hub(settings, 1.0).address == shown
