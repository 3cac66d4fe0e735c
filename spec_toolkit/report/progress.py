"""Events as they come: on a terminal with a moving line, elsewhere as plain lines, for machines as JSON. Prints."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, Self

import click

from spec_toolkit.launch.events import ENDS, Event, Kind
from spec_toolkit.report import said, text


class Progress(Protocol):
    def show(self, event: Event) -> None: ...


class Plain:
    def show(self, event: Event) -> None:
        click.echo(text.event_line(event), err=True)


class Json:
    def show(self, event: Event) -> None:
        click.echo(said.as_json(event))


class Terminal:
    """Lines as Plain, and below them what the engine is at, with a spinner."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - rich costs 60 ms, and only a terminal needs it

        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("the engine imports", spinner="dots")

    def show(self, event: Event) -> None:
        self._console.print(text.event_line(event), markup=False)
        if event.kind is Kind.READY or event.kind in ENDS:
            self._status.stop()
        elif event.kind is Kind.PHASE:
            self._status.update(f"after '{event.phase}'")

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()


@contextmanager
def progress(*, as_json: bool, spinner: bool = True) -> Iterator[Progress]:
    if as_json:
        yield Json()
    elif spinner and sys.stderr.isatty():
        with Terminal() as terminal:
            yield terminal
    else:
        yield Plain()


def show_until(events: Iterable[Event], ends: frozenset[Kind], shown: Progress) -> Event:
    """Show events up to and with the first of kind `ends`; returns it."""
    for event in events:
        shown.show(event)
        if event.kind in ends:
            return event
    raise AssertionError("a deployment's events end with one that says so")
