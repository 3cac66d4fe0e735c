"""A deployment's folder, and supervisors that own it for one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spec_toolkit.handover import HandedHook, HookType, Role, encode_list
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.launch.record import Service
from spec_toolkit.launch.spec import LaunchSpec
from spec_toolkit.terms import Comeback
from tests.launch.supervised import KEY, Running, processes


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "d")
    made.create()
    made.admin_key.write_text(KEY)
    hook = HandedHook(
        patch="redact-keys",
        target="sglang.x.y",
        fingerprint="0" * 64,
        file="/nowhere/hooks.py",
        file_sha256="0" * 64,
        function="f",
        type=HookType.AROUND,
        roles=(Role.LAUNCHER, Role.SCHEDULER),
    )
    made.patch_list.write_bytes(encode_list((hook,)))
    return made


@pytest.fixture
def run(folder: Folder) -> Iterator[object]:
    """Start a supervisor; when the test ends its deployment does, and nothing is left."""
    started: list[Running] = []

    def start(
        *attempts: LaunchSpec,
        services: tuple[Service, ...] = (),
        port: int = 1,
        ready_seconds: float = 60.0,
        drain_seconds: float = 2.0,
        comeback: Comeback = Comeback.BESIDE,
    ) -> Running:
        started.append(
            Running(
                folder,
                attempts,
                services=services,
                port=port,
                ready_seconds=ready_seconds,
                drain_seconds=drain_seconds,
                comeback=comeback,
            )
        )
        return started[-1]

    yield start
    for running in started:
        running.close()
    assert not processes(folder), "a process was left"
