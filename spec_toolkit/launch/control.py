"""Asking the supervisor of a deployment for something: one JSON line over its unix socket, one line back. Touches the world."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

from spec_toolkit.errors import ActError
from spec_toolkit.launch.deployment import Folder

_REQUEST_BYTES = 4096
_ANSWER_SECONDS = 5.0


async def serve(folder: Folder, handle: Callable[[str], dict[str, object]]) -> asyncio.Server:
    """Listen for `{"do": VERB}`; only this user can connect. The caller closes the server."""
    path = folder.socket_path()
    path.unlink(missing_ok=True)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), _ANSWER_SECONDS)
            request = json.loads(line)
            writer.write(json.dumps(handle(str(request["do"]))).encode() + b"\n")
            await asyncio.wait_for(writer.drain(), _ANSWER_SECONDS)
        except (ValueError, KeyError, TypeError, TimeoutError, ConnectionError):
            pass  # a caller that breaks off or talks nonsense is no reason to stop an engine
        finally:
            writer.close()

    old = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(talk, path=str(path), limit=_REQUEST_BYTES)
    finally:
        os.umask(old)
    folder.socket_note.write_text(str(path))
    return server


async def ask(folder: Folder, verb: str) -> dict[str, object]:
    try:
        path = Path(folder.socket_note.read_text())
        reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(str(path)), _ANSWER_SECONDS)
        writer.write(json.dumps({"do": verb}).encode() + b"\n")
        line = await asyncio.wait_for(reader.readline(), _ANSWER_SECONDS)
        writer.close()
        answer = json.loads(line)
    except (OSError, TimeoutError, ValueError) as error:
        raise ActError.of(
            "control.no-answer",
            folder.name,
            f"its supervisor did not take {verb!r} ({type(error).__name__})",
            remedy=f"See what it did last: `spec-toolkit logs {folder.name}`.",
        ) from error
    if not isinstance(answer, dict):
        raise ActError.of("control.no-answer", folder.name, f"its supervisor answered {answer!r} to {verb!r}")
    return answer
