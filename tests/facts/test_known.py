import json
from collections.abc import Iterator
from typing import Any

from spec_toolkit.facts.known import _FOLDER, _GENERATED, load_tables, render_tables


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


def test_a_model_is_found_by_its_repository_alone() -> None:
    tables = load_tables()
    assert tables.model("deepseek-ai/DeepSeek-V3-0324") is tables.models["deepseek-v3-0324"]
    assert tables.model("deepseek-ai/DeepSeek-V3") is None
