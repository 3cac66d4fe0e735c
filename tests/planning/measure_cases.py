"""Prints, for each field case, the finding that answers it, or the room that catches it while serving: `python -m tests.planning.measure_cases`."""

import sys
from collections import Counter
from collections.abc import Iterator

from tests.planning.field_cases import IDS, Case, examine, load_cases


def main() -> int:
    cases = {case.id: case for case in load_cases()}
    lines, counts, faults = [], Counter(), []
    for name in IDS:
        if name not in cases:
            counts["without a file"] += 1
            lines.append((name, "-", "no file", "", ""))
            continue
        case = cases[name]
        outcomes = [examine(case, situation) for situation in case.situations]
        faults += [f"{name}, {o.name}: {fault}" for o in outcomes for fault in o.faults()]
        misses = [o for o in outcomes if o.is_near_miss]
        silent = sum(not list(o.faults()) for o in misses)
        counts.update(situations=len(outcomes), near_misses=len(misses), near_misses_silent=silent)
        counts[kind_of(case)] += 1
        counts["cases answered more mildly than the set asks"] += case.is_milder
        answers = " ".join(dict.fromkeys(answers_of(case))) or ("accepted" if case.room == "planning" else "-")
        answers += f" (asked: {case.action.value})" if case.is_milder else ""
        lines.append((name, case.room, answers, f"{silent}/{len(misses)}", case.title))
    table = [("case", "room", "finding and verdict", "silent", "title"), *lines]
    widths = [max(len(line[column]) for line in table) for column in range(4)]
    said = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]) for line in table
    ]
    totals = [f"{count:4} {what.replace('_', ' ')}" for what, count in sorted(counts.items())]
    sys.stdout.write("\n".join([*said, "", *totals, *(f"FAULT {fault}" for fault in faults), ""]))
    return 1 if faults else 0


def kind_of(case: Case) -> str:
    if case.rules:
        return "cases answered before an engine runs"
    return "cases accepted, and must be" if case.room == "planning" else f"cases that {case.room} catches"


def answers_of(case: Case) -> Iterator[str]:
    for situation in case.situations:
        for wanted in situation["expect"]:
            yield f"{wanted['rule']}={wanted['verdict']}"


if __name__ == "__main__":
    sys.exit(main())
