"""How a deployment stands, put together from what its processes write down. Touches the disk."""

import time
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from spec_toolkit.gateway.counters import Snapshot as Counted
from spec_toolkit.launch.deployment import Folder, Status
from spec_toolkit.launch.ending import ENDED_PHASES, look
from spec_toolkit.sidecar.records import Hold, Snapshot, age_seconds


class _OfARun(Protocol):
    @property
    def run(self) -> str: ...
    @property
    def wall_s(self) -> float: ...


_Record = TypeVar("_Record", bound=Struct)
_Snapshot = TypeVar("_Snapshot", bound=_OfARun)


class Standing(Struct, frozen=True, kw_only=True):
    """None: not there, not of this run, of one that is over, or not readable; then nothing is known of it."""

    status: Status
    policy: Snapshot | None  # as the sidecar wrote it last
    policy_age_seconds: float | None  # since it did; None where the clock was set back behind that
    gateway: Counted | None
    gateway_age_seconds: float | None  # likewise
    held: Hold | None  # as a person asked for; whether it is carried out stands in the policy


def read_standing(folder: Folder) -> Standing:
    status = look(folder)
    policy = _current(_read(folder.sidecar_snapshot, Snapshot), status)
    gateway = _current(_read(folder.gateway_snapshot, Counted), status)
    now_s = time.time()  # noqa: TID251 - an edge: the age of a file
    return Standing(
        status=status,
        policy=policy,
        policy_age_seconds=age_seconds(policy.wall_s, now_s) if policy else None,
        gateway=gateway,
        gateway_age_seconds=age_seconds(gateway.wall_s, now_s) if gateway else None,
        held=None if status.phase in ENDED_PHASES else _read(folder.hold, Hold),
    )


def _current(found: _Snapshot | None, status: Status) -> _Snapshot | None:
    return found if found is not None and found.run == status.run and status.phase not in ENDED_PHASES else None


def _read(path: Path, kind: type[_Record]) -> _Record | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def as_record(standing: Standing) -> dict[str, object]:
    """The status, and beside its fields what the others say."""
    whole: dict[str, object] = msgspec.to_builtins(standing)
    status = whole.pop("status")
    return {**status, **whole} if isinstance(status, dict) else whole
