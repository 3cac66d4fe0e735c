"""A small package that plays the engine: the real engine's own plugin loader and hook registry, around functions of a few lines.

Each test runs it in a child process, as the engine's processes would: the plugin ends the process it is in.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from spec_toolkit.fingerprint import fingerprint, package_folder
from spec_toolkit.handover import (
    LIST_VARIABLE,
    HandedHook,
    HookType,
    Report,
    Role,
    decode_report,
    encode_list,
    report_folder,
)

WORK = """
import functools

def step(batch):
    return batch + 1

def other(batch):
    return batch - 1

class Worker:
    def run(self, batch):
        return step(batch)

    @staticmethod
    def plain(batch):
        return batch

    @classmethod
    def of(cls, batch):
        return batch
"""

ROLES = """
from sglang.srt.plugins import load_plugins

def run_scheduler_process(tp_rank, pp_rank, dp_rank):
    load_plugins()

def run_detokenizer_process():
    load_plugins()
"""

ENVIRON = """
import os

class _Text:
    def __init__(self, name):
        self.name = name
    def get(self):
        return os.environ.get(self.name)

class envs:
    SGLANG_PLUGINS = _Text("SGLANG_PLUGINS")
    SGLANG_PLATFORM = _Text("SGLANG_PLATFORM")
"""

HOOKS = """
def double(original, *args):
    return 2 * original(*args)

def negate(original, *args):
    return -original(*args)

not_a_function = 3
"""


@dataclass(frozen=True)
class FakeEngine:
    root: Path

    @property
    def package(self) -> Path:
        return self.root / "sglang"

    def write(self, module: str, source: str) -> None:
        (self.package / f"{module}.py").write_text(source)

    def hook(self, target: str = "sglang.work.step", function: str = "double", **changes: object) -> HandedHook:
        """A hook on the engine as it is now."""
        file = self.root / "double_it" / "hooks.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(HOOKS)
        known = {
            "patch": "double-it",
            "target": target,
            "fingerprint": fingerprint(target, self.package),
            "file": str(file),
            "file_sha256": hashlib.sha256(HOOKS.encode()).hexdigest(),
            "function": function,
            "type": HookType.AROUND,
            "roles": (Role.LAUNCHER, Role.SCHEDULER),
        }
        return HandedHook(**{**known, **changes})

    def list_of(self, *hooks: HandedHook) -> Path:
        path = self.root / "patches.json"
        path.write_bytes(encode_list(hooks))
        return path

    def run(self, program: str, patch_list: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name != LIST_VARIABLE}
        handed = {LIST_VARIABLE: str(patch_list)} if patch_list else {}
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.root,
            env={**inherited, "PYTHONPATH": str(self.root), **handed, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def reports(self) -> list[Report]:
        folder = report_folder(self.root / "patches.json")
        return [decode_report(path.read_bytes()) for path in sorted(folder.glob("*.json"))]


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    package = tmp_path / "sglang"
    plugins = package / "srt" / "plugins"
    plugins.mkdir(parents=True)
    real = package_folder("sglang") / "srt" / "plugins"
    for name in ("__init__.py", "hook_registry.py"):
        shutil.copy(real / name, plugins / name)
    for folder in (package, package / "srt"):
        (folder / "__init__.py").write_text("")
    (package / "srt" / "environ.py").write_text(ENVIRON)
    fake = FakeEngine(tmp_path)
    fake.write("work", WORK)
    fake.write("roles", ROLES)
    return fake
