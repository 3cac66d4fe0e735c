"""One request over HTTP to somebody else's server: bounded in time and size, no redirect followed. Touches the network.

A server on this machine is asked past any proxy. A redirect is not followed because a token would travel with it.
"""

import ipaddress
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import IO, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

LARGEST_BYTES = 4 * 2**20  # of an answer; what is beyond is not read


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Message
    body: bytes


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0913, PLR0917 - urllib's signature
        self,
        req: urllib.request.Request,  # noqa: ARG002 - urllib's signature
        fp: IO[bytes],  # noqa: ARG002 - as above
        code: int,  # noqa: ARG002 - as above
        msg: str,  # noqa: ARG002 - as above
        headers: Message,  # noqa: ARG002 - as above
        newurl: str,  # noqa: ARG002 - as above
    ) -> None:
        return None


def send(method: str, address: str, headers: Mapping[str, str], timeout_seconds: float) -> Answer:
    """OSError where nobody answers, ValueError or http.client's own for what is no answer; the timeout is for each packet."""
    request = urllib.request.Request(address, headers=dict(headers), method=method)  # noqa: S310 - http(s): see below
    if urlsplit(address).scheme not in {"http", "https"}:
        raise ValueError(address)
    direct = [urllib.request.ProxyHandler({})] if is_loopback(urlsplit(address).netloc) else []
    try:
        with urllib.request.build_opener(_NoRedirects, *direct).open(request, timeout=timeout_seconds) as answer:
            return Answer(answer.status, answer.headers, answer.read(LARGEST_BYTES + 1))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, b"")


def in_time(ask: Callable[[], T], deadline_seconds: float) -> T | None:
    """None where it takes longer. In a thread of its own: a server that trickles would hold us for ever. `ask` may not raise."""
    answers: list[T] = []
    thread = threading.Thread(target=lambda: answers.append(ask()), daemon=True)
    thread.start()
    thread.join(deadline_seconds)
    return answers[0] if answers else None


def is_loopback(host: str) -> bool:
    """Whether a host, with or without a port, is this machine by its own name or address. Pure."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
