"""The matrix as tests: a cell or two that stand for the rest in every run, all of it under `matrix`, and faults that turn it red."""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from spec_toolkit.launch.nursery import Nursery
from tests.rehearsal.families import FAMILIES, MODELS
from tests.rehearsal.matrix import Reference, Row, cells, reference_of, settings_of, shapes_of
from tests.rehearsal.measure_matrix import RANKED, line
from tests.rehearsal.planting import PLANTS, hook
from tests.rehearsal.shapes import TARGET_ALONE, Shape, started

pytestmark = pytest.mark.engine

References = Callable[[str], Reference]
STANDING = {"deepseek_v3": Shape(num_steps=4), "gemma4_dense": Shape(num_steps=2, overlap=False)}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery.start(most=1) as nursery:
        yield nursery


@pytest.fixture(scope="module")
def reference(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> References:
    """What a family's target answers alone; asked once."""

    def of(family: str) -> Reference:
        with started(nursery, tmp_path_factory.mktemp(family), FAMILIES[family], TARGET_ALONE) as engine:
            return reference_of(engine)

    return cache(of)


def faults(family: str, shape: Shape, rows: Iterator[Row]) -> dict[str, tuple[str, ...]]:
    """Of each cell, printed as a row of the table."""
    found = {}
    for row in rows:
        sys.stdout.write(line(FAMILIES[family], shape, row) + "\n")
        found[row.cell] = row.faults
    return found


def run(
    nursery: Nursery, folder: Path, family: str, shape: Shape, reference: Reference, settings: tuple[str, ...]
) -> None:
    with started(nursery, folder, FAMILIES[family], shape) as engine:
        found = faults(family, shape, cells(engine, reference, settings=settings))
    assert not any(found.values()), found


@pytest.mark.parametrize("family", STANDING)
def test_speculation_changes_nothing_in_the_cells_that_stand_for_the_rest(
    nursery: Nursery, tmp_path: Path, reference: References, family: str
) -> None:
    run(nursery, tmp_path, family, STANDING[family], reference(family), ("sampled",))


SHAPES = [
    pytest.param(
        name,
        shape,
        id=f"{name}-{shape.num_steps}-{'overlap' if shape.overlap else 'plain'}{'-rejection' * shape.rejection}",
    )
    for name, family in FAMILIES.items()
    for shape in shapes_of(family)
]
RANKS = [
    pytest.param(name, Shape(num_steps=4, layout=layout), id=f"{name}-{layout}")
    for name in RANKED
    for layout in ("tp2", "attention-dp")
]


@pytest.mark.matrix
@pytest.mark.parametrize(("family", "shape"), [*SHAPES, *RANKS])
def test_speculation_changes_nothing_in_any_cell(
    nursery: Nursery, tmp_path: Path, reference: References, family: str, shape: Shape
) -> None:
    run(nursery, tmp_path, family, shape, reference(family), settings_of(shape))


@pytest.mark.matrix
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_turns_its_cells_red(
    nursery: Nursery, tmp_path: Path, reference: References, name: str
) -> None:
    plant = PLANTS[name]
    family, shape = FAMILIES[plant.family], Shape(num_steps=4, rejection=plant.rejection)
    planted = [hook(tmp_path, *plant.hook)] if plant.hook else []
    model = plant.model(family.folder, tmp_path) if plant.model else None
    with started(nursery, tmp_path, family, shape, model=model, planted=planted) as engine:
        found = faults(plant.family, shape, cells(engine, reference(plant.family)))
    for cell in plant.red:
        assert any(plant.because in fault for fault in found[cell]), found


def test_every_folder_of_models_is_a_familys() -> None:
    known = {folder.name for family in FAMILIES.values() for folder in family.folders}
    assert known == {folder.name for folder in MODELS.iterdir() if folder.is_dir()}
