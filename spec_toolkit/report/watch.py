"""A deployment as it goes on: on a terminal drawn anew each second, elsewhere a block at each change. Prints."""

import os
import select
import stat
import sys
import time
from collections.abc import Iterator

import click

from spec_toolkit.launch.deployment import Folder
from spec_toolkit.launch.ending import ENDED_PHASES
from spec_toolkit.report.policy import block, what_matters
from spec_toolkit.report.said import as_json
from spec_toolkit.report.standing import Standing, as_record, read_standing

_SECONDS = 1.0  # the sidecar writes as often


def watch(folder: Folder, *, records: bool) -> None:
    """Until the deployment has ended, or Ctrl-C."""
    if not records and sys.stdout.isatty():
        _draw(folder)
        return
    shown: object = None
    for standing in _standings(folder):
        if what_matters(standing) != shown:
            shown = what_matters(standing)
            click.echo(as_json(as_record(standing)) if records else f"{block(standing)}\n")


def _draw(folder: Folder) -> None:
    from rich.live import Live  # noqa: PLC0415 - rich costs 60 ms, and only a terminal needs it
    from rich.text import Text  # noqa: PLC0415 - as above

    with Live(auto_refresh=False) as live:
        for standing in _standings(folder):
            live.update(Text(block(standing)), refresh=True)


def _standings(folder: Folder) -> Iterator[Standing]:
    while True:
        standing = read_standing(folder)
        yield standing
        if standing.status.phase in ENDED_PHASES:
            return
        _wait()


def _wait() -> None:
    """A second; BrokenPipeError as soon as nobody reads any more, which a print would find out only at the next change."""
    stdout = sys.stdout.fileno()
    kind = os.fstat(stdout).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        time.sleep(_SECONDS)
        return
    reader = select.poll()
    reader.register(stdout, 0)  # of what is told unasked: POLLERR, POLLHUP
    if reader.poll(_SECONDS * 1000):
        raise BrokenPipeError
