from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spec_toolkit.errors import Verdict
from spec_toolkit.facts.evidence import (
    DraftMeasured,
    Identity,
    LayoutMeasured,
    Prompts,
    Row,
    TargetMeasured,
    Workload,
)
from spec_toolkit.facts.evidence import Evidence as Measured
from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.plan import Evidence, Known, make_plan
from spec_toolkit.planning.rules.shape import Shape
from spec_toolkit.recipe.catalogue import find_recipe
from spec_toolkit.recipe.load import LoadedRecipe, load_recipe
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.terms import Method


@pytest.fixture(scope="module")
def h200() -> LoadedRecipe:
    return load_recipe(find_recipe("deepseek_v3_h200"))


def test_a_plan_carries_the_recipe_and_what_follows(h200: LoadedRecipe, tables: Tables) -> None:
    plan = make_plan(h200, tables)
    assert (plan.name, plan.sha256, plan.path) == ("deepseek_v3_h200", h200.sha256, h200.path)
    assert plan.shape == Shape(3, 1, 4)
    assert plan.decode_graph_batch_sizes[-1] == 64
    assert plan.may_launch
    assert plan.labels == ("unproven",)
    assert plan.evidence is Evidence.UNPROVEN


def test_a_rehearsal_is_labelled_so(tables: Tables) -> None:
    plan = make_plan(load_recipe(find_recipe("deepseek_v3_cpu")), tables)
    assert plan.labels == ("rehearsal",)
    assert plan.decode_graph_batch_sizes == ()


def test_one_refusal_forbids_the_launch_and_comes_first(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    spoiled = replace(h200, recipe=change(engine__sglang="0.5.24", draft__num_draft_tokens=9))
    plan = make_plan(spoiled, tables)
    assert not plan.may_launch
    order = [list(Verdict).index(finding.verdict) for finding in plan.findings]
    assert order == sorted(order)
    assert [finding.rule for finding in plan.findings[:2]] == ["pins.engine-version", "shape.chain-width"]


def test_a_correction_is_already_in_the_plan(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    plan = make_plan(replace(h200, recipe=change(draft__num_draft_tokens=9)), tables)
    assert plan.may_launch
    assert plan.shape == Shape(3, 1, 4)


def test_lossy_and_simulated_are_labels(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    recipe = change(draft__acceptance="relaxed", draft__accept_threshold_single=0.9, simulated=True)
    plan = make_plan(replace(h200, recipe=recipe), tables)
    assert plan.lossy
    assert plan.labels == ("lossy", "simulated", "unproven")


def test_every_rule_is_asked() -> None:
    """A rule that is written and listed nowhere would never speak."""
    import importlib
    import pkgutil

    from spec_toolkit.planning import judge, judge_around, plan, rules

    source = Path(plan.__file__).read_text("utf-8")
    listed = {
        *judge.LAUNCH_RULES,
        *judge.COMMAND_RULES,
        *judge_around.PAIR_RULES,
        *judge_around.GROUP_RULES,
        *judge_around.POD_RULES,
    }
    called_elsewhere = {"machine.machine_findings"}  # by whoever looks at this machine
    for found in pkgutil.iter_modules(rules.__path__):
        module = importlib.import_module(f"{rules.__name__}.{found.name}")
        # What another rule of its module puts together is asked through that one.
        parts = Path(module.__file__ or "").read_text("utf-8")
        for name, function in vars(module).items():
            if name.startswith("_") or getattr(function, "__module__", "") != module.__name__:
                continue
            if "Iterator[spec_toolkit.errors.Finding]" not in str(
                getattr(function, "__annotations__", {}).get("return")
            ):
                continue
            asked = (
                function in listed
                or f"{found.name}.{name}(" in source
                or f"yield from {name}(" in parts
                or f"{found.name}.{name}" in called_elsewhere
            )
            assert asked, f"{found.name}.{name}"


def test_a_recipe_whose_draft_is_above_its_cap_is_planned_without_it(
    h200: LoadedRecipe, tables: Tables, change: Any
) -> None:
    """C014."""
    plan = make_plan(replace(h200, recipe=change(limits__draft_weights_gib=0.5)), tables)
    assert plan.may_launch
    assert plan.recipe.draft.method is Method.NONE
    assert (plan.steps, plan.asked.speculates, plan.limits and plan.limits.steps) == ((), False, (0,))
    assert "capacity.draft-cap" in {finding.rule for finding in plan.findings}
    assert plan.forecast.outlook is None


def test_what_a_cap_has_planned_away_refuses_nothing(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    """The fraction holds the target's weights and not the draft's; thresholds and reduced steps are of a draft that is not there."""
    tight = {"limits__context_tokens": 8192, "limits__memory_fraction": 0.575}
    of_draft = {"draft__accept_threshold_single": 0.9, "policy__reduced_steps": [9]}
    with_draft = make_plan(replace(h200, recipe=change(**tight, **of_draft)), tables)
    refused = {finding.rule for finding in with_draft.findings if finding.verdict is Verdict.REFUSE}
    assert {"capacity.memory-fraction", "features.thresholds-need-relaxed", "policy.reduced-steps"} <= refused
    plan = make_plan(replace(h200, recipe=change(limits__draft_weights_gib=0.5, **tight, **of_draft)), tables)
    assert plan.may_launch
    assert [f.rule for f in plan.findings if f.verdict is Verdict.CORRECT] == ["capacity.draft-cap"]


def test_nothing_is_corrected_of_a_draft_that_a_cap_has_planned_away(
    h200: LoadedRecipe, tables: Tables, change: Any
) -> None:
    nvfp4 = {"target": {"model": "nvidia/DeepSeek-V3-0324-NVFP4", "quantization": "nvfp4"}, "hardware__gpu": "b200"}
    plan = make_plan(replace(h200, recipe=change(**nvfp4, limits__draft_weights_gib=0.5)), tables)
    assert plan.recipe.draft.method is Method.NONE
    assert not [name for name in plan.asked.__struct_fields__ if "speculative" in name and getattr(plan.asked, name)]
    assert "draft-moe.kernels" not in {finding.rule for finding in plan.findings}


@pytest.mark.parametrize(
    ("written", "steps"),
    [
        pytest.param(None, (0, 2, 4), id="left-open-half"),
        pytest.param([9, 3], (0, 3, 4), id="those-that-are-fewer"),
        pytest.param([9], (0, 2, 4), id="none-is-fewer-so-half"),
        pytest.param([], (0, 4), id="near-miss-written-empty"),
    ],
)
def test_fewer_steps_leave_fewer_between(
    h200: LoadedRecipe, tables: Tables, change: Any, written: list[int] | None, steps: tuple[int, ...]
) -> None:
    wide = change(draft__num_steps=15, limits__temporary_kv_gib=0.05, policy__reduced_steps=written)
    plan = make_plan(replace(h200, recipe=wide), tables)
    assert plan.may_launch
    assert plan.steps == steps


def test_and_is_refused_where_it_may_not_be(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    recipe = change(limits__draft_weights_gib=0.5, policy__allow=["full", "reduced", "zero_draft"])
    plan = make_plan(replace(h200, recipe=recipe), tables)
    assert not plan.may_launch
    assert plan.recipe.draft.method is Method.MTP


def test_a_cap_on_temporary_slots_leaves_fewer_steps(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    wide = change(draft__num_steps=15, limits__temporary_kv_gib=0.05)
    plan = make_plan(replace(h200, recipe=wide), tables)
    assert plan.may_launch
    assert plan.shape is not None
    assert 0 < plan.shape.num_steps < 15
    assert max(plan.steps) == plan.shape.num_steps == plan.asked.speculative_num_steps
    assert plan.asked.speculative_num_draft_tokens == plan.shape.num_steps + 1
    reserve = plan.forecast.ledger.line("temporary reserve")
    assert reserve is not None
    assert reserve.gib is not None
    assert reserve.gib <= 0.05


def test_what_is_planned_instead_is_what_is_asked(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    """C070: the draft's kernels are corrected, in the launch too."""
    recipe = change(target={"model": "nvidia/DeepSeek-V3-0324-NVFP4", "quantization": "nvfp4"}, hardware__gpu="b200")
    plan = make_plan(replace(h200, recipe=recipe), tables)
    assert {"draft-moe.kernels", "draft-moe.exchange"} <= {finding.rule for finding in plan.findings}
    assert (plan.asked.speculative_moe_runner_backend, plan.asked.speculative_moe_a2a_backend) == ("triton", "none")
    near_miss = make_plan(h200, tables)
    assert near_miss.asked.speculative_moe_runner_backend is None


def test_rules_see_through_the_escape_hatch(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    extra = [{"flag": "--enable-lora", "why": "x"}, {"flag": "--lora-paths", "value": "a=org/a", "why": "x"}]
    plan = make_plan(replace(h200, recipe=change(engine__extra_args=extra)), tables)
    assert plan.situation.arguments.enable_lora
    assert "lora.draft-unadapted" in {finding.rule for finding in plan.findings}
    assert plan.asked.speculative_adaptive is None  # beside adapters the engine has one depth
    assert plan.asked.enable_lora is None  # it is handed over as it was written


def test_a_flag_is_read_as_the_engine_would(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    extra = [
        {"flag": "--log-requests-level", "value": 2, "why": "x"},
        {"flag": "--nonsense", "why": "x"},
        {"flag": "--max-prefill-tokens", "value": "abc", "why": "x"},
        {"flag": "--enable-lora", "value": 1, "why": "x"},
        {"flag": "--nsa-decode-backend", "value": "fa3", "why": "x"},
        {"flag": "--enable-ep-moe", "why": "x"},
        {"flag": "--tp-size", "value": "eight", "why": "x"},
    ]
    plan = make_plan(replace(h200, recipe=change(engine__extra_args=extra)), tables)
    refused = {f.where: f for f in plan.findings if f.verdict is Verdict.REFUSE}
    words = {
        "engine.extra_args[1]": ("command.unknown-flag", "--nonsense is not a flag"),
        "engine.extra_args[2]": ("command.value", "--max-prefill-tokens is 'abc'"),
        "engine.extra_args[3]": ("command.value", "--enable-lora is a switch"),
        "engine.extra_args[4]": ("command.renamed", "it became --dsa-decode-backend"),
        "engine.extra_args[5]": ("command.renamed", "it became --ep-size"),
        "engine.extra_args[6].flag": ("features.extra-arg-refused", "--tp-size"),
    }
    assert refused.keys() == words.keys()
    assert all(
        refused[where].rule == rule and word in refused[where].sentence() for where, (rule, word) in words.items()
    )


def test_evidence_of_this_recipe_gives_the_policy_its_break_even(h200: LoadedRecipe, tables: Tables) -> None:
    recipe = msgspec.structs.replace(
        h200.recipe, target=msgspec.structs.replace(h200.recipe.target, revision="1" * 40), evidence="evidence/x.json"
    )
    plan = make_plan(replace(h200, recipe=recipe), tables, Known(evidence=measured_for(recipe)))
    assert plan.labels == ("measured",)
    assert plan.limits is not None
    assert plan.limits.break_even
    foreign = msgspec.structs.replace(recipe, hardware=msgspec.structs.replace(recipe.hardware, gpu="b200"))
    elsewhere = make_plan(replace(h200, recipe=foreign), tables, Known(evidence=measured_for(recipe)))
    assert elsewhere.labels == ("unproven",)
    assert elsewhere.limits is not None
    assert not elsewhere.limits.break_even
    assert "evidence.foreign" in {finding.rule for finding in elsewhere.findings}


def test_a_block_that_the_checkpoint_settles_is_measured_as_such(tables: Tables) -> None:
    loaded = load_recipe(find_recipe("deepseek_v4_flash_0731_h200"))
    assert loaded.recipe.draft.block_tokens is None
    recipe = msgspec.structs.replace(
        loaded.recipe, target=msgspec.structs.replace(loaded.recipe.target, revision="1" * 40)
    )
    plan = make_plan(replace(loaded, recipe=recipe), tables)
    assert plan.shape is not None
    block = plan.shape.num_draft_tokens - 1
    for steps, label in ((block, "measured"), (block - 1, "unproven")):
        seen = measured_for(recipe, steps=steps)
        again = make_plan(replace(loaded, recipe=recipe), tables, Known(evidence=seen))
        assert again.labels == (label,)
        assert ("evidence.other-depth" in {finding.rule for finding in again.findings}) is (label == "unproven")


def test_a_word_for_the_checkpoint_that_is_not_its_own_is_said(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    plan = make_plan(replace(h200, recipe=change(target__quantization="nvfp4")), tables)
    assert "precision.not-as-stored" in {finding.rule for finding in plan.findings}


@pytest.mark.parametrize(
    ("requests", "sets", "says"),
    [
        pytest.param(
            512, {"SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": "256"}, "which the launch sets", id="C105"
        ),
        pytest.param(256, {}, None, id="near-miss-it-fits"),
        pytest.param(4096, {}, "lower max_running_requests to 2,048", id="beyond-the-ceiling"),
    ],
)
def test_the_buffer_of_an_exchange_is_set_as_large_as_a_pass(
    h200: LoadedRecipe, tables: Tables, change: Any, requests: int, sets: dict[str, str], says: str | None
) -> None:
    layout = {"tp": 8, "dp": 8, "dp_attention": True, "moe_a2a_backend": "deepep"}
    recipe = change(hardware__layout=layout, limits__max_running_requests=requests, graphs__decode_batch_sizes=None)
    plan = make_plan(replace(h200, recipe=recipe), tables)
    assert plan.situation.environment == sets
    found = [f for f in plan.findings if f.rule == "capacity.dispatch"]
    assert [says in f.sentence() for f in found] == [True] * bool(says)
    assert any(f.verdict is Verdict.REFUSE for f in found) is (says is not None and not sets)


def test_two_nodes_are_told_what_their_machines_must_set(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    """C103 of a recipe: it has no key for an interface, nor for an address."""
    plan = make_plan(replace(h200, recipe=change(hardware__nodes=2, hardware__layout__tp=16)), tables)
    (found,) = (f for f in plan.findings if f.rule.startswith("network."))
    assert (found.verdict, found.where) == (Verdict.NOTE, "hardware.nodes")
    assert all(word in found.sentence() for word in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "IPC_LOCK", "RDMA"))


def measured_for(recipe: Recipe, steps: int = 3) -> Measured:
    """Made up, for this test alone."""
    layout = recipe.hardware.layout
    identity = Identity(
        target=TargetMeasured(
            model=recipe.target.model, revision=recipe.target.revision or "", quantization=recipe.target.quantization
        ),
        draft=DraftMeasured(method=recipe.draft.method, model=recipe.draft.model),
        gpu=recipe.hardware.gpu,
        count=recipe.hardware.count,
        layout=LayoutMeasured(tp=layout.tp),
        acceptance=recipe.draft.acceptance,
        sglang=recipe.engine.sglang,
        workload=Workload(name="made up", prompts=Prompts.DATASET),
    )
    rows = (
        Row(batch=1, num_steps=None, tokens_per_second=100.0),
        Row(batch=1, num_steps=steps, tokens_per_second=150.0, emitted_length=2.5, rounds=1000),
    )
    return Measured(identity=identity, rows=rows, simulated=False)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param({}, [], id="tp-8-on-eight"),
        pytest.param({"hardware__layout__tp": 16}, ["layout.count"], id="too-many-ranks"),
        pytest.param({"hardware__layout__tp": 16, "hardware__nodes": 2}, [], id="near-miss-two-nodes"),
        pytest.param({"hardware__layout__tp": 4}, ["layout.count"], id="idle-gpus"),
        pytest.param({"hardware__layout__tp": 4, "hardware__layout__dp": 2}, [], id="two-copies"),
        pytest.param(
            {"hardware__layout__dp": 8, "hardware__layout__dp_attention": True}, [], id="attention-ranks-lie-inside"
        ),
        pytest.param(
            {"hardware__layout__dp": 3, "hardware__layout__dp_attention": True},
            ["layout.dp-attention"],
            id="attention-ranks-do-not-divide",
        ),
        pytest.param({"hardware__layout__ep": 8}, [], id="experts"),
        pytest.param({"hardware__layout__ep": 3}, ["layout.ep"], id="experts-do-not-divide"),
        pytest.param(
            {"hardware__gpu": "cpu", "hardware__layout__tp": 2, "hardware__count": 1},
            [],
            id="ranks-on-a-cpu-are-processes",
        ),
    ],
)
def test_the_layout_fits_the_hardware(
    h200: LoadedRecipe, tables: Tables, change: Any, keys: dict[str, Any], expected: list[str]
) -> None:
    found = make_plan(replace(h200, recipe=change(**keys)), tables).findings
    assert [finding.rule for finding in found if finding.rule.startswith("layout.")] == expected


def test_a_tree_on_deepseek_v4_is_refused(tables: Tables) -> None:
    flash = load_recipe(find_recipe("deepseek_v4_flash_h200"))
    draft = msgspec.structs.replace(flash.recipe.draft, topk=4, num_draft_tokens=8)
    plan = make_plan(replace(flash, recipe=msgspec.structs.replace(flash.recipe, draft=draft)), tables)
    refused = [f for f in plan.findings if f.verdict is Verdict.REFUSE]
    assert [(f.rule, f.where) for f in refused] == [("shape.v4-topk", "draft.topk")]


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("deepseek_v3_h200", {"draft__block_tokens": 4}),
        ("deepseek_v3_h200", {"draft__topk": 4}),
        ("deepseek_v4_flash_h200", {"draft__num_steps": None}),
    ],
)
def test_a_key_that_is_refused_is_not_corrected_too(
    tables: Tables, change: Any, name: str, keys: dict[str, Any]
) -> None:
    loaded = load_recipe(find_recipe(name))
    draft = {key.removeprefix("draft__"): value for key, value in keys.items()}
    recipe = msgspec.structs.replace(loaded.recipe, draft=msgspec.structs.replace(loaded.recipe.draft, **draft))
    found = [
        f for f in make_plan(replace(loaded, recipe=recipe), tables).findings if f.where in keys or "draft." in f.where
    ]
    assert [f.verdict for f in found if f.verdict in {Verdict.REFUSE, Verdict.CORRECT}] == [Verdict.REFUSE]


def test_what_a_key_of_its_own_refuses_is_refused_once(h200: LoadedRecipe, tables: Tables, change: Any) -> None:
    gemma = change(
        target={"model": "google/gemma-4-31B-it"},
        draft={"method": "frozen_kv_mtp", "num_steps": 5},
        hardware={"gpu": "h200", "count": 2, "layout": {"tp": 2}},
    )
    refused = [f for f in make_plan(replace(h200, recipe=gemma), tables).findings if f.verdict is Verdict.REFUSE]
    assert [(f.rule, f.where) for f in refused] == [("features.draft-model", "draft.model")]
