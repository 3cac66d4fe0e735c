"""Reads launches from standard input, writes what the engine makes of each, one line of JSON a launch. Runs where the engine is.

The engine is imported once; each launch is resolved in a fork of this process, because resolving leaves its mark on the environment,
on caches and on loggers. The forks also say which modules they had to import, and the next ones find them imported.
"""

import ctypes
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # our own package, wherever it stands

from spec_toolkit.launch.resolving import absent, described_gpu

del sys.path[0]  # from here on nothing of the engine's environment is shadowed

_WORTH_IMPORTING = 3  # launches to come; for fewer it costs more than it saves
_UNANSWERED = "unanswered"
_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the engine prints is not an answer
    _end_with_whoever_asked()
    signal.alarm(int(float(sys.argv[1])) + 1)
    launches: list[dict[str, Any]] = json.load(sys.stdin)
    started = time.monotonic()
    gpu = next((launch["gpu"] for launch in launches if launch["gpu"]), None)
    importlib.import_module("torch")  # first: it asks for Triton, and takes a stand-in for the real one
    absent.stand_in()
    if gpu:
        described_gpu.describe_to_torch(gpu)
    from spec_toolkit.launch.resolving.ask import ask  # noqa: PLC0415 - imports the engine

    imported_seconds = time.monotonic() - started
    for number, launch in enumerate(launches, 1):
        answer = _in_a_fork(ask, launch)
        imported = answer.pop("imported", ())
        for module in imported if len(launches) - number >= _WORTH_IMPORTING else ():
            _import(module)
        answers.write(json.dumps(answer | {"imported_seconds": round(imported_seconds, 3)}) + "\n")
        answers.flush()


def _end_with_whoever_asked() -> None:
    """However it ended: a command that is terminated in the middle leaves nothing that computes for nobody."""
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[2]):  # it was gone before the kernel was told
        sys.exit(1)


def _in_a_fork(ask: Any, launch: dict[str, Any]) -> dict[str, Any]:
    theirs, ours = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(theirs)
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.alarm(int(launch["deadline_seconds"]) + 1)
        with os.fdopen(ours, "w", encoding="utf-8") as answers, tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            before = set(sys.modules)
            said = ask(launch)
            answers.write(json.dumps(said | {"imported": sorted(set(sys.modules) - before)}))
            answers.flush()
            os.chdir("/")
        os._exit(0)
    os.close(ours)
    text = _read(theirs, launch["deadline_seconds"])
    if text is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if text:
        answer: dict[str, Any] = json.loads(text)
        return answer
    why = f"no answer within {launch['deadline_seconds']:g} s" if text is None else f"wait status {status}"
    return {"outcome": _UNANSWERED, "kind": "Ended", "sentence": why}


def _read(descriptor: int, seconds: float) -> str | None:
    """All that comes; None where the end does not."""
    deadline = time.monotonic() + seconds
    parts: list[bytes] = []
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(descriptor, 65_536)
        if not part:
            os.close(descriptor)
            return b"".join(parts).decode()
        parts.append(part)
    os.close(descriptor)
    return None


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except Exception:  # noqa: BLE001 - only saves the next fork's time
        return


if __name__ == "__main__":
    main()
