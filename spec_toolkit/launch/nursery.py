"""Many CPU engines for the price of one import: `with Nursery.start() as nursery: pid = nursery.spawn(argv, env, log)`.

The client of `rehearsal/nursery.py`, which it starts as a child and ends with every engine on leaving. For rehearsals and tests; a
deployment's engines have keepers of their own. Touches processes.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from spec_toolkit.engine import names
from spec_toolkit.engine.log import last_words
from spec_toolkit.errors import ActError
from spec_toolkit.shipped import rehearsal

NURSERY = rehearsal() / "nursery.py"
IMPORT_SECONDS = 480.0  # the engine's imports on a busy machine
ANSWER_SECONDS = 15.0
_END_SECONDS = 90.0  # all of its engines drain
_SOCKET_PATH_BYTES = 107  # sun_path of unix(7), without its closing zero
_GONE_SECONDS = 1.0  # from its socket's end to its own
_TAIL = 40  # lines of its log
_WORDS = 400  # characters of them


class NurseryError(ActError):
    """The nursery refused a request, did not answer in time, or did not start."""


class NurseryGoneError(NurseryError):
    """It has ended, and every engine of its with it."""


class Nursery:
    """One running nursery. Every call has a deadline."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self._socket = folder / "nursery.sock"

    @classmethod
    @contextmanager
    def start(
        cls,
        env: Mapping[str, str] | None = None,
        *,
        most: int = 4,
        script: Path = NURSERY,
        home: Path | None = None,
    ) -> Iterator["Nursery"]:
        """Import the engine (half a minute) and wait until it listens; end it and every engine on leaving.

        `script`: a copy of the nursery beside altered kernels, for a test that plants a fault. `home`: the caller's private folder
        (0700) for its socket and `nursery.log`; without one the socket has a folder of its own and it talks to standard error.
        """
        log = home / "nursery.log" if home else None
        with nullcontext(home) if home else _home() as folder:
            _refuse_long(folder)
            with log.open("wb") if log else nullcontext() as said:
                process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, str(script), str(folder), "--most", str(most)],
                    env={**os.environ, **engine_environment(script), **(env or {})},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    text=True,
                    start_new_session=True,  # Ctrl-C is for whoever started it, who then ends it
                )
            try:
                try:
                    _wait_until_ready(process, log)
                except BaseException:
                    process.kill()  # it has no engine yet, and would first finish its imports
                    raise
                yield cls(process, folder)
            finally:
                _end(process)
                (folder / "nursery.sock").unlink(missing_ok=True)  # a home may have another

    def spawn(self, argv: Sequence[str], env: Mapping[str, str | None], log: Path) -> int:
        """Fork an engine server with launch_server's arguments; returns its pid at once."""
        return int(self._ask({"do": "spawn", "argv": list(argv), "env": dict(env), "log": str(log)})["pid"])

    def kill(self, pid: int, number: int = signal.SIGTERM) -> None:
        """Signal the engine's main process; its children die with it."""
        self._ask({"do": "kill", "pid": pid, "signal": int(number)})

    def exit_code(self, pid: int) -> int | None:
        """None while it runs; below 0 the signal that ended it."""
        reply = self._ask({"do": "status", "pid": pid})
        return None if reply.get("running") else int(reply["exit"])

    def wait(self, pid: int, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            code = self.exit_code(pid)
            if code is not None:
                return code
            time.sleep(0.05)
        raise NurseryError.of("nursery.undead", f"engine {pid}", f"still runs {seconds:.0f} s after it was to end")

    def _ask(self, request: Mapping[str, object]) -> dict[str, int]:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(ANSWER_SECONDS)
                connection.connect(str(self._socket))
                connection.sendall(json.dumps(request).encode() + b"\n")
                reply = connection.makefile("rb").readline()
        except TimeoutError as error:
            found = f"did not answer a request ({request['do']}) within {ANSWER_SECONDS:g} s"
            raise NurseryError.of("nursery.slow", "nursery", found) from error
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise NurseryGoneError.of("nursery.gone", "nursery", f"cannot be reached ({error})") from error
        except OSError as error:
            raise self._broken_off(str(error)) from error
        if not reply:
            raise self._broken_off("no answer")
        answer: dict[str, int] = json.loads(reply)
        if "error" in answer:
            raise NurseryError.of("nursery.refused", "nursery", str(answer["error"]))
        return answer

    def _broken_off(self, how: str) -> NurseryError:
        try:
            code = self.process.wait(timeout=_GONE_SECONDS)
        except subprocess.TimeoutExpired:
            return NurseryError.of("nursery.refused", "nursery", f"broke off a request ({how})")
        return NurseryGoneError.of("nursery.gone", "nursery", f"ended with exit code {code} and did not answer")


def engine_environment(script: Path = NURSERY) -> dict[str, str]:
    """What SGLang and torch read while they are imported."""
    return {
        names.USE_CPU_ENGINE: "1",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "PYTHONPATH": str(script.parent / "path"),
    }


@contextmanager
def _home() -> Iterator[Path]:
    # Not a test's tmp_path, which may be too long for a socket.
    with tempfile.TemporaryDirectory(prefix="nursery-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _refuse_long(folder: Path) -> None:
    length = len(os.fsencode(folder / "nursery.sock"))
    if length > _SOCKET_PATH_BYTES:
        raise NurseryError.of(
            "nursery.long-path",
            str(folder),
            f"its socket's path would have {length} bytes",
            why=f"the kernel takes {_SOCKET_PATH_BYTES}",
            remedy="Set TMPDIR to a shorter folder.",
        )


def _end(process: subprocess.Popen[str]) -> None:
    """Closing its standard input ends it, and it its engines. Raises nothing of its own: whoever used it may have an error to tell."""
    try:
        process.communicate(timeout=_END_SECONDS)
    except subprocess.TimeoutExpired:
        pass  # killed below; its engines die with it
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _wait_until_ready(process: subprocess.Popen[str], log: Path | None) -> None:
    if process.stdout is None:
        raise ValueError("the nursery was started without a pipe to read")
    began, seconds = time.monotonic(), IMPORT_SECONDS
    watchdog = threading.Timer(seconds, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            if line.strip() == "ready":
                return
        code = process.wait()
    finally:
        watchdog.cancel()
    late = time.monotonic() - began >= seconds
    raise NurseryError.of(
        "nursery.not-ready",
        "CPU engine",
        f"was not imported after {seconds:g} s" if late else f"ended with exit code {code} before it could be forked",
        remedy=f"{_said(log)} `make setup` installs what it needs.",
    )


def _said(log: Path | None) -> str:
    if log is None:
        return "Its own words are above."
    lines = log.read_text(errors="replace").splitlines()[-_TAIL:]
    return f'Last words: "{last_words(lines, most=_WORDS)}" ({log}).' if lines else f"It said nothing ({log})."
