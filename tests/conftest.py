"""Shared by all rooms: one import-once parent for every test that needs the real engine, and how property tests run."""

import os
from collections.abc import Iterator

# As in the Makefile: two workers whose torch takes every core each wait for one another, ten times as long as they work.
os.environ.setdefault("OMP_NUM_THREADS", "1")

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
