"""The tables that travel with the package. People edit YAML; the toolkit reads one generated JSON file, six times as fast.

`python -m spec_toolkit.facts.known` writes it; a test keeps both equal.
"""

import functools
import json
from pathlib import Path

import msgspec

from spec_toolkit.facts.records import Tables

_FOLDER = Path(__file__).with_name("tables")
_GENERATED = _FOLDER / "tables.json"


@functools.cache
def load_tables() -> Tables:
    return msgspec.json.decode(_GENERATED.read_bytes(), type=Tables)


def render_tables() -> str:
    """The text of tables.json, from the YAML files."""
    import yaml  # noqa: PLC0415 - only whoever edits the tables needs it

    names = ("sources", "models", "gpus", "acceptance", "versions", "engine")
    tables = {name: yaml.load((_FOLDER / f"{name}.yaml").read_text("utf-8"), yaml.CSafeLoader) for name in names}
    return json.dumps(tables, indent=1) + "\n"


if __name__ == "__main__":
    text = render_tables()
    msgspec.json.decode(text, type=Tables)  # what cannot be read is not written
    _GENERATED.write_text(text, encoding="utf-8")
