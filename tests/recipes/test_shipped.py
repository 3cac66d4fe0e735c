"""What every shipped recipe keeps to; what a recipe is called is compared with what it holds."""

import itertools
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


def is_named(words: str, model: str) -> bool:
    """Whether a name's words are the whole first words of a model's: `deepseek_v3` is no DeepSeek-V3.2.

    Instruction-tuned is what every shipped Gemma is, and no name says it.
    """
    spelled = [re.sub(r"[^a-z0-9]", "", word) for word in re.split(r"[-_]", model.lower()) if word != "it"]
    return words.replace("_", "") in itertools.accumulate(spelled)


@pytest.mark.parametrize(
    ("words", "model", "named"),
    [
        pytest.param("deepseek_v3", "DeepSeek-V3-0324", True, id="first-words"),
        pytest.param("glm52", "GLM-5.2-FP8", True, id="without-a-point"),
        pytest.param("gemma4_e4b_qat", "gemma-4-E4B-it-qat-q4_0-unquantized", True, id="without-it"),
        pytest.param("deepseek_v3", "DeepSeek-V3.2", False, id="near-miss-another-version"),
        pytest.param("glm5", "GLM-5.1-FP8", False, id="near-miss-a-part-of-a-word"),
        pytest.param("v3", "DeepSeek-V3-0324", False, id="near-miss-not-from-the-first"),
    ],
)
def test_names_and_models_are_compared_by_whole_words(words: str, model: str, *, named: bool) -> None:
    assert is_named(words, model) is named


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_file_name_is_the_identity(entry: Entry) -> None:
    """`<model>[_<quantisation>]_<gpu>[_<goal>]`, and rehearsals in a folder of their own."""
    recipe = load_recipe(entry.path).recipe
    words = entry.path.stem.split("_")
    assert recipe.hardware.gpu in words
    model = "_".join(words[: words.index(recipe.hardware.gpu)])
    repository = recipe.target.model.rpartition("/")[2].rpartition(":")[2]
    assert is_named(model.removesuffix(f"_{recipe.target.quantization}"), repository)
    assert recipe.is_rehearsal == entry.name.startswith("rehearsal/")


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry not in REHEARSALS])
def test_a_recipe_says_who_says_so(entry: Entry) -> None:
    source = load_recipe(entry.path).recipe.source
    assert source is not None


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_recipe_claims_no_speed_and_no_acceptance(entry: Entry) -> None:
    claim = re.compile(r"\d\s*(x|×|%|tok/s|tokens/s|tokens per second|ms)(\s|$|[.,;)])(?!\d)", re.MULTILINE)  # noqa: RUF001 - "times"
    prose = [line for line in entry.path.read_text("utf-8").splitlines() if "#" in line or "summary:" in line]
    assert not [line for line in prose if claim.search(line)]


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry not in REHEARSALS])
def test_no_commit_is_written_that_nobody_has_seen(entry: Entry) -> None:
    recipe = load_recipe(entry.path).recipe
    assert (recipe.target.revision, recipe.draft.revision, recipe.target.tokenizer, recipe.engine.image) == (None,) * 4


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
