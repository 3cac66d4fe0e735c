"""The catalogue as a page: `python -m spec_toolkit.recipe.page` writes recipes/README.md. Pure but for that."""

from collections.abc import Sequence

from spec_toolkit.recipe.catalogue import catalogue
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.recipe.schema import Draft, Hardware, Recipe
from spec_toolkit.shipped import shipped

_HEAD = """<!-- Written by `python -m spec_toolkit.recipe.page`; edit the recipes instead. -->

# Recipes

One file is one deployable cell: this target, this draft, this hardware, this goal. The file's name is the recipe's name:
`spec-toolkit deploy deepseek_v3_h200`. Editors check recipes as you type against [schema.json](schema.json).

*Evidence* names the file with measured rows, one of them autoregressive; without it a recipe is `unproven`: it is what a vendor's
documents say, and nobody here has measured that it pays. A *rehearsal* runs the real engine with a tiny model on a CPU; its speed
says nothing about a GPU.

| Recipe | Target | Draft | Hardware | Evidence | Summary |
|---|---|---|---|---|---|
"""


def render_page(recipes: Sequence[tuple[str, Recipe]]) -> str:
    """The text of recipes/README.md, for recipes by catalogue name."""
    return _HEAD + "".join(_row(name, recipe) for name, recipe in recipes)


def _row(name: str, recipe: Recipe) -> str:
    evidence = "rehearsal" if recipe.is_rehearsal else recipe.evidence or "unproven"
    cells = [
        f"[{name}]({name}.yaml)",
        f"`{recipe.target.model}`",
        _draft(recipe.draft),
        _hardware(recipe.hardware),
        evidence,
        recipe.summary.replace("|", "\\|"),
    ]
    return f"| {' | '.join(cells)} |\n"


def _draft(draft: Draft) -> str:
    steps = f", {draft.num_steps} steps, topk {draft.topk}" if draft.num_steps is not None else ""
    return f"{draft.method.value}{steps}, {draft.acceptance.value}"


def _hardware(hardware: Hardware) -> str:
    if hardware.gpu == "cpu":
        return "CPU"
    nodes = f"{hardware.nodes} nodes of " if hardware.nodes > 1 else ""
    return f"{nodes}{hardware.count} × {hardware.gpu.upper()}, TP {hardware.layout.tp}"  # noqa: RUF001 - it says "times"


def shipped_recipes() -> list[tuple[str, Recipe]]:
    """Every recipe of the catalogue by name, loaded."""
    return [(entry.name, load_recipe(entry.path).recipe) for entry in catalogue()]


if __name__ == "__main__":
    (shipped("recipes") / "README.md").write_text(render_page(shipped_recipes()), encoding="utf-8")
