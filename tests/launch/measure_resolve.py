"""What asking the engine's resolver costs beside importing the engine: `python -m tests.launch.measure_resolve`. Prints a table.

Pairs, interleaved, so that what else the machine does falls on both: the import alone, and a whole cold `spec-toolkit resolve` with its
process start, plan, child and text. Imported is `sglang`, and `sglang.srt.server_args`, which the engine itself imports before it resolves,
in the environment that the child has; without Triton installed both need the rehearsal's stand-ins. Then kept answers.
"""

import argparse
import importlib.util
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAME = {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--pairs", type=int, default=5)
    options.add_argument("--recipe", default="deepseek_v3_h200")
    asked = options.parse_args()
    stand_ins = {"PYTHONPATH": str(ROOT / "spec_toolkit/rehearsal/path"), "SGLANG_USE_CPU_ENGINE": "1"}
    environment = os.environ | SAME | ({} if importlib.util.find_spec("triton") else stand_ins)
    resolve = [sys.executable, "-m", "spec_toolkit.cli.main", "resolve", asked.recipe]
    packages, imports, colds, kept = [], [], [], []
    for _ in range(asked.pairs):
        packages.append(cost([sys.executable, "-c", "import sglang"], environment))
        imports.append(cost([sys.executable, "-c", "import sglang.srt.server_args"], environment))
        with tempfile.TemporaryDirectory() as cache:
            colds.append(cost(resolve, os.environ | {"XDG_CACHE_HOME": cache}))
            kept.append(cost(resolve, os.environ | {"XDG_CACHE_HOME": cache}))
    lines = [f"{'':24}{'CPU s':>24}{'wall s':>24}   median (least, most) of {asked.pairs}"]
    measured = {"sglang": packages, "its server_args": imports, "resolve, cold": colds, "resolve, kept": kept}
    for name, rows in measured.items():
        lines.append(f"{name:24}{shown([cpu for cpu, _ in rows]):>24}{shown([wall for _, wall in rows]):>24}")
    for name, alone in (("cold over sglang", packages), ("cold over server_args", imports)):
        ratios = [[cold[n] / row[n] for row, cold in zip(alone, colds, strict=True)] for n in (0, 1)]
        lines.append(f"{name:24}{shown(ratios[0]):>24}{shown(ratios[1]):>24}")
    sys.stdout.write("\n".join(lines) + "\n")


def cost(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """CPU and wall seconds, those of its children included."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}, {max(values):.2f})"


if __name__ == "__main__":
    main()
