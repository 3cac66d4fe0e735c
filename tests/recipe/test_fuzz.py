import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).with_name("fuzz.py")


def test_no_bytes_make_a_traceback_or_a_hang() -> None:
    ended = subprocess.run([sys.executable, FUZZ, "400", "1"], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "tracebacks 0" in ended.stdout
