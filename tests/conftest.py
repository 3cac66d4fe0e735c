"""Shared fixtures: one import-once parent for every test that needs the real engine."""

from collections.abc import Iterator

import pytest

from tests.rehearsal.nursery_client import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """SGLang imported once; engines are forked from it. See tests/engine/serving.py for starting one."""
    with Nursery.start(most=2) as started:
        yield started
