"""What leaves the house: the commands people are told, and the wheel, which carries all data and no importable stand-in."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STANDINS = sorted(entry.stem for entry in (ROOT / "spec_toolkit/rehearsal/path").iterdir() if entry.name[0] not in "._")
DATA = {"recipes": "*.yaml", "patches": "*.yaml", "runbooks": "*.md"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    built = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder that holds what the wheel installs, and nothing else."""
    pytest.importorskip("pip", reason="an environment made by uv alone has no pip")
    folder = tmp_path_factory.mktemp("installed")
    argv = [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*argv, str(wheel)], check=True, capture_output=True)
    return folder


def targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_ci_runs_exactly_the_readmes_test_command():
    script = (ROOT / ".ci/run").read_text()
    command = script.splitlines()[-1]
    assert command == "make test"
    assert command in (ROOT / "README.md").read_text()


def test_the_readme_names_only_targets_there_are():
    named = set(re.findall(r"\bmake ([a-z][a-z-]+)`?(?=\s|$)", "\n".join(code_of((ROOT / "README.md").read_text()))))
    assert named <= targets((ROOT / "Makefile").read_text())


def code_of(markdown: str) -> list[str]:
    return re.findall(r"```[a-z]*\n(.*?)```", markdown, re.DOTALL) + re.findall(r"`(make [^`]+)`", markdown)


def test_help_lists_every_target_a_person_calls():
    listed = subprocess.run(
        ["/usr/bin/env", "make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"make ([a-z-]+)", listed.replace("`", ""))) >= {
        "setup",
        "demo",
        "test",
        "check",
        "test-full",
    }


def test_a_machine_without_a_new_python_is_told_what_was_found(tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\nexit 1\n')
    old.chmod(0o755)
    argv = ["/usr/bin/env", "make", "setup", f"PYTHON={old} nowhere-python"]
    refused = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert f"{old}: Python 3.9.2" in refused.stderr
    assert "nowhere-python:" in refused.stderr
    assert "[install.python]" in refused.stderr


def test_locks_are_plain_pins():
    for file in ("requirements-cpu.lock", "requirements-dev.lock"):
        lines = [line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith("#")]
        assert not [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)]
        assert len({re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}) == len(lines)


def test_every_data_folder_travels_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    data = [(file, f"spec_toolkit/_shipped/{file}") for folder, kind in DATA.items() for file in found(folder, kind)]
    models = [(file, file) for file in found("spec_toolkit/rehearsal/models", "*.*")]
    tables = [(file, file) for file in found("spec_toolkit/facts/tables", "*.*")]
    assert any(file.endswith(".safetensors") for file, _ in models)
    assert not [file for file, name in [*data, *models, *tables] if name not in names]


def found(folder: str, kind: str) -> list[str]:
    return [str(file.relative_to(ROOT)) for file in (ROOT / folder).rglob(kind) if "__pycache__" not in file.parts]


def test_what_belongs_to_a_checkout_stays_there(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.startswith(("tests/", "spec_toolkit/rehearsal/install/"))]
    assert not [name for name in names if name.endswith((".pyc", ".pth"))]


def test_the_wheel_is_small(wheel):
    """Beside the tiny models, which are what most of it is; they have a limit each."""
    with zipfile.ZipFile(wheel) as content:
        models = {file.filename: file for file in content.infolist() if "/rehearsal/models/" in file.filename}
    weights = [file for name, file in models.items() if name.endswith(".safetensors")]
    assert len(weights) > 8
    assert max(file.file_size for file in weights) < 4_000_000
    assert wheel.stat().st_size - sum(file.compress_size for file in models.values()) < 2_000_000


def test_the_wheel_gives_a_working_command(installed, tmp_path):
    environ = {**os.environ, "PYTHONPATH": str(installed)}
    argv = [str(installed / "bin" / "spec-toolkit"), "--version"]
    told = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    where = [sys.executable, "-c", "from spec_toolkit.shipped import shipped; print(shipped('recipes'))"]
    told = subprocess.run(where, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    assert Path(told.stdout.strip()) == installed / "spec_toolkit" / "_shipped" / "recipes"


def test_no_standin_is_importable_where_the_wheel_is_installed(installed, tmp_path):
    """Real Triton, kernels and torchvision of a GPU machine can then never be shadowed by ours."""
    look = (
        "import importlib.util, json, site, sys\n"
        "site.addsitedir(sys.argv[1])\n"  # follows .pth files, as a real site-packages does
        "specs = {name: importlib.util.find_spec(name) for name in sys.argv[2:]}\n"
        "print(json.dumps({name: spec.origin for name, spec in specs.items() if spec}))"
    )
    # -S: none of this environment's packages, so that what is found can only come from the wheel or the standard library.
    argv = [sys.executable, "-I", "-S", "-c", look, str(installed), *STANDINS]
    told = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert {"triton", "torchvision", "datasets", "sgl_kernel"} <= set(STANDINS)
    assert json.loads(told.stdout) == {}


@pytest.mark.parametrize("module", ["spec_toolkit.rehearsal", "spec_toolkit.rehearsal.path.triton"])
def test_the_rehearsal_cannot_be_imported_as_a_package(installed, tmp_path, module):
    environ = {**os.environ, "PYTHONPATH": str(installed)}
    argv = [sys.executable, "-c", f"import {module}"]
    told = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert "ImportError: spec_toolkit.rehearsal is not importable" in told.stderr
