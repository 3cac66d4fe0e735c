"""The matrix as tests: one engine a family in every run, which stands for the rest; all of it under `matrix`; faults that turn it red."""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.prove.lossless import Completion, read_completion
from tests.rehearsal.families import FAMILIES, MODELS, TinyFamily
from tests.rehearsal.matrix import (
    SETTINGS,
    TOKENS,
    Reference,
    Row,
    cells,
    penalised_cell,
    prompts_of,
    reference_of,
    replays_of,
    settings_of,
    shapes_of,
)
from tests.rehearsal.measure_matrix import line
from tests.rehearsal.planting import PLANTS, hook
from tests.rehearsal.shapes import TARGET_ALONE, Shape, started

pytestmark = pytest.mark.engine

References = Callable[..., Reference]  # (family, settings to sample)
STANDING = {  # each depth and both schedules, for one kind of network or another
    "deepseek_v3": Shape(num_steps=4),
    "deepseek_v32": Shape(num_steps=2, overlap=False),
    "glm51": Shape(num_steps=7),
    "glm52": Shape(num_steps=4),
    "gemma4_dense": Shape(num_steps=1),
    "gemma4_moe": Shape(num_steps=7),
    "gemma4_e2b": Shape(num_steps=4),
    "gemma4_unified": Shape(num_steps=2, overlap=False),
}


@pytest.fixture(scope="module")
def reference(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> References:
    """What a family's target answers alone; asked once."""

    def of(family: str, settings: tuple[str, ...] = tuple(SETTINGS)) -> Reference:
        with started(nursery, tmp_path_factory.mktemp(family), FAMILIES[family], TARGET_ALONE) as engine:
            found = reference_of(engine, settings)
            penalised = penalised_cell(engine)
            assert not penalised.faults, penalised.faults  # both sides of every comparison have the same law
            return found

    return cache(of)


def faults(family: str, shape: Shape, rows: Iterator[Row]) -> dict[str, tuple[str, ...]]:
    """Of each cell, printed as a row of the table."""
    found = {}
    for row in rows:
        sys.stdout.write(line(FAMILIES[family], shape, row) + "\n")
        found[row.cell] = row.faults
    return found


@pytest.mark.parametrize(
    "family",
    [
        # Its text network and its assistant are the dense ones under another name; those stand for it.
        pytest.param(family, marks=pytest.mark.matrix if family == "gemma4_unified" else ())
        for family in STANDING
    ],
)
def test_speculation_changes_nothing_in_the_cells_that_stand_for_the_rest(
    nursery: Nursery, tmp_path: Path, reference: References, family: str
) -> None:
    shape, target = STANDING[family], reference(family, ())
    with started(nursery, tmp_path, FAMILIES[family], shape) as engine:
        found = faults(family, shape, cells(engine, target, settings=()))
    assert not any(found.values()), found
    log = (tmp_path / "engine.log").read_text()
    unfilled = re.findall(r"'([^']+)'", " ".join(line for line in log.splitlines() if "not initialized" in line))
    assert [name for name in unfilled if name not in keyless(FAMILIES[family])] == []


def keyless(family: TinyFamily) -> set[str]:
    """Norms of keys, of layers that read another's: an assistant's all, and a target's that share. No checkpoint has those."""
    if not family.has_assistant:
        return set()
    text = json.loads((family.folder / "config.json").read_text())["text_config"]
    layers = range(text["num_hidden_layers"] - (text.get("num_kv_shared_layers") or 0), text["num_hidden_layers"])
    shared = {f"language_model.layers.{layer}.self_attn.k_norm.weight" for layer in layers}
    return shared | {f"model.layers.{layer}.self_attn.k_norm.weight" for layer in range(4)}


def name_of(shape: Shape) -> str:
    return f"{shape.layout}-{shape.num_steps}-{'overlap' if shape.overlap else 'plain'}{'-rejection' * shape.rejection}"


SHAPES = [
    pytest.param(name, shape, id=f"{name}-{name_of(shape)}")
    for name, family in FAMILIES.items()
    for shape in shapes_of(family)
]


@pytest.mark.matrix
@pytest.mark.parametrize(("family", "shape"), SHAPES)
def test_speculation_changes_nothing_in_any_cell(
    nursery: Nursery, tmp_path: Path, reference: References, family: str, shape: Shape
) -> None:
    target = reference(family)
    with started(nursery, tmp_path, FAMILIES[family], shape) as engine:
        found = faults(family, shape, cells(engine, target, settings=settings_of(shape)))
    assert not any(found.values()), found


@pytest.mark.matrix
@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if "attention-dp" in family.layouts])
def test_a_rank_that_idles_beside_a_busy_one_disturbs_nobody(nursery: Nursery, tmp_path: Path, family: str) -> None:
    """Round-robin gives each of two ranks three requests; five of the six, which are the same, end long before the other does."""
    shape = Shape(num_steps=4, layout="attention-dp")
    replays, prompts = replays_of(family, shape.num_steps), prompts_of(family)
    with started(nursery, tmp_path, FAMILIES[family], shape) as engine:
        long, *short = asyncio.run(ask_together(engine.address, [prompts[0], *[prompts[1]] * 5], [TOKENS, *[12] * 5]))
    assert long.output_ids == replays[0].output_ids
    assert long.made is not None
    assert long.made.rounds == replays[0].rounds
    assert [one.output_ids for one in short] == [replays[1].output_ids[:12]] * 5
    assert (
        "OutOfBoundsError" not in (tmp_path / "engine.log").read_text()
    )  # a draft fault costs no token: the rank stops drafting


async def ask_together(address: str, prompts: Sequence[Sequence[int]], tokens: Sequence[int]) -> list[Completion]:
    async with EngineClient(address) as engine:

        async def one(ids: Sequence[int], most: int) -> Completion:
            wanted = {"temperature": 0, "max_new_tokens": most}
            return read_completion(await engine.generate({"input_ids": list(ids), "sampling_params": wanted}))

        return list(await asyncio.gather(*map(one, prompts, tokens)))


@pytest.mark.matrix
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_turns_its_cells_red(
    nursery: Nursery, tmp_path: Path, reference: References, name: str
) -> None:
    plant = PLANTS[name]
    family, shape = FAMILIES[plant.family], Shape(num_steps=4, rejection=plant.rejection)
    planted = [hook(tmp_path, *plant.hook)] if plant.hook else []
    model = plant.model(family.folder, tmp_path) if plant.model else None
    target = reference(plant.family)
    with started(nursery, tmp_path, family, shape, model=model, planted=planted, without=plant.without) as engine:
        found = faults(plant.family, shape, cells(engine, target))
    for cell in plant.red:
        assert any(plant.because in fault for fault in found[cell]), found


def test_every_folder_of_models_is_a_familys() -> None:
    known = {folder.name for family in FAMILIES.values() for folder in family.folders}
    assert known == {folder.name for folder in MODELS.iterdir() if folder.is_dir()}
