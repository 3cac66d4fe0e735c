"""The training code is run by path: its folder is on the path of `train.py` and of these tests, and of nothing else."""

import sys
from pathlib import Path

import pytest

REHEARSAL = Path(__file__).resolve().parents[2] / "spec_toolkit" / "rehearsal"
sys.path.insert(0, str(REHEARSAL / "training"))


@pytest.fixture(scope="session")
def model() -> Path:
    """The committed tiny DeepSeek-V3."""
    return REHEARSAL / "models" / "deepseek_v3_tiny"
