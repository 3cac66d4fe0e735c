"""Processor time of a decision: `python tests/policy/measure_decide.py`, from the top of the checkout. The budget is 20 microseconds."""

import sys
from pathlib import Path
from statistics import median
from time import process_time
from timeit import repeat

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from spec_toolkit.policy.decide import decide
from spec_toolkit.terms import Mode
from tests.policy.traces import break_even, limits, seen, state

CALLS, REPEATS = 2000, 25
CHOSEN = limits(
    steps=(0, 1, 2, 3),
    break_even=tuple(
        point
        for steps in (1, 2, 3)
        for point in break_even(steps, {1: 1.8, 2: 1.6, 4: 1.5, 8: 1.5, 16: 1.6, 32: 1.9, 64: 2.3})
    ),
)
CASES = {
    "stays full, measured": (state(), seen(length=2.2)),
    "full -> reduced, acceptance_low": (state(), seen(length=1.3)),
    "full -> reduced, load_high": (state(), seen(queue_least=9, queue_most=9)),
    "full -> zero_draft, draft_fault": (state(), seen(draft_faults=1)),
    "full -> autoregressive, engine_lost": (state(), seen(engine_lost=True)),
    "reduced -> full, expected": (state(Mode.REDUCED, lengths=((3, 2.2),)), seen(length=1.8, steps=1)),
    "zero_draft stays, waits": (state(Mode.ZERO_DRAFT, probe_after_s=2000.0), seen(length=1.0, steps=0)),
    "full stays, stale": (state(), seen(990.0)),
}


def main() -> None:
    for name, (at, window) in CASES.items():
        taken = repeat(
            lambda at=at, window=window: decide(at, window, 1000.0, CHOSEN),
            number=CALLS,
            repeat=REPEATS,
            timer=process_time,
        )
        micros = sorted(1e6 * seconds / CALLS for seconds in taken)
        print(f"{name:40} median {median(micros):5.1f} us, least {micros[0]:5.1f}, most {micros[-1]:5.1f}")  # noqa: T201 - a script that talks to a terminal


if __name__ == "__main__":
    main()
