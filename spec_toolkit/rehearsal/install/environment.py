"""One checkout's `.venv`: looks at what is in place, starts pip or uv for the rest, and proves the result."""

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from choice import (
    Refused,
    Source,
    choose,
    downloaded_mb,
    judge_index,
    judge_registry,
    judge_wheel,
    missing,
    normal,
    read_lock,
)

LOCKS = ("requirements-cpu.lock", "requirements-dev.lock")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INDEX_DEADLINE_S = 5.0
SAID_EVERY_S = 10.0  # where it is not a terminal


def say(line: str) -> None:
    print(f"setup: {line}", flush=True)


def in_place(site: Path) -> dict[str, str]:
    """Versions of the packages whose installation came to its end: INSTALLER is what pip and uv write last."""
    found = [file.parent.name.removesuffix(".dist-info").rpartition("-") for file in site.glob("*.dist-info/INSTALLER")]
    return {normal(name): version for name, _, version in found}


def sweep(site: Path) -> int:
    """Forget the packages an interrupted run left half-way: pip would take them for installed. Returns how many."""
    begun = [folder for folder in site.glob("*.dist-info") if not (folder / "INSTALLER").exists()]
    for folder in begun:
        shutil.rmtree(folder)
    return len(begun)


def fetch_page(url: str) -> str | OSError:
    """What the index lists for torch, or why it does not answer."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/torch/", timeout=INDEX_DEADLINE_S) as answer:  # noqa: S310 - the index is named by the person who runs this
            return str(answer.read().decode(errors="replace"))
    except (OSError, ValueError) as error:  # ValueError: it is no URL
        return OSError(str(getattr(error, "reason", error)))


class Environment:
    """Every step may be repeated, and each finds out for itself what is left to do; the stamp says that all were done."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self.root, self.environ = root, environ
        self.venv = root / ".venv"
        self.python = self.venv / "bin" / "python"
        self.site = self.venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        self.log, self.stamp = self.venv / "setup.log", self.venv / "setup.json"
        self.lock = {name: version for file in LOCKS for name, version in read_lock((root / file).read_text()).items()}
        self.uv = shutil.which("uv", path=environ.get("PATH"))
        self.megabytes = 0.0

    def complete(self) -> None:
        """Install what is missing, then prove it. A complete environment costs one line."""
        started, done, forced = time.monotonic(), self.stamped(), self.environ.get("TORCH_SOURCE", "")
        torch_stays = bool(done) and forced in {"", done["torch"]}
        if torch_stays and done == {**done, **self.key()} and self.python.exists() and not self.lacking():
            say(f".venv is complete: {len(self.lock)} packages, torch from the {done['torch']}; nothing to install")
            return
        self.make(moved=bool(done) and done["root"] != str(self.root))
        torch_stays = torch_stays and self.stamp.exists() and f"torch=={self.lock['torch']}" not in self.lacking()
        self.stamp.unlink(missing_ok=True)
        if swept := sweep(self.site):
            say(f"an earlier run was interrupted: {swept} packages are done again")
        origin = done["torch"] if torch_stays else self.install_torch(forced)
        if lacking := self.lacking():
            self.install(f"{len(lacking)} packages of the lock files", "--no-deps", *lacking)
        self.install("this checkout", "--no-deps", "--no-build-isolation", "--editable", str(self.root))
        version = self.prove(cuda_allowed=origin == "registry")
        self.stamp.write_text(json.dumps({**self.key(), "torch": origin}))
        say(
            f"ready in {time.monotonic() - started:.0f} s: {len(self.lock)} packages, torch {version}; "
            f"{self.megabytes:.0f} MB downloaded, as {'uv' if self.uv else 'pip'} counts in .venv/{self.log.name}"
        )

    def key(self) -> dict[str, str]:
        """What a finished environment was made from; the folder too, since scripts and the editable install name it."""
        files = b"\0".join((self.root / file).read_bytes() for file in (*LOCKS, "pyproject.toml"))
        return {"inputs": hashlib.sha256(files).hexdigest(), "python": self.site.parent.name, "root": str(self.root)}

    def stamped(self) -> dict[str, str]:
        with contextlib.suppress(OSError, ValueError):  # absent, or cut short
            return dict(json.loads(self.stamp.read_text()))
        return {}

    def lacking(self) -> list[str]:
        return missing(self.lock, in_place(self.site))

    def make(self, *, moved: bool) -> None:
        if self.python.exists() and self.site.is_dir() and not moved:
            return
        say(f"making .venv with Python {platform.python_version()} ({sys.executable})")
        argv = [sys.executable, "-I", "-m", "venv", "--clear", str(self.venv)]
        if importlib.util.find_spec("ensurepip") is None:
            if self.uv:
                argv = [self.uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(self.venv)]
            else:
                self.add_ensurepip()
        self.command(argv, "install.venv")

    def add_ensurepip(self) -> None:
        """Debian and Ubuntu keep the part of Python that makes environments in a package of its own."""
        package = f"python3.{sys.version_info[1]}-venv"
        if os.geteuid() or not shutil.which("apt-get", path=self.environ.get("PATH")):
            raise Refused(
                f"Python: {sys.executable} comes without ensurepip, so it cannot make an environment. "
                f"On Debian and Ubuntu: apt-get install {package} [install.ensurepip]"
            )
        say(f"installing the system package {package}")
        self.command(["apt-get", "update"], "install.ensurepip")
        self.command(["apt-get", "install", "--yes", "--no-install-recommends", package], "install.ensurepip")

    def command(self, argv: list[str], rule: str) -> None:
        """One that ends in seconds."""
        environ = {**self.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            raise Refused(f"{argv[0]}: exit code {done.returncode}. Last words:\n{done.stdout}{done.stderr} [{rule}]")

    def install_torch(self, forced: str) -> str:
        """Returns the name of the source it came from."""
        torch, free_gb = self.lock["torch"], shutil.disk_usage(self.root).free / 1e9
        url = self.environ.get("TORCH_INDEX_URL") or CPU_INDEX
        probes: dict[str, Callable[[], Source]] = {
            "wheel": lambda: judge_wheel(self.pip_report(torch), torch),
            "index": lambda: judge_index(url, fetch_page(url), torch, sys.version_info[:2]),
            "registry": lambda: judge_registry(self.root / LOCKS[0], torch, free_gb),
        }
        source = choose(probes, forced, say)
        self.install("torch", *source.arguments)
        return source.name

    def pip_report(self, torch: str) -> dict[str, Any] | None:
        """What pip would install with no index to ask: the places it was told of beside them (find-links)."""
        argv = [
            str(self.python),
            "-I",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--no-index",
        ]
        argv += ["--no-deps", "--report", "-", f"torch=={torch}"]
        told = subprocess.run(argv, capture_output=True, text=True, check=False, env=self.environ)
        return dict(json.loads(told.stdout)) if told.returncode == 0 else None

    def install(self, what: str, *arguments: str) -> None:
        by_pip = (str(self.python), "-I", "-m", "pip", "install", "--no-input", "--progress-bar", "off")
        # Bytecode, which pip writes unasked: an engine is three processes, and without it each would compile 20 s of imports.
        by_uv = (str(self.uv), "pip", "install", "--python", str(self.python), "--compile-bytecode")
        argv = [*(by_uv if self.uv else by_pip), *arguments]
        say(f"installing {what} with {'uv' if self.uv else 'pip'}")
        with self.log.open("a+") as log:
            log.write(f"\n$ {' '.join(argv)}\n")
            log.flush()
            start = log.tell()
            # A person's own --user default is refused inside an environment; a newer pip is nobody's question here.
            environ = {**self.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
            with subprocess.Popen(argv, stdout=log, stderr=log, env=environ) as child:
                try:
                    code = self.watch(child, start)
                except BaseException:
                    child.terminate()
                    raise
            log.seek(start)
            text = log.read()
        self.megabytes += downloaded_mb(text)
        if code:
            last = "\n".join(text.splitlines()[-15:])
            raise Refused(
                f"{what}: exit code {code}. Last words:\n{last}\n"
                f"All of it is in {self.log}; a new run goes on from here. [install.failed]"
            )

    def watch(self, child: "subprocess.Popen[bytes]", log_start: int) -> int:
        """Says how far it is, on a terminal every second and in place. Returns the exit code."""
        terminal, started, before = sys.stdout.isatty(), time.monotonic(), len(in_place(self.site))
        while True:
            try:
                code = child.wait(timeout=1 if terminal else SAID_EVERY_S)
            except subprocess.TimeoutExpired:
                megabytes = downloaded_mb(self.log.read_bytes()[log_start:].decode(errors="replace"))
                installed = len(in_place(self.site)) - before
                line = f"setup: {time.monotonic() - started:6.0f} s, {megabytes:.0f} MB asked for, {installed} packages in place"
                print(line, end="\r" if terminal else "\n", flush=True)
            else:
                if terminal:
                    print("\033[K", end="", flush=True)
                return code

    def prove(self, *, cuda_allowed: bool) -> str:
        """Every line of the locks is in place and torch imports, in the build that was asked for. Returns its version."""
        if lacking := self.lacking():
            raise Refused(f"lock: still missing after the installation: {', '.join(lacking)}. [install.incomplete]")
        say("checking that torch imports")
        argv = [str(self.python), "-I", "-c", "import torch; print(torch.__version__, torch.version.cuda)"]
        environ = {**self.environ, "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
        told = subprocess.run(argv, capture_output=True, text=True, check=False, env=environ)
        if told.returncode:
            raise Refused(f"torch: does not import. Last words:\n{told.stderr[-1500:]} [install.torch-import]")
        version, cuda = told.stdout.split()
        if cuda != "None" and not cuda_allowed:
            raise Refused(
                f"torch: {version} is built for CUDA {cuda}. Remove .venv and run again. [install.torch-build]"
            )
        return version
