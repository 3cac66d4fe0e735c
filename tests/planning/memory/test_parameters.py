import pytest
from msgspec.structs import replace

from spec_toolkit.facts.read_model import known_model
from spec_toolkit.planning.memory.parameters import Count, Kind, count_draft, count_target
from tests.planning.memory.launches import TABLES, TARGETS


def shape_of(name):
    shape = known_model(TARGETS[name].repo.v, TABLES).shape
    assert shape is not None
    return shape


def total(counts: tuple[Count, ...]) -> int:
    return sum(count.params for count in counts)


@pytest.mark.parametrize("name", ["deepseek-v3-0324", "deepseek-v3.2", "glm-5", "glm-5.1", "glm-5.2"])
def test_counts_are_the_published_ones_to_the_parameter(name):
    params = TARGETS[name].params
    assert total(count_target(shape_of(name))) == params["main_computed"].v
    assert total(count_draft(shape_of(name))) == params["draft"].v


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "deepseek-v4-pro"])
def test_v4_lacks_only_what_mixes_its_residual_streams(name):
    counted, published = total(count_target(shape_of(name))), TARGETS[name].params["main_computed"].v
    assert 0 < published - counted < 0.0002 * published


@pytest.mark.parametrize(
    ("name", "towers"),
    [
        pytest.param("gemma-4-e2b", 0.10, id="e2b-sees-and-hears"),
        pytest.param("gemma-4-e4b", 0.06, id="e4b-sees-and-hears"),
        pytest.param("gemma-4-12b", 0.005, id="12b"),
        pytest.param("gemma-4-31b", 0.02, id="31b"),
        pytest.param("gemma-4-26b-a4b", 0.025, id="26b-a4b"),
    ],
)
def test_gemma_lacks_only_its_towers(name, towers):
    counted, published = total(count_target(shape_of(name))), TARGETS[name].params["total_computed"].v
    assert 0 < published - counted < towers * published


def test_layers_that_share_an_indexer_own_none():
    shape = shape_of("glm-5.2")
    every = replace(shape, attention=replace(shape.attention, indexer_layers=shape.layers))
    indexers = {
        name: next(count.params for count in count_target(found) if count.kind is Kind.INDEXER)
        for name, found in (("shared", shape), ("owned", every))
    }
    assert indexers["owned"] * 21 == indexers["shared"] * 78


def test_a_draft_brings_neither_embedding_nor_head():
    kinds = {count.kind for count in count_draft(shape_of("deepseek-v3-0324"))}
    assert not kinds & {Kind.EMBEDDING, Kind.HEAD}


def test_dspark_is_three_such_layers_without_compression():
    shape = shape_of("deepseek-v4-flash")
    assert total(count_draft(shape, stages=3)) == 3 * total(count_draft(shape))
