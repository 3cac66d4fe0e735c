"""Bytes per token of every model's KV pool, ours beside the engine's own, on Hopper's and Blackwell's defaults.

python -m tests.planning.memory.measure_pools
"""

import sys

from spec_toolkit.planning.memory.launched import fraction_of
from spec_toolkit.planning.memory.launched_kv import kv_of
from spec_toolkit.planning.memory.situated import draw_up
from tests.planning.memory.launches import ask_engine, every_model, failures, further


def main() -> int:
    launches = every_model() + further()
    answers = ask_engine(launches)
    equal = 0
    sys.stdout.write(
        f"{'launch':78} {'target':>12} {'draft':>10} {'ours':>13} {'engine':>13}   {'fixed':>13} {'fraction':>9}\n"
    )
    for asked, said in zip(launches, answers, strict=True):
        ours = kv_of(asked.situation)
        if "error" in said or ours is None:
            sys.stdout.write(f"{asked.name:78} ours {ours}; engine: {said.get('error', said)}\n")
            continue
        fixed, (fraction, _) = ours.fixed(said["requests"]), fraction_of(asked.situation)
        same = abs(ours.total - said["bytes_per_token"]) < 1e-6 and fixed == said["fixed"]
        equal += same
        told = f"{fraction:.4f}" if fraction is not None else "unknown"
        marks = f"{'equal' if same else 'DIFFERENT'}; fraction {told} / {said['memory_fraction']:.4f}; page {said['page_size']} / {draw_up(asked.situation).page_size}"
        sys.stdout.write(
            f"{asked.name:78} {ours.target:12,.2f} {ours.draft:10,.2f} {ours.total:13,.3f} {said['bytes_per_token']:13,.3f}   {fixed:13,} {marks}\n"
        )
    sys.stdout.write(f"{equal} of {len(launches)} equal\n")
    return 0 if equal == len(launches) and not failures(launches, answers) else 1


if __name__ == "__main__":
    raise SystemExit(main())
