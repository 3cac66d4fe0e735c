"""The catalogue as a page: `python -m spec_toolkit.recipe.page` writes recipes/README.md. Pure but for that."""

from collections.abc import Sequence

from spec_toolkit.recipe.catalogue import catalogue, goal_of, grounds_of
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.recipe.schema import Draft, Hardware, Recipe
from spec_toolkit.shipped import shipped
from spec_toolkit.terms import Method

_HEAD = """<!-- Written by `python -m spec_toolkit.recipe.page`; edit the recipes instead. -->

# Recipes

One file is one deployable cell: this target, this draft, this hardware, this goal. The file's name is the recipe's name:
`spec-toolkit deploy deepseek_v3_h200`. Editors check recipes as you type against [schema.json](schema.json).

`spec-toolkit recipes` lists them, `spec-toolkit recipes show NAME` explains one.

*Evidence* names the file with measured rows, one of them autoregressive. Without one nobody here has measured that the recipe pays,
and the column says who claims that its cell works: `vendor_docs` (of the engine or the model), `third_party` (somebody else's published
runs) or `unproven` (nobody). No page behind them is of SGLang 0.5.23: the newest are of about 0.5.18 and 0.5.19. A `rehearsal` runs the
real engine with a tiny model on a CPU; its speed says nothing about a GPU. Commits are left open: `spec-toolkit pin RECIPE` writes them.

| Recipe | Target | Draft | Hardware | Goal | Evidence | Summary |
|---|---|---|---|---|---|---|
"""


def render_page(recipes: Sequence[tuple[str, Recipe]]) -> str:
    """The text of recipes/README.md, for recipes by catalogue name."""
    return _HEAD + "".join(_row(name, recipe) for name, recipe in recipes)


def _row(name: str, recipe: Recipe) -> str:
    cells = [
        f"[{name}]({name}.yaml)",
        f"`{recipe.target.model}`",
        draft_words(recipe.draft),
        hardware_words(recipe.hardware),
        goal_of(name, recipe) or "",
        grounds_of(recipe),
        recipe.summary.replace("|", "\\|"),
    ]
    return f"| {' | '.join(cells)} |\n"


def draft_words(draft: Draft) -> str:
    """`mtp, 3 steps, topk 1, target_only`; a block draft has no steps, and without a draft there is nothing to accept."""
    if draft.method is Method.NONE:
        return str(draft.method.value)
    steps = (f"{draft.num_steps} {'step' if draft.num_steps == 1 else 'steps'}", f"topk {draft.topk}")
    block = (f"blocks of {draft.block_tokens}",) if draft.block_tokens else ()
    return ", ".join([draft.method.value, *(steps if draft.num_steps else block), draft.acceptance.value])


def hardware_words(hardware: Hardware) -> str:
    if hardware.gpu == "cpu":
        return "CPU"
    layout = hardware.layout
    nodes = f"{hardware.nodes} nodes of " if hardware.nodes > 1 else ""
    copies = (f", attention DP {layout.dp}" if layout.dp_attention else f", DP {layout.dp}") if layout.dp > 1 else ""
    return f"{nodes}{hardware.count} × {hardware.gpu.upper()}, TP {layout.tp}{copies}"  # noqa: RUF001 - it says "times"


def shipped_recipes() -> list[tuple[str, Recipe]]:
    """Every recipe of the catalogue by name, loaded."""
    return [(entry.name, load_recipe(entry.path).recipe) for entry in catalogue()]


if __name__ == "__main__":
    (shipped("recipes") / "README.md").write_text(render_page(shipped_recipes()), encoding="utf-8")
