import json
from collections.abc import Iterator
from typing import Any

from spec_toolkit.facts.known import _FOLDER, _GENERATED, load_tables, render_tables


def facts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if value.keys() >= {"v", "e", "s"}:
            yield value
        for inner in value.values():
            yield from facts(inner)


def test_the_generated_file_is_the_one_people_edited() -> None:
    assert _GENERATED.read_text("utf-8") == render_tables(), "run python -m spec_toolkit.facts.known"


def test_every_value_has_a_source_and_every_source_a_value() -> None:
    tables = json.loads(_GENERATED.read_text("utf-8"))
    used = {fact["s"] for fact in facts(tables)}
    assert used == set(tables["sources"])


def test_every_table_file_is_read() -> None:
    assert {path.stem for path in _FOLDER.glob("*.yaml")} == {"sources", "models", "gpus", "engine"}


def test_a_model_is_found_by_its_repository_alone() -> None:
    tables = load_tables()
    assert tables.model("deepseek-ai/DeepSeek-V3-0324") is tables.models["deepseek-v3-0324"]
    assert tables.model("deepseek-ai/DeepSeek-V3") is None
