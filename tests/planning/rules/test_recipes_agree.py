"""What the engine refuses of a command is said of the recipe that stands for it; `test_engine_agrees` puts the commands to the engine."""

import shlex
from pathlib import Path

import msgspec
import pytest

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.asked import Given
from spec_toolkit.launch.begin import begin
from spec_toolkit.planning.plan import Plan, make_plan
from spec_toolkit.recipe.command import read_commands
from spec_toolkit.recipe.load import parse_recipe
from tests.launch.engine_says import as_argv
from tests.planning.rules.test_engine_agrees import CLAIMED, TABLE, Launch

# A recipe has a word of its own for the algorithm, says steps and branches always, and leaves adaptive speculation to the toolkit.
_NEVER_ASKED = {"v4-nextn", "v4-lower-case", "v4-without-topk", "v3-steps-alone", "v3-topk-alone", "v3-width-alone"}
_NEVER_ASKED |= {"adaptive-two-steps", "dspark-width", "copies-and-ranks", "lora-adaptive"}
_NEVER_ASKED |= {"v3-unknown"}  # `init` leaves an algorithm out that there is not
_NO_KEY = {"dp-dspark-ragged", "lora-ragged", "pp-switched-on", "context-stretched"}  # for variables
_NO_KEY |= {"multiplexed-alone"}  # for a chunk of -1
_REFUSED_BY_ITS_OWN_KEY = {
    "dflash-on-cpu": "features.method-unplanned",
    "ngram-pages": "features.method-unplanned",
    "rejection-threshold": "features.thresholds-need-relaxed",
}


@pytest.mark.parametrize("launch", TABLE, ids=lambda launch: launch.name)
def test_a_recipe_is_judged_as_the_command_that_it_stands_for(launch: Launch) -> None:
    said = objections(plan_of(launch))
    if launch.name in _REFUSED_BY_ITS_OWN_KEY:
        assert _REFUSED_BY_ITS_OWN_KEY[launch.name] in said
    elif launch.name in _NEVER_ASKED or not launch.rule:
        assert launch.name in _NO_KEY or not said & CLAIMED
    elif launch.name not in _NO_KEY:
        assert launch.rule in said


def plan_of(launch: Launch) -> Plan:
    asked, tables = msgspec.convert(launch.arguments, Arguments), load_tables()
    line = shlex.join(["python3", "-m", "sglang.launch_server", *as_argv(asked)])
    given = Given(gpu=launch.gpu, count=16 // (asked.nnodes or 1))
    text = begin(read_commands(line)[0], None, given, tables).text
    assert text is not None
    return make_plan(parse_recipe(text.encode(), Path("recipe.yaml")), tables)


def objections(plan: Plan) -> set[str]:
    """What is refused, or corrected of what the engine would refuse."""
    refused = {finding.rule for finding in plan.findings if finding.verdict is Verdict.REFUSE}
    return refused | {f.rule for f in plan.findings if f.verdict is Verdict.CORRECT and f.rule in CLAIMED}
