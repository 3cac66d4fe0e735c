import json
import timeit
from collections.abc import Iterator
from typing import Any

import pytest

from spec_toolkit.facts.known import _FOLDER, _GENERATED, load_tables, render_tables

SIZES = ("E2B", "E4B", "12B", "31B", "26B-A4B")


def facts(value: Any) -> Iterator[dict[str, Any]]:
    """Whatever names a level and a source."""
    if isinstance(value, dict) and value.keys() >= {"e", "s"}:
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from facts(inner)


def test_the_generated_file_is_the_one_people_edited() -> None:
    assert _GENERATED.read_text("utf-8") == render_tables(), "run python -m spec_toolkit.facts.known"


def test_every_value_has_a_source_and_every_source_a_value() -> None:
    tables = json.loads(_GENERATED.read_text("utf-8"))
    used = {fact["s"] for fact in facts(tables)}
    assert used == set(tables["sources"])


def test_what_is_unknown_has_no_value_and_no_source() -> None:
    unknown = [fact for fact in facts(json.loads(_GENERATED.read_text("utf-8"))) if fact["e"] == "unknown"]
    assert unknown
    assert all(fact["v"] is None and fact["s"] == "none" for fact in unknown)


def test_every_table_file_is_read() -> None:
    assert {path.stem for path in _FOLDER.glob("*.yaml")} == {
        "sources",
        "models",
        "gpus",
        "acceptance",
        "versions",
        "engine",
    }


def test_a_model_is_found_by_each_of_its_repositories() -> None:
    tables = load_tables()
    model = tables.models["deepseek-v3-0324"]
    assert tables.model("deepseek-ai/DeepSeek-V3-0324") is model
    assert tables.model("nvidia/DeepSeek-V3-0324-NVFP4") is model
    assert tables.checkpoint("nvidia/DeepSeek-V3-0324-NVFP4") is model.checkpoints["nvidia/DeepSeek-V3-0324-NVFP4"]
    assert tables.model("org/model") is None
    assert tables.checkpoint("org/model") is None


def test_a_repository_belongs_to_one_model() -> None:
    repositories = [repo for model in load_tables().models.values() for repo in model.checkpoints]
    assert len(repositories) == len(set(repositories))
    assert all(model.repo.v in model.checkpoints for model in load_tables().models.values())


@pytest.mark.parametrize(
    "repo",
    [
        *(f"deepseek-ai/DeepSeek-{name}" for name in ("V3", "V3-0324", "V3.1", "R1", "R1-0528", "V3.2")),
        *(f"deepseek-ai/DeepSeek-V4-Flash{name}" for name in ("", "-DSpark", "-0731")),
        *(f"deepseek-ai/DeepSeek-V4-Pro{name}" for name in ("", "-DSpark", "-0813")),
        *(f"nvidia/DeepSeek-{name}-NVFP4" for name in ("V3-0324", "V3.1", "V3.2", "V4-Flash", "V4-Pro")),
        *(f"zai-org/GLM-{name}" for name in ("5", "5-FP8", "5.1", "5.1-FP8", "5.2", "5.2-FP8")),
        *("nvidia/GLM-5.1-NVFP4", "nvidia/GLM-5.2-NVFP4", "amd/GLM-5.2-MXFP4"),
        *(f"google/gemma-4-{size}-it" for size in SIZES),
        *(f"google/gemma-4-{size}-it-assistant" for size in SIZES),
        *(f"google/gemma-4-{size}-it-qat-q4_0-unquantized" for size in SIZES),
        *(f"google/gemma-4-{size}-it-qat-q4_0-unquantized-assistant" for size in SIZES),
    ],
)
def test_every_model_that_is_promised_is_there(repo: str) -> None:
    assert load_tables().model(repo) is not None


def test_an_assistant_names_a_target_whose_width_it_was_made_for() -> None:
    tables = load_tables()
    assistants = [model for model in tables.models.values() if model.drafts_for is not None]
    assert len(assistants) == len(SIZES)
    for model in assistants:
        assert model.drafts_for is not None
        assert model.wrapper["backbone_hidden_size"].v == tables.models[model.drafts_for].count("hidden_size")


def test_tables_point_at_models_and_repositories_that_are_there() -> None:
    tables = load_tables()
    curves = tables.acceptance.curves
    assert {curve.model for curve in curves} | {report.model for report in tables.acceptance.reports} <= set(
        tables.models
    )
    assert all(curve.repo in tables.models[curve.model].checkpoints for curve in curves)
    assert all(tables.model(floor.repo) is not None for floor in tables.acceptance.floors)
    assert {id_ for since in tables.versions for id_ in since.models} <= set(tables.models)


def test_an_emitted_length_lies_between_one_and_one_more_than_the_drafts() -> None:
    for curve in load_tables().acceptance.curves:
        assert all(1 <= emitted <= drafts + 1 for drafts, emitted in enumerate(curve.emitted.v, 1))


@pytest.mark.parametrize("word", ["h100", "h200", "h20", "b200", "b300", "gb200", "gb300", "gb10", "rtx_pro_6000"])
def test_a_gpu_that_is_planned_for_has_a_capability(word: str) -> None:
    facts = load_tables().gpus[word]
    assert facts.planned_for
    assert facts.compute_capability.v is not None


def test_the_tables_are_read_in_a_few_milliseconds() -> None:
    assert min(timeit.repeat(load_tables.__wrapped__, number=1, repeat=25)) < 0.015
