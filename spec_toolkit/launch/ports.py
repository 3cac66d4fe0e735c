"""Ports of this machine that nobody listens on now. Touches the world."""

import random
import socket
from collections.abc import Iterable
from pathlib import Path

from spec_toolkit.engine.ports import LAST_HTTP_PORT, ports_taken
from spec_toolkit.errors import FactsError

_FIRST = 15_000  # below it live services with well-known ports
_FIRST_EPHEMERAL = 32_768  # Linux's default
_TRIES = 200


def free_ports(count: int) -> list[int]:
    """A start that loses one to somebody else fails, and the next attempt has another."""
    with_ports = [socket.socket() for _ in range(count)]
    try:
        for held in with_ports:
            held.bind(("127.0.0.1", 0))
        return [held.getsockname()[1] for held in with_ports]
    finally:
        for held in with_ports:
            held.close()


def free_engine_port() -> int:
    """An HTTP port for an engine, with every port that the engine counts off from it free too.

    Below the range that the system hands out by itself where there is room: an engine binds most of its ports long after it was told
    the first, and any connection of this machine could have taken one meanwhile. Raises FactsError where nothing is free.
    """
    last = min(_first_ephemeral() - 1 - (ports_taken(0)[-1]), LAST_HTTP_PORT)
    first, last = (_FIRST, last) if last > _FIRST else (1024, LAST_HTTP_PORT)
    for _ in range(_TRIES):
        port = random.randint(first, last)  # noqa: S311 - apart from others' choices, not secret from them
        if _all_free(ports_taken(port)):
            return port
    raise FactsError.of(
        "deploy.ports",
        "this machine",
        f"{_TRIES} engine ports were tried between {first} and {last}, and of each one or another that goes with it is taken",
        remedy="End what listens there.",
    )


def _all_free(ports: Iterable[int]) -> bool:
    for port in ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def _first_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _FIRST_EPHEMERAL
