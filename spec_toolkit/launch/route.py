"""Where requests go now: what the supervisor tells the gateway and the sidecar, a JSON line at each change. Pure.

It comes on their standard input, so that the same pipe says that the supervisor is gone: it closes, and they end.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

_WHY_CHARACTERS = 500  # a line must fit a pipe in one write


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    generation: int  # counts changes from 1
    address: str  # of the engine that takes requests; empty: none does now
    engine: int  # which of the deployment's engines that is, counted from 1; 0: none
    speculates: bool  # whether that engine can draft
    steps: int  # the ceiling on draft passes it was handed over with; 0 where it does not draft
    returning: bool = False  # another engine is being started to take over; what cannot wait may be told so
    lost: int = 0  # speculating engines of this deployment that ended unasked, so far; one that hangs counts with whoever says so
    why: str = ""  # of the last change, for people


def encode_route(route: Route) -> bytes:
    return msgspec.json.encode(route) + b"\n"


def decode_route(line: bytes) -> Route:
    """Raises msgspec.DecodeError where the line is none."""
    return msgspec.json.decode(line, type=Route)


class Routes:
    """The route that holds now, and whoever is told of each change."""

    def __init__(self, tell: Callable[[Route], None]) -> None:
        self._tell = tell
        self.now = Route(generation=1, address="", engine=0, speculates=False, steps=0, why="no engine has started yet")
        tell(self.now)

    def lead_nowhere(self, **changes: object) -> None:
        """No engine takes requests."""
        self.change(address="", engine=0, speculates=False, steps=0, **changes)

    def change(self, **changes: object) -> None:
        changed = replace(self.now, generation=self.now.generation + 1, **changes)
        self.now = replace(changed, why=changed.why[:_WHY_CHARACTERS])
        self._tell(self.now)
