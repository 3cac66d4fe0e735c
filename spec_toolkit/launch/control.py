"""Asking the supervisor of a deployment for something: one JSON line over its unix socket, one line back. Touches the world."""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from spec_toolkit.errors import ActError
from spec_toolkit.launch.deployment import Folder, write_private

_REQUEST_BYTES = 4096
_ANSWER_SECONDS = 5.0
_AGAIN_SECONDS = 0.05
_SOCKET_PATH_BYTES = 100  # a unix socket's path holds 107 bytes; its temporary neighbour is a little longer

Handle = Callable[[str, Mapping[str, object]], dict[str, object]]  # verb, arguments -> the answer: ok, and why not


@asynccontextmanager
async def listening(folder: Folder, handle: Handle) -> AsyncIterator[None]:
    """Take `{"do": VERB, ARGUMENT: VALUE, ...}` meanwhile; only this user can connect."""
    path = _make_socket_path(folder)
    path.unlink(missing_ok=True)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), _ANSWER_SECONDS)
            request = dict(json.loads(line))
            verb = str(request.pop("do"))
            writer.write(json.dumps(handle(verb, request)).encode() + b"\n")
            await asyncio.wait_for(writer.drain(), _ANSWER_SECONDS)
        except (ValueError, KeyError, TypeError, RecursionError, TimeoutError, ConnectionError):
            pass  # a caller that breaks off or talks nonsense is no reason to stop an engine
        finally:
            writer.close()

    old = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(talk, path=str(path), limit=_REQUEST_BYTES)
    finally:
        os.umask(old)
    try:
        write_private(folder.socket_note, str(path).encode())
        yield
    finally:
        server.close()
        for file in (folder.socket_note, path):
            file.unlink(missing_ok=True)
        if path.parent != folder.path:
            path.parent.rmdir()


def _make_socket_path(folder: Folder) -> Path:
    """In a fresh folder of its own where the deployment's path is too long for a socket."""
    near = folder.path / "control.sock"
    if len(os.fsencode(near)) <= _SOCKET_PATH_BYTES:
        return near
    return Path(tempfile.mkdtemp(prefix="spec-toolkit-")) / "control.sock"


async def ask(folder: Folder, verb: str, **arguments: object) -> dict[str, object]:
    """What the supervisor answers: `ok`, and `why` where it is not.

    Right after its start it may not listen yet: asked again until the deadline. ActError then.
    """
    deadline = time.monotonic() + _ANSWER_SECONDS
    while True:
        try:
            return await _ask_once(folder, {"do": verb, **arguments})
        except (FileNotFoundError, ConnectionRefusedError) as error:
            if time.monotonic() > deadline:
                raise _not_taken(folder, verb, error) from error
            await asyncio.sleep(_AGAIN_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            raise _not_taken(folder, verb, error) from error


async def _ask_once(folder: Folder, request: Mapping[str, object]) -> dict[str, object]:
    path = _read_note(folder)
    reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(path), _ANSWER_SECONDS)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        answer = json.loads(await asyncio.wait_for(reader.readline(), _ANSWER_SECONDS))
    finally:
        writer.close()
    if not isinstance(answer, dict):
        raise ValueError(f"{answer!r} is no answer")  # noqa: TRY004 - the far side's fault, as text that is no JSON is
    return answer


def _read_note(folder: Folder) -> str:
    return folder.socket_note.read_text()


def _not_taken(folder: Folder, verb: str, error: Exception) -> ActError:
    return ActError.of(
        "control.no-answer",
        folder.name,
        f"its supervisor did not take {verb!r} ({type(error).__name__})",
        remedy=f"See what it did last: `spec-toolkit logs {folder.name} --events`.",
    )
