import pytest
from msgspec.structs import replace

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.model import Model, Origin
from spec_toolkit.facts.read_model import known_model
from spec_toolkit.prove.rehearse.tiny import tiny_for
from spec_toolkit.recipe.catalogue import catalogue
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.recipe.schema import Draft
from spec_toolkit.terms import Method

EVERY = frozenset({
    "deepseek_v3_tiny", "deepseek_v32_tiny", "glm51_tiny", "glm52_tiny",
    *(f"gemma4_{kind}_tiny{part}" for kind in ("dense", "moe", "e2b", "unified") for part in ("", "_assistant")),
})  # fmt: skip

# By the first words of a recipe's name, the longer ones first; None: refused.
STANDS_FOR = {
    "deepseek_v4": None,
    "deepseek_v32": ("deepseek_v32_tiny", "same"),
    "deepseek_v3": ("deepseek_v3_tiny", "same"),
    "deepseek_r1": ("deepseek_v3_tiny", "same"),
    "glm51": ("glm51_tiny", "same"),
    "glm52": ("glm52_tiny", "same"),
    "gemma4_31b": ("gemma4_dense_tiny", "gemma4_dense_tiny_assistant"),
    "gemma4_26b_a4b": ("gemma4_moe_tiny", "gemma4_moe_tiny_assistant"),
    "gemma4_e": ("gemma4_e2b_tiny", "gemma4_e2b_tiny_assistant"),
    "gemma4_12b": ("gemma4_unified_tiny", "gemma4_unified_tiny_assistant"),
}
PRODUCTION = [entry for entry in catalogue() if not entry.name.startswith("rehearsal/")]


def stands_for(name: str) -> tuple[str, str] | None:
    return next(names for beginning, names in STANDS_FOR.items() if name.startswith(beginning))


def model_of(repository: str) -> Model:
    return known_model(repository, load_tables())


@pytest.mark.parametrize("entry", PRODUCTION, ids=lambda entry: entry.name)
def test_every_shipped_recipe_has_its_tiny_model_or_is_refused_in_plain_words(entry) -> None:
    recipe = load_recipe(entry.path).recipe
    expected = stands_for(entry.name)
    if expected is None:
        with pytest.raises(FactsError, match=r"cannot be rehearsed; SGLang 0\.5\.23 computes its attention.*GPUs only"):
            tiny_for(model_of(recipe.target.model), recipe.draft, EVERY)
        return
    tiny = tiny_for(model_of(recipe.target.model), recipe.draft, EVERY)
    assert (tiny.target, tiny.draft) == tuple(n if n == "same" else f"rehearsal:{n}" for n in expected)


def test_the_catalogue_reaches_every_row() -> None:
    names = {entry.name for entry in PRODUCTION}
    assert all(any(name.startswith(beginning) for name in names) for beginning in STANDS_FOR)
    assert sum(stands_for(name) is None for name in names) == 8


MTP, ASSISTANT = Draft(method=Method.MTP, num_steps=3), Draft(method=Method.FROZEN_KV_MTP, num_steps=5)


@pytest.mark.parametrize(
    ("repository", "draft", "missing"),
    [
        pytest.param("deepseek-ai/DeepSeek-V3.2", MTP, "deepseek_v32_tiny", id="target"),
        pytest.param("google/gemma-4-31B-it", ASSISTANT, "gemma4_dense_tiny_assistant", id="assistant"),
        pytest.param("google/gemma-4-12B-it", ASSISTANT, "gemma4_unified_tiny", id="unified"),
    ],
)
def test_a_tiny_model_that_is_not_there_is_named(repository, draft, missing) -> None:
    with pytest.raises(FactsError, match=rf"rehearsal:{missing}: does not lie .* \[rehearse.model\]"):
        tiny_for(model_of(repository), draft, EVERY - {missing})
    assert tiny_for(model_of(repository), draft, EVERY)


def test_a_target_without_drafts_needs_no_assistant() -> None:
    without = EVERY - {"gemma4_dense_tiny_assistant"}
    assert tiny_for(model_of("google/gemma-4-31B-it"), Draft(method=Method.NONE), without).draft == "same"


@pytest.mark.parametrize("method", [Method.EAGLE3, Method.STANDALONE, Method.NGRAM, Method.DFLASH, Method.DSPARK])
def test_a_kind_of_draft_that_nobody_trained_is_refused(method) -> None:
    with pytest.raises(FactsError, match=rf"draft.method: is {method.value}; .*another code path"):
        tiny_for(model_of("deepseek-ai/DeepSeek-V3"), replace(MTP, method=method), EVERY)


@pytest.mark.parametrize("architecture", ["Qwen3ForCausalLM", None])
def test_another_architecture_is_refused_by_name(architecture) -> None:
    model = Model(name="someone/model", origin=Origin.UNKNOWN, says="", architecture=architecture)
    with pytest.raises(FactsError, match=f"is of architecture {architecture or 'unknown'}"):
        tiny_for(model, MTP, EVERY)


def test_a_glm_that_shares_its_indexers_is_another_than_one_that_does_not() -> None:
    shares, alone = model_of("zai-org/GLM-5.2-FP8"), model_of("zai-org/GLM-5.1-FP8")
    assert tiny_for(shares, MTP, EVERY).name == "glm52_tiny"
    assert tiny_for(alone, MTP, EVERY).name == "glm51_tiny"
    in_draft_only = replace(alone.shape, attention=replace(alone.shape.attention, shared_in_draft=True))
    assert tiny_for(replace(alone, shape=in_draft_only), MTP, EVERY).name == "glm52_tiny"
