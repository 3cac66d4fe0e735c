import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow  # processes of many seconds
@pytest.mark.parametrize("script", ["fuzz.py", "fuzz_commands.py"])
def test_no_bytes_make_a_traceback_or_a_hang(script: str) -> None:
    argv = [sys.executable, Path(__file__).with_name(script), "400", "1"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "tracebacks 0" in ended.stdout
