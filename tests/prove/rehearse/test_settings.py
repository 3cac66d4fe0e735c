"""What a rehearsal keeps of a recipe, what it changes, and that neither is decided by default."""

from dataclasses import replace as with_

import pytest
from msgspec.structs import replace

from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.planned import plan_of, read_target
from spec_toolkit.prove.lossless import TOLERANCE_NATS
from spec_toolkit.prove.rehearse.ready import tiny_models
from spec_toolkit.prove.rehearse.settings import KEPT, LEFT_OUT, SAID, WHY, at_toy_size, computed_in, leaves
from spec_toolkit.prove.rehearse.tiny import Tiny
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.recipe.schema import ExtraArg, Layout, Recipe
from spec_toolkit.terms import Acceptance
from tests.prove.rehearse.test_tiny import PRODUCTION, stands_for

TINY = Tiny(target="rehearsal:deepseek_v3_tiny", draft="same", architecture="DeepseekV3ForCausalLM")
STANDING_IN = ("gemma4_dense_tiny", "gemma4_dense_tiny_assistant")
FOR_CPUS = frozenset({
    "target.model", "hardware.gpu", "hardware.count", "engine.dtype", "engine.attention_backend",
    "limits.context_tokens", "limits.kv_pool_tokens",
})  # fmt: skip


def recipe_named(name: str) -> Recipe:
    return load_recipe(find_recipe(name)).recipe


def changed(recipe: Recipe, tiny: Tiny = TINY) -> dict[str, tuple[str, str]]:
    return {each.key: (each.production, each.rehearsed) for each in at_toy_size(recipe, tiny).changed}


def test_every_key_of_a_recipe_is_decided_once() -> None:
    keys = set(leaves(recipe_named("deepseek_v3_h200")))
    assert keys == KEPT | SAID | set(WHY)
    assert len(KEPT) + len(SAID) + len(WHY) == len(keys)


SHIPPED = [entry for entry in PRODUCTION if stands_for(entry.name)]


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
def test_what_is_kept_of_every_shipped_recipe_is_kept(entry) -> None:
    recipe = load_recipe(entry.path).recipe
    target, draft = stands_for(entry.name)
    tiny = Tiny(target=f"rehearsal:{target}", draft=draft if draft == "same" else f"rehearsal:{draft}", architecture="")
    small = at_toy_size(recipe, tiny)
    for one in (small.alone, *((small.ranks,) if small.ranks else ())):
        before, after = leaves(recipe), leaves(one)
        assert {key: after[key] for key in KEPT - {"hardware.layout.dp_attention"}} == {
            key: before[key] for key in KEPT - {"hardware.layout.dp_attention"}
        }
    assert (small.ranks is not None) == (recipe.hardware.layout.tp > 1)
    assert {each.key for each in small.changed} >= {"target.model", "hardware.gpu"}


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
def test_the_engine_can_be_planned_for_every_recipe_whose_tiny_model_is_there(entry) -> None:
    loaded = load_recipe(entry.path)
    target, draft = stands_for(entry.name)
    if target not in tiny_models():  # the settings are judged all the same
        target, draft = ("deepseek_v3_tiny", draft) if draft == "same" else STANDING_IN
    tiny = Tiny(target=f"rehearsal:{target}", draft=draft if draft == "same" else f"rehearsal:{draft}", architecture="")
    small = at_toy_size(loaded.recipe, tiny)
    for one in (small.alone, *((small.ranks,) if small.ranks else ())):
        toy = with_(loaded, recipe=one)
        plan = plan_of(toy, load_tables(), read_target(toy))
        assert plan.may_launch, plan.findings


@pytest.mark.parametrize(
    ("layout", "ranks"),
    [
        pytest.param(Layout(), None, id="one-rank"),
        pytest.param(Layout(tp=8), Layout(tp=2), id="tp"),
        pytest.param(Layout(tp=2), Layout(tp=2), id="already-two"),
        pytest.param(Layout(tp=8, dp=8, dp_attention=True), Layout(tp=2, dp=2, dp_attention=True), id="attention-dp"),
        pytest.param(Layout(tp=4, dp=2), Layout(tp=2), id="replicas-are-one"),
        pytest.param(Layout(tp=8, ep=8, moe_a2a_backend="deepep"), Layout(tp=2), id="expert-parallel"),
    ],
)
def test_two_ranks_stand_for_several(layout, ranks) -> None:
    recipe = recipe_named("deepseek_v3_h200")
    small = at_toy_size(replace(recipe, hardware=replace(recipe.hardware, layout=layout)), TINY)
    assert small.alone.hardware.layout == Layout()
    assert (small.ranks.hardware.layout if small.ranks else None) == ranks


def test_what_is_changed_is_listed_with_both_values() -> None:
    assert changed(recipe_named("deepseek_v3_h200")) == {
        "target.model": ("deepseek-ai/DeepSeek-V3-0324", "rehearsal:deepseek_v3_tiny"),
        "target.quantization": ("fp8", LEFT_OUT),
        "hardware.gpu": ("h200", "cpu"),
        "hardware.count": ("8", "1"),
        "hardware.layout.tp": ("8", "2"),
        "engine.dtype": (LEFT_OUT, "float32"),
        "engine.attention_backend": (LEFT_OUT, "intel_amx"),
        "graphs.decode_batch_sizes": ("27, up to 64", LEFT_OUT),
        "limits.context_tokens": ("32,768", "4,096"),
        "limits.kv_pool_tokens": (LEFT_OUT, "32,768"),
    }


def test_what_a_recipe_does_not_say_is_not_listed() -> None:
    """Near misses of the above: no quantisation, no graph list, one rank, few requests."""
    listed = changed(recipe_named("gemma4_e2b_h200"))
    assert set(listed) == (FOR_CPUS - {"hardware.count"}) | {"draft.model", "limits.memory_fraction"}


def test_kernels_of_a_draft_are_left_out_and_its_shape_and_rule_are_not() -> None:
    recipe = recipe_named("deepseek_v3_nvfp4_b200")
    rejection = replace(recipe, draft=replace(recipe.draft, acceptance=Acceptance.REJECTION, num_steps=2))
    small = at_toy_size(rejection, TINY).alone
    assert (small.draft.num_steps, small.draft.acceptance) == (2, Acceptance.REJECTION)
    assert changed(rejection)["draft.moe_runner_backend"] == ("triton", LEFT_OUT)


def test_of_the_arguments_outside_a_recipes_keys_only_speculative_ones_are_kept() -> None:
    args = tuple(
        ExtraArg(flag=flag, why="tried", value=value)
        for flag, value in (
            ("--speculative-ngram-max-trie-depth", 4),
            ("--speculative-draft-attention-backend", "fa3"),
            ("--enable-nccl-nvls", None),
        )
    )
    recipe = recipe_named("deepseek_v3_h200")
    small = at_toy_size(replace(recipe, engine=replace(recipe.engine, extra_args=args)), TINY)
    assert [arg.flag for arg in small.alone.engine.extra_args] == ["--speculative-ngram-max-trie-depth"]
    assert next(each for each in small.changed if each.key == "engine.extra_args").production.count("--") == 3


def test_a_rehearsal_is_rehearsed_as_it_stands() -> None:
    recipe = recipe_named("rehearsal/deepseek_v3_cpu")
    small = at_toy_size(recipe, None)
    assert (small.alone, small.ranks, small.changed) == (recipe, None, ())
    two = replace(recipe, hardware=replace(recipe.hardware, layout=Layout(tp=2)))
    assert at_toy_size(two, None).ranks == two


@pytest.mark.parametrize(
    ("dtype", "arithmetic"),
    [
        ("float32", "float32"),
        ("float", "float32"),
        ("half", "float16"),
        ("bfloat16", "bfloat16"),
        ("auto", "bfloat16"),
        (None, "bfloat16"),
    ],
)
def test_every_spelling_of_the_arithmetic_has_its_tolerance(dtype: str | None, arithmetic: str) -> None:
    recipe = load_recipe(find_recipe("rehearsal/deepseek_v3_cpu")).recipe
    found = computed_in(replace(recipe, engine=replace(recipe.engine, dtype=dtype)))
    assert found == arithmetic
    assert found in TOLERANCE_NATS
