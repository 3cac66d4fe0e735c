from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.records import Tables
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.recipe.schema import Recipe

Change = Callable[..., Recipe]


@pytest.fixture(scope="session")
def tables() -> Tables:
    return load_tables()


@pytest.fixture(scope="session")
def change() -> Change:
    """`change(draft__topk=4, limits__max_running_requests=96)`: the H200 recipe with these keys changed."""
    shipped = msgspec.to_builtins(load_recipe(find_recipe("deepseek_v3_h200")).recipe)

    def changed(**keys: Any) -> Recipe:
        data = msgspec.json.decode(msgspec.json.encode(shipped))
        for path, value in keys.items():
            *groups, key = path.split("__")
            group = data
            for name in groups:
                group = group[name]
            group[key] = value
        return msgspec.convert(data, Recipe)

    return changed
