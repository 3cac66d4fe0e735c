"""Imports the engine once and forks one engine server per request: an engine for each test in seconds, not half a minute.

    python .../rehearsal/nursery.py FOLDER [--most N]

Listens on FOLDER/nursery.sock; the folder is the caller's and private to him (mode 0700). When it listens it prints "ready".
One request a connection, one line of JSON each way:

    {"do": "spawn", "argv": [...], "env": {...}, "log": path}   -> {"pid": n}
    {"do": "kill", "pid": n, "signal": 15}                      -> {}
    {"do": "status", "pid": n}                                  -> {"running": true} or {"exit": code}; below 0: the signal
    anything it cannot do                                       -> {"error": sentence}

`env` is laid over the nursery's own environment after the fork (null unsets), and the entries of its PYTHONPATH go on
sys.path: plugins are found and loaded in the engine. What SGLang and torch read while they are imported
(SGLANG_USE_CPU_ENGINE, OMP_NUM_THREADS, TORCHDYNAMO_DISABLE) must be set for the nursery itself.

It ends, with all its engines, when its standard input closes, on SIGTERM, and when it is killed. Touches processes, a
socket, the environment of its children.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import socket
import stat
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import serve

READ_SECONDS = 5.0  # a caller that connects must have spoken by then
GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL when all engines end
MOST_BYTES = 1 << 20  # of one request


class RefusedError(Exception):
    """The request cannot be carried out; its sentence goes back to the caller."""


class Engines:
    """The engines forked so far: which run, and how the others ended."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._exits: dict[int, int | None] = {}  # pid -> exit code, None while it runs; below 0: the signal

    def spawn(self, argv: list[str], env: dict[str, str | None], log: Path, doors: Sequence[socket.socket]) -> int:
        """Fork an engine; `doors` are the nursery's open sockets, which it must not hold."""
        self.reap()
        running = sum(code is None for code in self._exits.values())
        if running >= self._most:
            raise RefusedError(
                f"{running} engines run, the most allowed. Kill one first, or start with a higher --most."
            )
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            pid = os.fork()
            if pid == 0:
                for door in doors:
                    door.close()
                become_engine(argv, env, output)
        finally:
            os.close(output)
        self._exits[pid] = None
        return pid

    def reap(self) -> None:
        """Note how engines ended, and end what one left behind: while it is unreaped its group's number is its own."""
        for pid in [pid for pid, code in self._exits.items() if code is None]:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with contextlib.suppress(ProcessLookupError):  # it ended before it had a group
                os.killpg(pid, signal.SIGKILL)
            self._exits[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def exit_code(self, pid: int) -> int | None:
        """None while it runs."""
        self.reap()
        if pid not in self._exits:
            raise RefusedError(f"{pid} is not an engine of this nursery.")
        return self._exits[pid]

    def kill(self, pid: int, number: int) -> None:
        """Signal the engine's main process: on SIGTERM it drains and ends its own; whatever ends it, they die with it."""
        if self.exit_code(pid) is None:
            os.kill(pid, number)

    def end_all(self) -> None:
        """SIGTERM to every engine; SIGKILL to those that still run after the grace period."""
        for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
            for pid in self._exits:
                self.kill(pid, number)
            deadline = time.monotonic() + seconds
            while any(self.exit_code(pid) is None for pid in self._exits) and time.monotonic() < deadline:
                time.sleep(0.05)


def become_engine(argv: list[str], env: dict[str, str | None], output: int) -> NoReturn:
    """In the forked child: a session, an environment and a log of its own, then the server until it ends."""
    code = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        apply_environment(env)
        sys.argv = ["serve.py", *argv]
        serve.run_engine(argv)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the log must name whatever ended this process, and no frame of the nursery may go on
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def apply_environment(env: dict[str, str | None]) -> None:
    for name, value in env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    wanted = [entry for entry in (env.get("PYTHONPATH") or "").split(os.pathsep) if entry]
    sys.path[:0] = [entry for entry in wanted if entry not in sys.path]


def answer(request: object, engines: Engines, doors: Sequence[socket.socket]) -> dict[str, object]:
    match request:
        case {"do": "spawn", "argv": list(argv), "env": dict(env), "log": str(log)}:
            return {"pid": engines.spawn([str(word) for word in argv], env, Path(log), doors)}
        case {"do": "kill", "pid": int(pid), "signal": int(number)}:
            engines.kill(pid, number)
            return {}
        case {"do": "status", "pid": int(pid)}:
            code = engines.exit_code(pid)
            return {"running": True} if code is None else {"exit": code}
    raise RefusedError(f"no such request: {request!r}. It takes spawn, kill and status, each with its fields.")


def serve_one(connection: socket.socket, listener: socket.socket, engines: Engines) -> None:
    """Read one line, answer it. Whatever the caller does wrong ends his connection, never the nursery."""
    with connection:
        try:
            line = read_line(connection)
            try:
                reply = answer(json.loads(line), engines, (connection, listener))
            except (RefusedError, ValueError, RecursionError, OSError) as refused:
                reply = {"error": str(refused)}
            connection.sendall(json.dumps(reply).encode() + b"\n")
        except OSError as gone:  # the deadline passed, or the caller went away
            sys.stderr.write(f"nursery: a caller was dropped: {gone}\n")


def read_line(connection: socket.socket) -> bytes:
    """One line within READ_SECONDS altogether, at most MOST_BYTES long."""
    deadline = time.monotonic() + READ_SECONDS
    line = b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        piece = connection.recv(65536)
        if not piece or len(line) > MOST_BYTES:
            raise OSError(f"{len(line)} bytes and no end of line")
        line += piece
    return line


def listen(folder: Path) -> socket.socket:
    """The socket in the caller's folder; refused where anyone else could reach it."""
    found = folder.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise SystemExit(
            f"{folder}: mode {stat.S_IMODE(found.st_mode):04o}; who reaches the socket starts processes. chmod 0700."
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / "nursery.sock"))
    listener.listen(16)
    return listener


def run(folder: Path, most: int) -> None:
    listener = listen(folder)
    serve.prepare()
    engines = Engines(most)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            readable, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in readable and not os.read(0, 4096):
                return
            if listener in readable:
                serve_one(listener.accept()[0], listener, engines)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        engines.end_all()


def main() -> None:
    parser = argparse.ArgumentParser(description="Import SGLang once, fork an engine per request.")
    parser.add_argument("folder", type=Path, help="private folder (0700) for the socket")
    parser.add_argument("--most", type=int, default=4, help="engines that may run at once")
    options = parser.parse_args()
    run(options.folder, options.most)


if __name__ == "__main__":
    main()
