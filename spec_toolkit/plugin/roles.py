"""Which engine process this is. Reads the call stack, because plugins load before the process has a title or a config."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from spec_toolkit.handover import RANKS, Role, process_name

# The engine functions that load plugins first thing in a child. Whoever else loads them is the launcher.
_ENTRY_FUNCTIONS = {
    "run_scheduler_process": Role.SCHEDULER,
    "run_detokenizer_process": Role.DETOKENIZER,
    "run_data_parallel_controller_process": Role.DP_CONTROLLER,
}


@dataclass(frozen=True, slots=True)
class EngineProcess:
    role: Role
    ranks: dict[str, int]  # of handover.RANKS, those this process was started with

    def __str__(self) -> str:
        return process_name(self.role, self.ranks)


def this_process() -> EngineProcess:
    """The innermost entry function on the stack names the role and its arguments hold the ranks.

    Innermost, because a forked child still has its parent's frames below its own.
    """
    for frame in _frames():
        role = _ENTRY_FUNCTIONS.get(frame.f_code.co_name)
        if role is not None:
            arguments = frame.f_locals
            found = {rank: arguments.get(f"{rank}_rank") for rank in RANKS}
            return EngineProcess(role, {rank: value for rank, value in found.items() if isinstance(value, int)})
    return EngineProcess(Role.LAUNCHER, {})


def _frames() -> Iterator[FrameType]:
    frame = sys._getframe(1)  # noqa: SLF001 - the one way to ask who loads the plugins
    following: FrameType | None = frame
    while following is not None:
        yield following
        following = following.f_back
