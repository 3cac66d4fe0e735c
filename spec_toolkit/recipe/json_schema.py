"""The recipe's JSON Schema, which editors read: `python -m spec_toolkit.recipe.json_schema` writes recipes/schema.json. Pure but for that."""

import json

import msgspec

from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.shipped import shipped


def render_schema() -> str:
    """The text of recipes/schema.json."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "spec-toolkit recipe",
        **msgspec.json.schema(Recipe),
    }
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    (shipped("recipes") / "schema.json").write_text(render_schema(), encoding="utf-8")
