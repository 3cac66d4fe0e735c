"""How a deployment stands, put together from what its processes write down. Touches the disk."""

import time
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from spec_toolkit.gateway.counters import Snapshot as Counted
from spec_toolkit.launch.deployment import Folder, Status
from spec_toolkit.launch.ending import look
from spec_toolkit.sidecar.records import Hold, Snapshot

_Record = TypeVar("_Record", bound=Struct)


class Standing(Struct, frozen=True, kw_only=True):
    """None: not there, not of this run, or not readable; then nothing is known of it."""

    status: Status
    policy: Snapshot | None  # as the sidecar wrote it last
    policy_age_seconds: float | None  # since it did
    gateway: Counted | None
    held: Hold | None  # as a person asked for; whether it is carried out stands in the policy


def read_standing(folder: Folder) -> Standing:
    status = look(folder)
    policy = _read(folder.sidecar_snapshot, Snapshot)
    if policy is not None and policy.run != status.run:
        policy = None
    now_s = time.time()  # noqa: TID251 - an edge: the age of a file
    return Standing(
        status=status,
        policy=policy,
        policy_age_seconds=max(0.0, now_s - policy.at_s) if policy else None,
        gateway=_read(folder.gateway_snapshot, Counted),
        held=_read(folder.hold, Hold),
    )


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
