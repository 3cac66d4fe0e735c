"""Every fault that can be planted in a draft, in every layout of the ranks: what happened, whether the tokens are equal, seconds.

python -m tests.patches.measure_faults [LAYOUT ...]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from spec_toolkit.engine.log import last_words
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.prove.lossless import Completion
from spec_toolkit.terms import FaultPoint, RanksAfterFault
from tests.engine.serving import serving
from tests.patches.faulting import Outcome, Plant, ask_until_lost, family_of, run, serving_with_faults, wait_until_gone
from tests.patches.switching import LAYOUTS, held_out, target_answers

PROMPTS = 4
WATCHDOG_SECONDS = 10.0

_EVERYWHERE = [point for point in FaultPoint if point is not FaultPoint.UNLIKE_DRAFTS]
# Where no collective of the draft is left to the other ranks.
_ALONE = [point for point in FaultPoint if not point.name.endswith("_BEFORE") and point is not FaultPoint.DRAFT_IN]
_STRANDING = [point for point in _EVERYWHERE if point not in _ALONE]


def survived(layout: str) -> list[Plant]:
    """One engine bears them all."""
    everywhere = [Plant(point=point) for point in _EVERYWHERE]
    if len(LAYOUTS[layout].ranks) == 1:
        return everywhere
    return everywhere + [Plant(point=point, rank=1) for point in _ALONE]


def say(layout: str, plant: Plant, happened: str, equal: str, seconds: float) -> None:
    sys.stdout.write(f"{layout:20} {plant!s:38} {happened:74} {equal:12} {seconds:6.1f}\n")
    sys.stdout.flush()


def tell(layout: str, outcome: Outcome, reference: Sequence[Completion]) -> bool:
    """One line; whether the tokens are the target's."""
    report = outcome.compared(reference)
    modes = {(rank.mode.name.lower(), rank.steps) for rank in outcome.after}
    armed = {rank.mode.name.lower() for rank in outcome.armed}
    happened = f"{_words(modes)}; {outcome.new_faults()}; then {_words(armed)}, {outcome.accepted_again()} accepted"
    equal = f"{report.compared_tokens} equal" if report.is_lossless else "DIFFERENT"
    say(layout, outcome.plant, happened, equal, outcome.seconds)
    return report.is_lossless


def end(nursery: Nursery, layout: str, plant: Plant, ranks_after: RanksAfterFault) -> None:
    """A fault that ends the engine: how, and after how long all of its processes are gone."""
    folder = Path(tempfile.mkdtemp())
    with serving_with_faults(
        nursery, folder, LAYOUTS[layout], ranks_after=ranks_after, watchdog_seconds=WATCHDOG_SECONDS
    ) as engine:
        processes = family_of(engine.pid)
        began = time.monotonic()
        asyncio.run(ask_until_lost(engine, plant))
        wait_until_gone(processes, nursery, engine.pid, 120)
        seconds = time.monotonic() - began
        log = engine.log.read_text(encoding="utf-8", errors="replace")
    by = f"watchdog, {WATCHDOG_SECONDS:.0f} s" if "watchdog timeout" in log else last_words(log.splitlines(), most=50)
    say(layout, plant, f"ends ({ranks_after.value}): {by}; {len(processes)} processes gone", "none sent", seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layouts", nargs="*", default=list(LAYOUTS), metavar="LAYOUT", help=", ".join(LAYOUTS))
    parser.add_argument("--ends", action="store_true", help="the faults that end an engine of two ranks, too")
    wanted = parser.parse_args()
    prompts = held_out(PROMPTS)
    held = True
    with Nursery.start() as nursery:
        with serving(nursery, Path(tempfile.mkdtemp()), speculate=False) as target:
            reference = asyncio.run(target_answers(target, prompts))
        for layout in wanted.layouts:
            with serving_with_faults(nursery, Path(tempfile.mkdtemp()), LAYOUTS[layout]) as engine:
                for plant in survived(layout):
                    held &= tell(layout, run(engine, plant, prompts), reference)
        for point in _STRANDING if wanted.ends else ():
            end(nursery, "tp2", Plant(point=point, rank=1), RanksAfterFault.VOTE)
        for point in (FaultPoint.DRAFT_AFTER, FaultPoint.PREFILL_NOT_FINITE) if wanted.ends else ():
            end(nursery, "tp2", Plant(point=point, rank=1), RanksAfterFault.END_ENGINE)
    return 0 if held else 1


def _words(things: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, things)))


if __name__ == "__main__":
    sys.exit(main())
