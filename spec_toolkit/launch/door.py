"""Where clients come in: whether anybody can listen there, and what to know before others may. Touches the world."""

import ipaddress
import socket
from dataclasses import dataclass

from spec_toolkit.errors import FactsError, Finding, Verdict
from spec_toolkit.launch.ports import free_ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where clients are to come in."""

    host: str = "127.0.0.1"
    port: int | None = None  # None: a free one

    def findings(self) -> tuple[Finding, ...]:
        """What a person should know who opens it to others."""
        if _is_loopback(self.host):
            return ()
        return (
            Finding(
                rule="deploy.open-host",
                verdict=Verdict.WARN,
                where="--host",
                found=f"is {self.host}: other machines can send requests",
                why="the gateway has neither TLS nor accounts, and prompts travel in the clear",
                remedy="Keep 127.0.0.1 and put a proxy that has both before it, or open it on a network you trust.",
            ),
        )

    def take(self) -> tuple[str, int]:
        """Host and port; raises FactsError where nobody can listen there."""
        if self.port is None and _is_loopback(self.host):
            return self.host, free_ports(1)[0]
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(self.host, self.port or 0, type=socket.SOCK_STREAM)[
                0
            ]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the gateway will
                probe.bind(address)
                return self.host, int(probe.getsockname()[1])
        except (OSError, UnicodeError) as error:  # the latter: no name can read so, and nobody is asked
            said = error.strerror if isinstance(error, OSError) else "no host can be called that"
            raise FactsError.of(
                "deploy.port",
                "--host, --port",
                f"nobody can listen on {self.host}, port {self.port or 'any'}: {said or error}",
                remedy="Choose another, or leave them out for a free port of this machine.",
            ) from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


LOOPBACK = Door()
