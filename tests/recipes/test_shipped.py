"""What every shipped recipe keeps to; what a recipe is called is compared with what it holds."""

import re

import pytest

from spec_toolkit.errors import Verdict
from spec_toolkit.facts.checkpoint import content_hash, model_folder
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.tokenizer import tokenizer_hash
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.recipe.catalogue import Entry, catalogue
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.shipped import shipped
from spec_toolkit.terms import Mode

ENTRIES = [pytest.param(entry, id=entry.name) for entry in catalogue()]
REHEARSALS = [pytest.param(entry, id=entry.name) for entry in catalogue() if entry.name.startswith("rehearsal/")]


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_file_name_is_the_identity(entry: Entry) -> None:
    """`<model>[_<quantisation>]_<gpu>[_<goal>]`, and rehearsals in a folder of their own."""
    recipe = load_recipe(entry.path).recipe
    words = entry.path.stem.split("_")
    assert recipe.hardware.gpu in words
    model = "_".join(words[: words.index(recipe.hardware.gpu)])
    spelled = re.sub(r"[^a-z0-9]+", "_", recipe.target.model.rpartition("/")[2].rpartition(":")[2].lower())
    assert spelled.startswith(model.removesuffix(f"_{recipe.target.quantization}"))
    assert recipe.is_rehearsal == entry.name.startswith("rehearsal/")


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_recipe_is_short(entry: Entry) -> None:
    lines = entry.path.read_text("utf-8").splitlines()
    prose = [line for line in lines if line.startswith(("#", "summary:"))]
    assert len(lines) <= 80
    assert len(prose) <= 5
    assert max(map(len, lines)) <= 140


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_recipe_may_be_launched_and_needs_no_correction(entry: Entry) -> None:
    plan = make_plan(load_recipe(entry.path), load_tables())
    assert [
        finding.sentence() for finding in plan.findings if finding.verdict in {Verdict.REFUSE, Verdict.CORRECT}
    ] == []
    assert not plan.lossy
    assert Mode.AUTOREGRESSIVE in plan.recipe.policy.allow


@pytest.mark.parametrize("entry", ENTRIES)
def test_nothing_that_follows_is_written_twice(entry: Entry) -> None:
    recipe = load_recipe(entry.path).recipe
    assert recipe.draft.topk > 1 or recipe.draft.num_draft_tokens is None


def test_the_h200_recipe_is_the_documented_shape() -> None:
    plan = make_plan(load_recipe(shipped("recipes") / "deepseek_v3_h200.yaml"), load_tables())
    model = load_tables().model(plan.recipe.target.model)
    assert model is not None
    assert model.engine is not None
    assert plan.shape is not None
    assert (plan.shape.num_steps, plan.shape.topk, plan.shape.num_draft_tokens) == model.engine.steps_topk_width.v
    assert plan.decode_graph_batch_sizes[-1] == plan.recipe.limits.max_running_requests == 64


@pytest.mark.parametrize("entry", REHEARSALS)
def test_a_rehearsal_pins_the_model_that_ships_beside_it(entry: Entry) -> None:
    target = load_recipe(entry.path).recipe.target
    folder = model_folder(target.model)
    assert folder is not None
    assert target.revision == content_hash(folder), f"write revision: {content_hash(folder)}"
    assert target.tokenizer == tokenizer_hash(folder), f"write tokenizer: {tokenizer_hash(folder)}"
