import pytest
from msgspec.structs import replace

from spec_toolkit.planning.memory.caps import Becomes, Outcome, judge
from spec_toolkit.planning.memory.ledger import DRAFT_KV, EMPTY_KV, How, make_ledger
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
    slots = temporary_slots(found.num_steps + 1, page_size=1)
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


# A draft of 2 GiB at least.
@pytest.mark.parametrize(
    ("demand", "caps", "unjudged"),
    [
        pytest.param(replace(DEMAND, draft=(None, How.UNKNOWN, "")), {"draft_weights_gib": 0.001}, True, id="weights"),
        pytest.param(replace(DEMAND, kv=None), {"draft_kv_gib": 0.001}, True, id="kv"),
        pytest.param(replace(DEMAND, kv=None), {"temporary_kv_gib": 0.001}, True, id="bytes-of-a-slot"),
        pytest.param(
            replace(DEMAND, rounds=Rounds(steps=(1,), width=None, has_draft_passes=False)),
            {"temporary_kv_gib": 0.001},
            True,
            id="a-block-nobody-read",
        ),
        pytest.param(replace(DEMAND, draft_most=8 * GIB), {"draft_weights_gib": 4.0}, True, id="between-the-bounds"),
        pytest.param(replace(DEMAND, draft_most=8 * GIB), {"draft_weights_gib": 8.0}, False, id="near-miss-above-both"),
        pytest.param(DEMAND, {"draft_weights_gib": 2.0}, False, id="near-miss-known"),
        pytest.param(
            replace(DEMAND, draft=(None, How.UNKNOWN, ""), rounds=Rounds()),
            {"draft_weights_gib": 0.001},
            False,
            id="near-miss-nothing-is-drafted",
        ),
    ],
)
def test_what_nobody_knows_exceeds_no_cap_and_is_named(demand, caps, unjudged):
    found = outcome(demand, **caps)
    assert found.becomes is Becomes.AS_ASKED
    assert found.unjudged == (tuple(caps) if unjudged else ())


def test_below_both_bounds_of_a_draft_is_an_excess():
    assert outcome(replace(DEMAND, draft_most=8 * GIB), draft_weights_gib=1.9).becomes is Becomes.AUTOREGRESSIVE


def test_a_cap_on_kv_is_compared_with_the_whole_of_the_drafts_pool():
    """Not with what the reserve leaves of it: here that is nothing."""
    crowded = replace(DEMAND, requests=1_000_000)
    ledger = make_ledger(crowded)
    assert ledger.taken(DRAFT_KV) == 0
    (excess,) = outcome(crowded, draft_kv_gib=1.0).excesses
    assert excess.takes_gib == pytest.approx(ledger.tokens * 100 / GIB)


def test_kv_that_is_charged_and_never_made_exceeds_no_cap():
    assistant = replace(DEMAND, kv=replace(DEMAND.kv, draft_is_empty=True))
    assert outcome(assistant, draft_kv_gib=0.001) == Outcome(becomes=Becomes.AS_ASKED)
    assert make_ledger(assistant).taken(EMPTY_KV) == make_ledger(DEMAND).taken(DRAFT_KV) > GIB
