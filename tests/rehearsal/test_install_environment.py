"""A whole set-up, with a real pip, of a tiny checkout whose packages a loopback index serves."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import zipfile
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.install

INSTALL = Path(__file__).resolve().parents[2] / "spec_toolkit" / "rehearsal" / "install"
CPYTHON = f"cp{sys.version_info[0]}{sys.version_info[1]}"
TORCH_TAG = f"{CPYTHON}-{CPYTHON}-manylinux_2_28_x86_64"
TORCH = '__version__ = "2.13.0+cpu"\nclass version:\n    cuda = None\n'
CPU_LOCK = "torch==2.13.0\nAlpha.Beta==1.0\n"
DEV_LOCK = "# tools\ngamma==1.0\n"
BACKEND = """
import zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "tiny-0.1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("tiny-0.1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 0.1\\n")
        wheel.writestr("tiny-0.1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("tiny-0.1.dist-info/RECORD", "")
    return name
"""


def write_wheel(folder: Path, name: str, version: str, code: str, tag: str = "py3-none-any") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", code)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")


@dataclass
class Index:
    """A registry and a CPU index of torch on loopback."""

    folder: Path
    url: str = ""
    asked: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    found = Index(tmp_path_factory.mktemp("index"))
    for name in ("alpha_beta", "gamma"):
        for version in ("1.0", "2.0"):
            write_wheel(found.folder / "simple" / name.replace("_", "-"), name, version, "")
    write_wheel(found.folder / "cpu" / "torch", "torch", "2.13.0+cpu", TORCH, TORCH_TAG)
    write_wheel(found.folder / "disk", "torch", "2.13.0+cpu", TORCH, TORCH_TAG)

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format, *arguments):  # noqa: A002 - http.server's name
            found.asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=found.folder)) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@dataclass
class Checkout:
    root: Path
    environ: dict[str, str]

    @property
    def argv(self):
        return [sys.executable, "-I", str(self.root / "spec_toolkit/rehearsal/install")]

    def set_up(self, **environ: str):
        return subprocess.run(
            self.argv, env=self.environ | environ, capture_output=True, text=True, check=False, timeout=300
        )

    def stamp(self):
        return json.loads((self.root / ".venv/setup.json").read_text())

    def lock(self, extra: str = "") -> None:
        (self.root / "requirements-cpu.lock").write_text(CPU_LOCK + extra)
        (self.root / "requirements-dev.lock").write_text(DEV_LOCK)


@pytest.fixture(scope="module", params=["pip", "uv"])
def checkout(request, index, tmp_path_factory):
    """Set up once; each test leaves it complete."""
    path = tmp_path_factory.mktemp("bin")
    if request.param == "uv":
        if not (uv := shutil.which("uv")):
            pytest.skip("no uv on the PATH")
        (path / "uv").symlink_to(uv)
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(INSTALL, root / "spec_toolkit/rehearsal/install")
    (root / "backend.py").write_text(textwrap.dedent(BACKEND))
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    environ = {
        "PATH": str(path),
        "HOME": str(root),
        "PIP_CONFIG_FILE": os.devnull,  # not this machine's find-links
        "PIP_INDEX_URL": f"{index.url}/simple",
        "UV_DEFAULT_INDEX": f"{index.url}/simple",
        "TORCH_INDEX_URL": f"{index.url}/cpu",
    }
    made = Checkout(root, environ)
    made.lock()
    first = made.set_up()
    assert first.returncode == 0, first.stderr
    assert "torch from the wheel: pip finds no torch 2.13.0 outside package indexes; not used" in first.stdout
    assert f"torch from the index: {index.url}/cpu\n" in first.stdout
    assert f"with {request.param}\n" in first.stdout
    return made


def test_a_second_run_asks_nobody_and_installs_nothing(checkout, index):
    index.asked.clear()
    again = checkout.set_up()
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == "setup: .venv is complete: 3 packages, torch from the index; nothing to install\n"
    assert not index.asked


def test_bytecode_is_compiled(checkout):
    assert list(checkout.root.glob(".venv/lib/*/site-packages/alpha_beta/__pycache__/__init__.*.pyc"))


def test_a_changed_lock_costs_only_the_difference(checkout, index):
    index.asked.clear()
    (checkout.root / "requirements-dev.lock").write_text("gamma==2.0\n")
    changed = checkout.set_up()
    assert changed.returncode == 0, changed.stderr
    assert "installing 1 packages" in changed.stdout
    assert not [path for path in index.asked if "gamma" not in path]


def test_an_interrupted_run_goes_on_where_it_was(checkout, index):
    (site,) = checkout.root.glob(".venv/lib/*/site-packages")
    checkout.lock()
    checkout.set_up()
    index.asked.clear()
    (checkout.root / ".venv/setup.json").unlink()
    for file in ("INSTALLER", "RECORD"):  # gone: what an installer writes last
        (site / "alpha_beta-1.0.dist-info" / file).unlink()
    resumed = checkout.set_up()
    assert resumed.returncode == 0, resumed.stderr
    assert "1 packages are done again" in resumed.stdout
    assert not [path for path in index.asked if "gamma" in path]
    assert (site / "alpha_beta-1.0.dist-info/RECORD").exists()


def test_a_failure_shows_its_last_words_and_leaves_no_stamp(checkout):
    checkout.lock("delta==1.0\n")
    failed = checkout.set_up()
    assert failed.returncode == 3
    assert "delta" in failed.stderr
    assert "[install.failed]" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (checkout.root / ".venv/setup.json").exists()
    checkout.lock()
    assert checkout.set_up().returncode == 0


def test_a_wheel_on_disk_comes_before_the_index(checkout, index):
    wheel = checkout.set_up(TORCH_SOURCE="wheel", PIP_FIND_LINKS=str(index.folder / "disk"))
    assert wheel.returncode == 0, wheel.stderr
    assert f"torch from the wheel: file://{index.folder}/disk/torch-2.13.0%2Bcpu" in wheel.stdout
    assert checkout.stamp()["torch"] == "wheel"
    back = checkout.set_up(TORCH_SOURCE="index")
    assert back.returncode == 0, back.stderr
    assert checkout.stamp()["torch"] == "index"


def test_two_set_ups_of_a_checkout_run_one_after_the_other(checkout):
    folder = os.open(checkout.root, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with subprocess.Popen(checkout.argv, env=checkout.environ, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout.readline() == "setup: waiting for another set-up of this checkout\n"
        os.close(folder)
        assert "is complete" in second.stdout.read()
    assert second.returncode == 0


def test_a_moved_checkout_gets_a_new_environment(checkout, tmp_path):
    moved = Checkout(tmp_path / "moved", checkout.environ)
    shutil.copytree(checkout.root, moved.root, symlinks=True)
    output = moved.set_up()
    assert output.returncode == 0, output.stderr
    assert "making .venv" in output.stdout
    assert moved.stamp()["root"] == str(moved.root)
