import ast
import importlib.util
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import psutil
import pytest
import torch

from spec_toolkit.fingerprint import package_folder
from spec_toolkit.launch.nursery import NURSERY, Nursery, NurseryError
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.shipped import rehearsal
from tests.rehearsal.rehearsed import arguments, greedy, held_out, patched, wait_ready

NCCL = "srt/distributed/device_communicators/pynccl_wrapper.py"


def load(name: str) -> object:
    """A module of the rehearsal, by path; `nursery` imports `serve` by name."""
    spec = importlib.util.spec_from_file_location(name, rehearsal() / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


serve_module = load("serve")
nursery_module = load("nursery")


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
def test_a_folder_that_others_can_enter_is_refused(tmp_path, mode):
    tmp_path.chmod(mode)
    done = subprocess.run(
        [sys.executable, str(NURSERY), str(tmp_path)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"mode 0{mode:o}; who reaches the socket starts processes" in done.stderr


def test_a_caller_that_says_nothing_is_dropped_after_the_deadline(monkeypatch):
    monkeypatch.setattr(nursery_module, "READ_SECONDS", 0.2)
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(b'{"do": ')  # and never the rest
        begin = time.monotonic()
        nursery_module.serve_one(theirs, theirs, nursery_module.Engines(1))
        assert 0.1 < time.monotonic() - begin < 5
        assert ours.recv(100) == b""


def test_a_request_without_end_is_dropped(monkeypatch):
    monkeypatch.setattr(nursery_module, "MOST_BYTES", 1000)
    ours, theirs = socket.socketpair()
    with ours:
        talker = threading.Thread(target=lambda: ours.sendall(b"x" * 100_000))
        talker.start()
        with pytest.raises(OSError, match="no end of line"), theirs:
            nursery_module.read_line(theirs)
        talker.join(5)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(["spawn"], id="not-an-object"),
        pytest.param({"do": "spawn", "argv": "x", "env": {}, "log": "y"}, id="argv-is-text"),
        pytest.param({"do": "status"}, id="no-pid"),
        pytest.param({"do": "kill", "pid": os.getpid(), "signal": 0}, id="a-process-that-is-none-of-its-engines"),
        pytest.param({"do": "status", "pid": 1}, id="init"),
    ],
)
def test_what_it_cannot_do_is_refused(request_):
    with pytest.raises(nursery_module.RefusedError):
        nursery_module.answer(request_, nursery_module.Engines(1), ())


def test_the_environment_is_laid_over_its_own_and_new_path_entries_come_first(monkeypatch):
    monkeypatch.setenv("TO_GO", "1")
    monkeypatch.setattr(sys, "path", ["/old"])
    monkeypatch.setattr(os, "environ", os.environ.copy())
    nursery_module.apply_environment({"TO_GO": None, "TO_COME": "2", "PYTHONPATH": "/new:/old"})
    assert ("TO_GO" in os.environ, os.environ["TO_COME"], sys.path) == (False, "2", ["/new", "/old"])


def engine_module(name: str, **bound: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(bound)
    return module


def test_a_hook_reaches_every_module_that_imported_its_target_before_the_fork_or_after(monkeypatch):
    def step() -> None: ...

    def other() -> None: ...

    step.__module__ = other.__module__ = "sglang.work"
    home = engine_module("sglang.work", step=step)
    early = engine_module("early", step=step, other=other, again=step)
    changed = engine_module("changed", step=step)
    monkeypatch.setattr(sys, "modules", {"sglang.work": home, "early": early, "changed": changed})
    bindings = serve_module.Bindings(sys.modules)
    sys.modules["late"] = late = engine_module("late", step=step, other=other)
    changed.step = other

    def hooked() -> None: ...

    assert bindings.propagate(step, hooked, home) == 3
    assert (early.step, early.again, early.other, late.step, late.other) == (hooked, hooked, other, hooked, other)
    assert (home.step, changed.step) == (
        step,
        other,
    )  # the engine sets the first itself; the second is another function now


def test_what_is_not_the_engines_is_looked_for_as_the_engine_does(monkeypatch):
    def theirs() -> None: ...

    module = engine_module("early", theirs=theirs, table={})
    monkeypatch.setattr(sys, "modules", {"early": module})
    assert serve_module.Bindings(sys.modules).propagate(theirs, print, None) == 1
    assert module.theirs is print


def test_a_torch_for_cuda_has_no_nccl_to_offer_the_ranks_of_a_cpu(monkeypatch):
    """SGLang 0.5.23 hands the library a CPU device wherever it finds one, and ends."""
    source = ast.parse((package_folder("sglang") / NCCL).read_text())
    [finder] = [each for each in source.body if getattr(each, "name", "") == "find_nccl_library"]
    scope = {"os": os, "torch": torch, "logger": logging.getLogger("nccl")}
    exec(compile(ast.Module([finder], []), NCCL, "exec"), scope)  # noqa: S102 - the installed engine's source
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert scope["find_nccl_library"]() == "libnccl.so.2"
    serve_module.pass_for_a_cpu_build()
    with pytest.raises(ValueError, match="NCCL only supports"):
        scope["find_nccl_library"]()


@pytest.fixture(scope="module")
def nursery():
    with Nursery.start(most=2) as started:
        yield started


def engine(nursery: Nursery, folder: Path, *more: str, **shape: int) -> tuple[int, int, float]:
    """Spawn one and wait; (pid, port, seconds until it answered)."""
    folder.mkdir(parents=True, exist_ok=True)
    port, log = free_engine_port(), folder / "engine.log"
    pid = nursery.spawn(arguments(port, *more, **shape), patched(folder), log)
    return pid, port, wait_ready(port, lambda: nursery.exit_code(pid), log)


@pytest.mark.engine
@pytest.mark.parametrize(
    "overlap",
    [
        pytest.param([], id="overlap"),
        pytest.param(["--disable-overlap-schedule"], id="no-overlap", marks=pytest.mark.matrix),
    ],
)
def test_chains_and_trees_write_what_the_target_alone_writes(nursery, tmp_path, overlap):
    prompts = held_out(4)
    written, emitted_lengths = {}, {}
    shapes = {
        "alone": {"num_steps": 0},
        "chain": {"num_steps": 3},
        "tree": {"num_steps": 3, "topk": 3, "num_draft_tokens": 8},
    }
    for name, shape in shapes.items():
        pid, port, seconds = engine(nursery, tmp_path / name, *overlap, **shape)
        assert seconds < 120
        answers = [greedy(port, prompt, tokens=32) for prompt in prompts]
        written[name] = [ids for ids, _ in answers]
        emitted_lengths[name] = [meta.get("spec_accept_length", 1.0) for _, meta in answers]
        nursery.kill(pid, signal.SIGKILL)
        assert nursery.wait(pid, 10) == -signal.SIGKILL
    assert written["chain"] == written["alone"]
    assert written["tree"] == written["alone"]
    assert min(emitted_lengths["chain"] + emitted_lengths["tree"]) > 1.2, emitted_lengths


@pytest.mark.engine
def test_it_bounds_its_engines_and_says_how_each_ended(nursery, tmp_path):
    first, second = (nursery.spawn(["--no-such-flag"], {}, tmp_path / f"{n}.log") for n in "ab")
    assert {nursery.wait(first, 60), nursery.wait(second, 60)} == {2}
    assert "the following arguments are required: --model-path" in (tmp_path / "a.log").read_text()

    (idle, _, _), (asked, port, _) = (engine(nursery, tmp_path / n, num_steps=0) for n in "cd")
    greedy(port, held_out(1)[0], tokens=4)
    with pytest.raises(NurseryError, match="2 engines run, the most allowed"):
        nursery.spawn([], {}, tmp_path / "e.log")
    nursery.kill(asked)
    assert nursery.wait(asked, 90) == 0
    # SGLang drains by a handler that its first request brings; until then its HTTP server closes and dies of the signal.
    nursery.kill(idle)
    assert nursery.wait(idle, 90) == -signal.SIGTERM
    killed, _, _ = engine(nursery, tmp_path / "f", num_steps=0)
    nursery.kill(killed, signal.SIGKILL)
    assert nursery.wait(killed, 10) == -signal.SIGKILL


def outliving(family: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run after a moment; they are ended, so that a failure leaves nothing behind."""
    left = psutil.wait_procs(family, timeout=5)[1]
    for one in left:
        one.kill()
    return left


@pytest.mark.engine
@pytest.mark.parametrize("end", ["stdin-closes", pytest.param("sigterm", marks=pytest.mark.matrix), "sigkill"])
def test_no_engine_outlives_its_nursery(tmp_path, end):
    with Nursery.start() as nursery:
        pid, _, _ = engine(nursery, tmp_path)
        main = psutil.Process(pid)
        family = [main, *main.children(recursive=True)]
        assert len(family) >= 3
        if end != "stdin-closes":
            nursery.process.send_signal(signal.SIGTERM if end == "sigterm" else signal.SIGKILL)
            nursery.process.wait(90)
            assert outliving(family) == []
    assert outliving(family) == []
