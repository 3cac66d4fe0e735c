"""Runs the matrix and prints its table: `python -m tests.rehearsal.measure_matrix [FAMILY...]`; a quarter of an hour a family.

The last line says whether all of it is as it should be; the exit code too.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tests.rehearsal.conftest import REHEARSAL  # puts the training code on the path

assert REHEARSAL.is_dir()

from spec_toolkit.launch.nursery import Nursery  # noqa: E402 - behind the path
from tests.rehearsal.families import FAMILIES, TinyFamily  # noqa: E402 - behind the path
from tests.rehearsal.matrix import Row, cells, penalised_cell, reference_of, settings_of, shapes_of  # noqa: E402 - behind the path
from tests.rehearsal.shapes import TARGET_ALONE, Shape, started  # noqa: E402 - behind the path

HEAD = (
    "family", "layout", "overlap", "K", "cell", "tokens", "near-ties", "differences", "rounds as replayed",
    "distance / bound", "s", "CPU s", "faults",
)  # fmt: skip


def rows_of(family: TinyFamily, nursery: Nursery, folder: Path) -> Iterator[tuple[Shape, Row]]:
    with started(nursery, folder / "alone", family, TARGET_ALONE) as engine:
        reference = reference_of(engine)
        yield engine.shape, penalised_cell(engine)
    for number, shape in enumerate(shapes_of(family)):
        with started(nursery, folder / str(number), family, shape) as engine:
            for row in cells(engine, reference, settings=settings_of(shape)):
                yield shape, row


def line(family: TinyFamily, shape: Shape, row: Row) -> str:
    rule = f"{row.cell} ({'rejection' if shape.rejection else 'target only'})" if row.sampled else row.cell
    said = (
        family.name, shape.layout, "on" if shape.overlap else "off", shape.num_steps, rule, f"{row.tokens:,}", row.near_ties,
        row.differences, row.replayed, row.sampled, f"{row.seconds:.1f}", f"{row.cpu_seconds:.1f}", "; ".join(row.faults),
    )  # fmt: skip
    return "| " + " | ".join(str(word) for word in said) + " |"


def main(names: list[str]) -> int:
    families = [FAMILIES[name] for name in names] or [*FAMILIES.values()]
    sys.stdout.write("\n".join(("| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD), "")))
    began, counted, faults, tokens = time.monotonic(), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder, Nursery.start(most=1) as nursery:
        each = (
            ((family, shape, row) for shape, row in rows_of(family, nursery, Path(folder, family.name)))
            for family in families
        )
        for family, shape, row in chain.from_iterable(each):
            counted, faults, tokens = (
                counted + 1,
                faults + bool(row.faults),
                tokens + (0 if row.sampled else row.tokens),
            )
            sys.stdout.write(line(family, shape, row) + "\n")
            sys.stdout.flush()
    verdict = (
        f"{counted} cells, {tokens:,} greedy tokens equal, {faults} cells with faults, {time.monotonic() - began:.0f} s"
    )
    sys.stdout.write(f"\n{verdict}\n")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
