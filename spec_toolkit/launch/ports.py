"""Ports of this machine that nobody listens on now. Touches the world."""

import socket


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
