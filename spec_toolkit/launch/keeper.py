"""The parent of one engine: nothing it started outlives it, or the supervisor above it. Touches the world; stdlib only.

Run as `python keeper.py LIFELINE_FD GRACE_SECONDS -- COMMAND...`. It stands between the supervisor and the engine because the
engine is a tree: a scheduler whose parent dies while it still imports has not yet asked the kernel to be killed with it, and
would live on as an orphan. The keeper is a child subreaper, so that orphans fall to it, and it ends the whole tree when

- the engine's first process ends, however,
- the supervisor's end of the lifeline closes, which the kernel sees to even at `kill -9`,
- it is told to stop (SIGTERM, SIGINT): then the engine gets SIGTERM and GRACE_SECONDS first.

It exits with the engine's exit code, 128 + n for signal n.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _die_with(parent: int) -> None:
    """In the engine's first process before it becomes the engine: the last resort, should the keeper itself be killed."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def descendants(root: int) -> list[int]:
    """Process ids below `root`, from /proc; a snapshot."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # ended while we looked
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def end_tree() -> None:
    """Kill and reap everything below us; orphans fall to us, so it ends when we have no child left."""
    pause_seconds = 0.01
    while True:
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(pause_seconds)  # a killed process takes a moment to die; one inside a driver call, longer
        pause_seconds = min(2 * pause_seconds, 1.0)


class _Stop(Exception):  # noqa: N818 - a request, not an error
    pass


def _be_deaf() -> None:
    """From here on nothing may interrupt the ending of the tree."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _on_signal(number: int, _frame: object) -> None:
    _be_deaf()
    raise _Stop(signal.Signals(number).name)


def keep(lifeline: int, grace_seconds: float, command: list[str]) -> int:
    _prctl(_SET_CHILD_SUBREAPER, 1)
    os.set_inheritable(lifeline, False)
    myself, engine, code = os.getpid(), None, None
    try:
        signal.signal(signal.SIGTERM, _on_signal)
        signal.signal(signal.SIGINT, _on_signal)
        # A preexec function is safe here: this process has one thread and nothing but the standard library.
        engine = subprocess.Popen(command, preexec_fn=lambda: _die_with(myself))  # noqa: PLW1509, S603 - see above; our own argv
        code = _wait(engine, lifeline, None)
    except _Stop:
        if engine is not None:
            engine.terminate()
            code = _wait(engine, lifeline, grace_seconds)
    finally:
        try:
            _be_deaf()
        finally:  # a last signal may come between the two
            end_tree()
    if code is None:
        return 128 + signal.SIGKILL
    return code if code >= 0 else 128 - code


def _wait(engine: subprocess.Popen[bytes], lifeline: int, seconds: float | None) -> int | None:
    """The engine's return code; None where the lifeline closes or the time is over first."""
    pidfd = os.pidfd_open(engine.pid)
    ready, _, _ = select.select([lifeline, pidfd], [], [], seconds)
    return engine.wait() if pidfd in ready else None


if __name__ == "__main__":
    separator = sys.argv.index("--")
    fd, grace = sys.argv[1:separator]
    sys.exit(keep(int(fd), float(grace), sys.argv[separator + 1 :]))
