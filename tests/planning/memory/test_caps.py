import pytest
from msgspec.structs import replace

from spec_toolkit.planning.memory.caps import Becomes, caps_of, judge
from spec_toolkit.planning.memory.ledger import make_ledger
from spec_toolkit.planning.memory.reserve import temporary_slots
from spec_toolkit.planning.memory.rounds import Rounds
from spec_toolkit.planning.situation import Caps
from tests.planning.memory.test_ledger import DEMAND, GIB

DEEP = replace(DEMAND, page_size=1, rounds=Rounds(steps=(0, 3, 7), topk=1, width=8), requests=4096)


def outcome(demand=DEMAND, **caps):
    return judge(make_ledger(demand), Caps(**caps), demand.rounds, demand.requests)


@pytest.mark.parametrize(
    ("caps", "becomes"),
    [
        pytest.param({}, Becomes.AS_ASKED, id="no-cap"),
        pytest.param({"draft_weights_gib": 2.0}, Becomes.AS_ASKED, id="just-within"),
        pytest.param({"draft_weights_gib": 1.9}, Becomes.AUTOREGRESSIVE, id="weights"),
        pytest.param({"draft_kv_gib": 1.0}, Becomes.AUTOREGRESSIVE, id="kv"),
        pytest.param({"draft_kv_gib": 4.0}, Becomes.AS_ASKED, id="kv-within"),
        pytest.param({"draft_weights_gib": 1.9, "may_run_autoregressive": False}, Becomes.REFUSED, id="refused"),
    ],
)
def test_above_a_cap_nothing_is_drafted(caps, becomes):
    assert outcome(**caps).becomes is becomes


def test_too_many_slots_alone_mean_fewer_steps():
    found = outcome(DEEP, temporary_kv_gib=0.04)
    assert found.becomes is Becomes.NARROWER
    slots = temporary_slots(num_steps=found.num_steps, topk=1, width=found.num_steps + 1, page_size=1)
    assert slots * DEEP.requests * 1000 <= 0.04 * GIB < (slots + 2) * DEEP.requests * 1000


@pytest.mark.parametrize(
    ("demand", "caps"),
    [
        pytest.param(DEEP, {"temporary_kv_gib": 0.001}, id="not-even-one-step"),
        pytest.param(DEEP, {"temporary_kv_gib": 0.04, "draft_weights_gib": 1.0}, id="another-cap-too"),
        pytest.param(
            replace(DEEP, rounds=Rounds(steps=(4,), topk=4, width=16)), {"temporary_kv_gib": 0.04}, id="a-tree"
        ),
        pytest.param(
            replace(DEEP, rounds=Rounds(steps=(1,), width=6, has_draft_passes=False)),
            {"temporary_kv_gib": 0.01},
            id="a-block",
        ),
    ],
)
def test_where_fewer_steps_do_not_help_nothing_is_drafted(demand, caps):
    assert outcome(demand, **caps).becomes is Becomes.AUTOREGRESSIVE


def test_what_nobody_knows_exceeds_no_cap():
    unknown = replace(DEMAND, draft=(None, DEMAND.draft[1], ""))
    assert outcome(unknown, draft_weights_gib=0.001).becomes is Becomes.AS_ASKED


def test_a_recipes_caps_and_whether_it_may_do_without_a_draft(change):
    recipe = change(limits__draft_weights_gib=4.0, limits__temporary_kv_gib=1.0)
    assert caps_of(recipe) == Caps(draft_weights_gib=4.0, temporary_kv_gib=1.0)
    assert not caps_of(change(policy__allow=["full", "zero_draft"])).may_run_autoregressive
