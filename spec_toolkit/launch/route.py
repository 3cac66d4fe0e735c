"""Where requests go now: what the supervisor tells the gateway and the sidecar, a JSON line at each change. Pure.

It comes on their standard input, so that the same pipe says that the supervisor is gone: it closes, and they end.
"""

import msgspec
from msgspec import Struct


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    generation: int  # counts changes from 1
    address: str  # of the engine that takes requests; empty: none does now
    engine: int  # which of the deployment's engines that is, counted from 1; 0: none
    speculates: bool  # whether that engine can draft
    steps: int  # the ceiling on draft passes it was handed over with; 0 where it does not draft
    returning: bool = False  # another engine is being started to take over; what cannot wait may be told so
    lost: int = 0  # speculating engines of this deployment that ended or hung without being asked, so far
    why: str = ""  # of the last change, for people


def encode_route(route: Route) -> bytes:
    return msgspec.json.encode(route) + b"\n"


def decode_route(line: bytes) -> Route:
    """Raises msgspec.DecodeError where the line is none."""
    return msgspec.json.decode(line, type=Route)
