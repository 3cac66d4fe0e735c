"""Whether a stand-in may be imported here: only for the CPU engine, and never where a CUDA device is visible.

Reads the environment and the device folder. Imports nothing heavy: each stand-in calls it before anything else.
"""

import os
from collections.abc import Mapping
from pathlib import Path

DEVICES = Path("/dev")
SWITCH = "SGLANG_USE_CPU_ENGINE"  # SGLang's own switch for its CPU backend; the launcher sets it for a rehearsal


def cuda_devices(devices: Path) -> list[str]:
    """Names of the NVIDIA device nodes in `devices`, which exist exactly where the driver is loaded for a GPU."""
    return sorted(node.name for node in devices.glob("nvidia*") if node.name[6:] == "ctl" or node.name[6:].isdigit())


def permit(standin: str, environ: Mapping[str, str] | None = None, devices: Path | None = None) -> None:
    """Return if `standin` may be imported; else raise a RuntimeError, which no `except ImportError` swallows."""
    environ = os.environ if environ is None else environ
    if environ.get(SWITCH) != "1":
        raise RuntimeError(
            f"{standin}: this is the rehearsal's stand-in, and {SWITCH} is not 1; it would shadow the real package. "
            "Take rehearsal/path off PYTHONPATH."
        )
    hidden = environ.get("CUDA_VISIBLE_DEVICES") in (
        "",
        "-1",
    )  # as CUDA reads it: no process of this environment sees one
    found = cuda_devices(DEVICES if devices is None else devices)
    if found and not hidden:
        raise RuntimeError(
            f"{standin}: this is the rehearsal's stand-in, and this machine has a CUDA device ({', '.join(found)}); "
            "a GPU must run the real package. Take rehearsal/path off PYTHONPATH, or hide the device: CUDA_VISIBLE_DEVICES= ."
        )
