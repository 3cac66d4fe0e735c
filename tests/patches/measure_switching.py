"""Many switches under load, with figures.

python -m tests.patches.measure_switching [--switches 1000] [LAYOUT ...]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.prove.lossless import Completion
from tests.engine.serving import serving
from tests.patches.switching import (
    LAYOUTS,
    held_out,
    serving_in,
    switch_under_load,
    switches_in_effect,
    target_answers,
)

PROMPTS = 50


def measure(nursery: Nursery, name: str, reference: list[Completion], switches: int) -> bool:
    """Print one line; whether everything held."""
    layout = LAYOUTS[name]
    folder = Path(tempfile.mkdtemp())
    with serving_in(nursery, folder, layout) as engine:
        began = time.perf_counter()
        run = asyncio.run(switch_under_load(engine, held_out(PROMPTS), switches=switches))
        seconds = time.perf_counter() - began
        in_effect = switches_in_effect(engine)
    report = run.compared(reference)
    epochs = {(rank.dp, rank.rank): (rank.epoch, rank.taken, rank.refused, rank.steps) for rank in run.ranks}
    agreed = set(epochs.values()) == {(switches, switches, 0, run.steps)} and tuple(epochs) == layout.ranks
    milliseconds = [1000 * each for each in run.seconds]
    sys.stdout.write(
        f"{name}: {switches} switches in {seconds:.0f} s, {in_effect} seen by the engine between two rounds; a command took "
        f"{milliseconds[len(milliseconds) // 2]:.0f} ms (median), {milliseconds[-1]:.0f} ms (longest); "
        f"{len(run.answers)} answers: {report.sentence()}; ranks {'agree' if agreed else 'PART'}: {epochs}\n"
    )
    sys.stdout.flush()
    return agreed and report.is_lossless


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layouts", nargs="*", default=list(LAYOUTS), metavar="LAYOUT", help=", ".join(LAYOUTS))
    parser.add_argument("--switches", type=int, default=1000)
    wanted = parser.parse_args()
    with Nursery.start() as nursery:
        with serving(nursery, Path(tempfile.mkdtemp()), speculate=False) as target:
            reference = asyncio.run(target_answers(target, held_out(PROMPTS)))
        held = [measure(nursery, name, reference, wanted.switches) for name in wanted.layouts]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
