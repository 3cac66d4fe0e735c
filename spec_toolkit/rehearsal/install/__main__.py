"""Makes `.venv`: the pinned CPU engine, the toolkit's own dependencies, the development tools and this checkout.

Standard library only, and run by path before anything is installed: `python3.11 -I spec_toolkit/rehearsal/install`.

A package counts as in place once its installer has written its last file, so an interrupted run is continued and a changed
lock costs only the difference. torch has three possible origins, tried in this order, each said in a line:

    wheel      a CPU build pip finds outside package indexes (its configured find-links): a closed machine's disk
    index      PyTorch's CPU index, or the one TORCH_INDEX_URL names
    registry   the package registry's CUDA build with the libraries it needs, about 3 GB; it imports without a GPU

TORCH_SOURCE=wheel|index|registry takes that one and no other. uv does the work where it is on the PATH, else pip.
"""

import contextlib
import fcntl
import os
import platform
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from choice import CPU_FREE_GB, Refused, machine_complaints
from environment import Environment, say


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """One set-up at a time in a checkout. The lock is on the folder itself, so there is no file to leave behind."""
    folder = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up of this checkout")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def look_at_machine(root: Path) -> None:
    """Refuses with everything that stands in the way, a line each."""
    begun = (root / ".venv").is_dir()  # then most of the disk it needs is taken already
    complaints = "\n".join(
        machine_complaints(
            system=platform.system(),
            machine=platform.machine(),
            libc=os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None,
            python=sys.version_info[:2],
            free_gb=CPU_FREE_GB if begun else shutil.disk_usage(root).free / 1e9,
        )
    )
    if complaints:
        raise Refused(complaints)


def main(root: Path) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `make` stopped from outside takes pip with it
    try:
        look_at_machine(root)
        with alone(root):
            Environment(root, os.environ).complete()
    except Refused as error:
        print(error, file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("setup: stopped; a new run goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[3]))
