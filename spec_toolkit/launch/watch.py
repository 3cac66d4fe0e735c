"""Noticing the end of single engine processes (a scheduler, the detokenizer) at once; the engine itself takes seconds. Touches the world."""

import asyncio
import os
import select

from spec_toolkit.handover import Role


class Watch:
    """Sets `lost` to the name of the first one that ends."""

    def __init__(self, lost: "asyncio.Future[str]") -> None:
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._watched: dict[int, str] = {}  # name by pidfd

    def over(self, pids: dict[int, str]) -> None:
        for pid, name in pids.items():
            who = f"{name} (pid {pid})"
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                self._tell(who)
                continue
            self._watched[descriptor] = who
            self._loop.add_reader(descriptor, self._ended, descriptor)

    def close(self) -> None:
        for descriptor in list(self._watched):
            self._forget(descriptor)

    def _ended(self, descriptor: int) -> None:
        # The launcher's children die with it, and all of them may be noticed at once: then it was the launcher.
        ready, _, _ = select.select([*self._watched], [], [], 0)
        ended = [self._watched[each] for each in ready]
        launcher = next((who for who in ended if is_launcher(who)), None)
        self._tell(launcher or self._watched[descriptor])
        self._forget(descriptor)

    def _forget(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        del self._watched[descriptor]
        os.close(descriptor)

    def _tell(self, who: str) -> None:
        if not self._lost.done():
            self._lost.set_result(f"{who} ended")


def is_launcher(who: str) -> bool:
    """Whether what ended is the engine's first process, whose exit code says more than its name."""
    return who.startswith(Role.LAUNCHER.value)
