"""How long `plan` and `check` take, process start included: `python -m tests.cli.measure_answers [RUNS] [-- COMMAND ...]`.

Every recipe of the catalogue is asked RUNS times (10), plan and check in turns, each in a process of its own; a COMMAND to compare with
runs after each recipe, once. Prints the medians of wall and processor time and the spread, and the load beside them.
"""

# ruff: noqa: T201 - a command that prints what it measured; the command compared with is the caller's

import os
import resource
import statistics
import subprocess
import sys
import time

from spec_toolkit.recipe.catalogue import catalogue


def timed(argv: list[str]) -> tuple[float, float]:
    """Seconds by the clock and of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ended = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300, check=False)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.returncode in {0, 1}, f"{argv} ended with {ended.returncode}"
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def row(name: str, times: list[tuple[float, float]]) -> str:
    walls, processor = [wall for wall, _ in times], [cpu for _, cpu in times]
    spread = f"{min(walls):.2f} to {max(walls):.2f}"
    return f"{name:<44} {statistics.median(walls):6.3f} {statistics.median(processor):6.3f}   {spread}"


def main() -> None:
    ours = [word for word in sys.argv[1:] if word != "--"]
    runs, other = 10, []
    if "--" in sys.argv:
        at = sys.argv.index("--")
        ours, other = sys.argv[1:at], sys.argv[at + 1 :]
    if ours:
        runs = int(ours[0])
    toolkit = [sys.executable, "-m", "spec_toolkit.cli.main"]
    print(f"load {os.getloadavg()[0]:.1f}\n{'':<44} wall s  cpu s   wall, least to most")
    compared: list[tuple[float, float]] = []
    all_of: dict[str, list[float]] = {"plan": [], "check": []}
    for entry in catalogue():
        times: dict[str, list[tuple[float, float]]] = {"plan": [], "check": []}
        for _ in range(runs):
            for verb, taken in times.items():
                taken.append(timed([*toolkit, verb, str(entry.path)]))
        for verb, taken in times.items():
            print(row(f"{verb} {entry.name}", taken), flush=True)
            all_of[verb].append(statistics.median(wall for wall, _ in taken))
        if other:
            compared.append(timed(other))
    for verb, medians in all_of.items():
        print(f"{verb}: slowest recipe's median {max(medians):.3f} s")
    if compared:
        print(row("compared with", compared))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
