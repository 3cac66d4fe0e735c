"""What is started, recipe by recipe: compared with snapshots, so that a change shows as the diff a reviewer reads.

`python tests/launch/test_spec.py` writes them anew.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.resolution import about_plan
from spec_toolkit.launch.spec import LaunchSpec, Place, as_shell, to_launch
from spec_toolkit.planning import naming
from spec_toolkit.planning.naming import flag_of
from spec_toolkit.planning.plan import Plan, make_plan
from spec_toolkit.recipe.catalogue import Entry, catalogue
from spec_toolkit.recipe.load import load_recipe, parse_recipe
from spec_toolkit.shipped import shipped

CATALOGUE = shipped("recipes")
SNAPSHOTS = Path(__file__).parent.parent / "snapshots"
PLACE = Place(
    python="python3",
    rehearsal="/toolkit/rehearsal",
    target="/models/target",
    target_commit="0" * 40,
    draft=None,
    draft_commit=None,
    engine_config="/state/engine.yaml",
    steps_config="/state/steps.json",
    patch_list="/state/patches.json",
    port=30000,
    cores=2,
)


def plan_of(entry: Entry) -> Plan:
    return make_plan(load_recipe(entry.path), load_tables())


def shell(plan: Plan) -> str:
    apart = plan.recipe.draft.model != "same"
    place = replace(PLACE, draft="/models/draft", draft_commit="1" * 40) if apart else PLACE
    specs = [to_launch(plan, place, speculate=speculate) for speculate in (True, False)]
    return "\n\n# and without speculation\n".join(as_shell(spec) for spec in specs) + "\n"


def snapshot_of(entry: Entry) -> Path:
    return SNAPSHOTS / f"{entry.name.replace('/', '.')}.sh"


@pytest.mark.parametrize("entry", catalogue(), ids=lambda entry: entry.name)
def test_a_recipe_starts_what_its_snapshot_says(entry: Entry) -> None:
    assert shell(plan_of(entry)) == snapshot_of(entry).read_text()


def test_no_snapshot_is_left_of_a_recipe_that_is_gone() -> None:
    assert {path.name for path in SNAPSHOTS.glob("*.sh")} == {snapshot_of(entry).name for entry in catalogue()}


def launch(text: str, *, speculate: bool = True) -> LaunchSpec:
    return to_launch(make_plan(parse_recipe(text.encode(), Path("x.yaml")), load_tables()), PLACE, speculate=speculate)


BASE = """
summary: A test.
target: {model: deepseek-ai/DeepSeek-V3-0324}
draft: {method: mtp, num_steps: 3%s}
hardware: {gpu: h200, count: 8, layout: {tp: 8%s}}
engine: {sglang: 0.5.23%s}
limits: {max_running_requests: 64, context_tokens: 4096}
"""


def argument(spec: LaunchSpec, flag: str) -> str | None:
    return spec.command[spec.command.index(flag) + 1] if flag in spec.command else None


def test_a_chains_width_follows_from_its_steps() -> None:
    assert argument(launch(BASE % ("", "", "")), "--speculative-num-draft-tokens") == "4"


def test_a_trees_width_is_the_recipes() -> None:
    spec = launch(BASE % (", topk: 4, num_draft_tokens: 16", "", ""))
    assert (argument(spec, "--speculative-eagle-topk"), argument(spec, "--speculative-num-draft-tokens")) == ("4", "16")


@pytest.mark.parametrize(
    ("acceptance", "switch"),
    [("target_only", False), ("rejection", True)],
)
def test_the_acceptance_rule_becomes_its_switch(acceptance: str, switch: bool) -> None:
    spec = launch(BASE % (f", acceptance: {acceptance}", "", ""))
    assert ("--speculative-use-rejection-sampling" in spec.command) is switch


def test_overlap_is_on_unless_the_recipe_turns_it_off() -> None:
    assert "--disable-overlap-schedule" not in launch(BASE % ("", "", "")).command
    assert "--disable-overlap-schedule" in launch(BASE % ("", "", ", overlap: false")).command


def test_without_speculation_no_speculative_flag_is_left_and_the_rest_is_the_same() -> None:
    with_, without = (launch(BASE % ("", "", ""), speculate=speculate) for speculate in (True, False))
    assert not [word for word in without.command if word.startswith("--speculative")]
    assert with_.command[: len(without.command)] == without.command


def test_a_flag_cannot_be_smuggled_in_as_a_value() -> None:
    extra = ', extra_args: [{flag: --log-level, value: "--admin-api-key=mine", why: x}, {flag: --x, why: y}]'
    assert launch(BASE % ("", "", extra)).command[-2:] == ("--log-level=--admin-api-key=mine", "--x")


def test_a_flag_that_a_key_of_the_recipe_sets_is_refused_beside_it() -> None:
    known = [refused.flag.removesuffix("*") for refused in load_tables().engine.refused_flags]
    flags = [flag_of(argument) for argument in naming._KEY_OF if "." not in argument]
    assert len(flags) > 20
    assert [flag for flag in flags if not flag.startswith(tuple(known))] == []


def test_every_attention_rank_must_report() -> None:
    spec = launch(BASE % ("", ", dp: 2, dp_attention: true", ""))
    assert [name for name in spec.processes if name.startswith("scheduler")] == [
        f"scheduler-dp{rank // 4}-pp0-tp{rank}" for rank in range(8)
    ]
    assert {"launcher", "detokenizer", "dp_controller"} < set(spec.processes)


def test_an_idle_rank_sleeps_unless_attention_ranks_wait_for_each_other() -> None:
    text = (CATALOGUE / "rehearsal" / "deepseek_v3_cpu.yaml").read_text()
    sleeping = "--sleep-on-idle"
    assert sleeping in launch(text.replace("tp: 1", "tp: 2")).command
    assert sleeping not in launch(text.replace("tp: 1", "tp: 2\n    dp: 2\n    dp_attention: true")).command


@pytest.mark.parametrize("speculate", [True, False])
def test_what_would_leave_a_rank_out_of_the_vote_or_a_patch_out_of_the_engine_is_not_inherited(speculate: bool) -> None:
    unset = launch(BASE % ("", "", ""), speculate=speculate).unset_environment
    assert {"SGLANG_PLUGINS", "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"} <= set(unset)


def test_a_variable_that_the_plan_reckons_with_is_set_at_launch_and_when_the_engine_is_asked() -> None:
    layout = ", dp: 8, dp_attention: true, moe_a2a_backend: deepep"
    text = (BASE % ("", layout, "")).replace("max_running_requests: 64", "max_running_requests: 512")
    plan = make_plan(parse_recipe(text.encode(), Path("x.yaml")), load_tables())
    name = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
    assert to_launch(plan, PLACE, speculate=True).set_environment[name] == "256"
    assert [question.environment for question in about_plan(plan, load_tables(), ()).questions] == [{name: "256"}] * 2
    assert name not in launch(BASE % ("", layout, "")).set_environment


def test_stand_ins_are_on_the_path_of_a_rehearsal_alone() -> None:
    by_name = {entry.name: to_launch(plan_of(entry), PLACE, speculate=True) for entry in catalogue()}
    for name, spec in by_name.items():
        on_path = "/toolkit/rehearsal" in " ".join([*spec.command, *spec.set_environment.values()])
        assert on_path is name.startswith("rehearsal/"), name


def test_no_secret_and_no_way_to_one_but_the_config_file_is_in_arguments_or_environment() -> None:
    spec = launch(BASE % ("", "", ""))
    assert argument(spec, "--config") == PLACE.engine_config
    assert not [word for word in (*spec.command, *spec.set_environment) if "key" in word.lower()]


if __name__ == "__main__":
    for each in catalogue():
        snapshot_of(each).write_text(shell(plan_of(each)))
