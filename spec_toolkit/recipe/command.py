"""What a pasted launch command asks for, as a record. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.engine.command_line.parse import Written
from spec_toolkit.errors import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLaunch:
    arguments: Arguments
    written: tuple[Written, ...] = ()  # in the order written; of a flag that is repeated, the last
    environment: Mapping[str, str] = field(default_factory=dict)  # set for the engine; secrets are "***"
    image: str | None = None  # of a container around it
    sglang: str | None = None  # the version that the image's tag names
    gpus: int | None = None  # that the command lets the engine see; None: not said
    shared_memory_bytes: int | None = None  # of /dev/shm, where a container says so
    findings: tuple[Finding, ...] = ()
