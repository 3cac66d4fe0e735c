"""What a finding says is planned instead must be something that nothing is wrong with any more."""

import pytest
from msgspec.structs import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.planning.situate import corrected
from spec_toolkit.planning.situation import Situation
from tests.planning.field_cases import build, load_cases, of_launch
from tests.planning.rules.launches import V4, launch

SITUATIONS = [
    pytest.param(build(parts), id=f"{case.id}-{situation['name'].replace(' ', '-')}")
    for case in load_cases()
    for situation in case.situations
    if (parts := {name: part for name, part in situation.items() if name not in {"name", "expect"}})
    .keys()
    .isdisjoint({"roles", "pod", "recipe"})
]
MORE = [
    pytest.param(launch(V4, kv_cache_dtype="bf16", attention_backend="fa3"), id="a-short-spelling"),
    pytest.param(launch(tp_size=8, ep_size=4, moe_a2a_backend="deepep", enable_dp_lm_head=True), id="a-layout"),
    pytest.param(
        launch(V4, speculative_algorithm="dspark", speculative_num_steps=3, speculative_eagle_topk=2), id="a-block"
    ),
    pytest.param(
        launch(speculative_algorithm="EAGLE", speculative_num_steps=3, speculative_dspark_block_size=5), id="no-block"
    ),
]


@pytest.mark.parametrize("situation", [*SITUATIONS, *MORE])
def test_a_corrected_launch_needs_no_correction(situation: Situation) -> None:
    corrections = corrections_of(situation)
    assert all(f.changes for f in corrections), [f.rule for f in corrections if not f.changes]
    planned = replace(situation, arguments=corrected(situation.arguments, corrections))
    assert not [f.sentence() for f in corrections_of(planned)]


@pytest.mark.parametrize("situation", [*SITUATIONS, *MORE])
def test_what_is_no_correction_promises_no_other_plan(situation: Situation) -> None:
    assert not [
        f.sentence() for f in of_launch(situation) if "Planned" in f.remedy and f.verdict is not Verdict.CORRECT
    ]


def corrections_of(situation: Situation) -> list[Finding]:
    """Of arguments; what a cap leaves of a draft is the plan's to draw again."""
    corrections = (f for f in of_launch(situation) if f.verdict is Verdict.CORRECT)
    return [f for f in corrections if f.where in Arguments.__struct_fields__]
