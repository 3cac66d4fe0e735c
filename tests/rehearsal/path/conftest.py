"""The kernels under test, loaded by path: the folder itself never joins this process's sys.path, for it shadows Triton."""

import importlib.util
import os
import sys
from pathlib import Path

STANDINS = Path(__file__).resolve().parents[3] / "spec_toolkit" / "rehearsal" / "path"


def load(name: str, file: Path) -> None:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
load("rehearsal_guard", STANDINS / "rehearsal_guard.py")
load("sgl_kernel", STANDINS / "sgl_kernel" / "__init__.py")
