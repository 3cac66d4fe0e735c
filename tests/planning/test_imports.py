import json
import subprocess
import sys

PROGRAM = """
import json, sys
from spec_toolkit.facts.known import load_tables
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import load_recipe
make_plan(load_recipe(find_recipe("deepseek_v3_h200")), load_tables())
print(json.dumps(sorted(sys.modules)))
"""
HEAVY = {
    "torch",
    "sglang",
    "aiohttp",
    "rich",
    "click",
    "asyncio",
    "huggingface_hub",
    "transformers",
    "safetensors",
    "numpy",
    "ssl",
    "logging",
}


def test_planning_imports_nothing_heavy() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert HEAVY.isdisjoint(json.loads(ended.stdout))
