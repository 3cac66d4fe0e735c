"""Shared by all rooms: one import-once parent for every test that needs the real engine, and how property tests run."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from spec_toolkit.launch.nursery import Nursery

# Without deadlines, since a busy machine's seconds say nothing about the code. `make test-full` asks for "full".
settings.register_profile("house", deadline=None)
settings.register_profile("quick", parent=settings.get_profile("house"), max_examples=20)  # make check
settings.register_profile("full", parent=settings.get_profile("house"), max_examples=1000)
settings.load_profile("house")


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """SGLang imported once; engines are forked from it. See tests/engine/serving.py for starting one."""
    with Nursery.start(most=2) as started:
        yield started
