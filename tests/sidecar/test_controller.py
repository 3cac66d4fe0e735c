"""The loop on a clock of its own: traces in, moves out. Engines have the plugin's own knob; nothing sleeps for luck."""

import pytest

from spec_toolkit.sidecar.records import Hold, Snapshot
from spec_toolkit.sidecar.snapshot import take_snapshot
from spec_toolkit.terms import Comeback, KnobMode, Mode
from tests.sidecar.world import FakeEngine, World, limits


def held(mode: Mode, steps: int, at: str = "then") -> Hold:
    return Hold(mode=mode, steps=steps, at=at)


@pytest.fixture
def world():
    with World() as made:
        yield made


def test_load_lowers_by_rungs_and_quiet_raises_again(world):
    world.seconds(2)
    world.engine.queue = 9
    assert world.seconds(20) == ["6: full -> reduced(1) load_high", "11: reduced(1) -> zero_draft load_high"]
    assert world.engine.steps == [0]
    world.engine.queue = 0
    assert [move.split(": ")[1] for move in world.seconds(200)][:2] == [
        "zero_draft -> reduced(1) profit_possible",
        "reduced(1) -> full profit_possible",
    ]
    assert world.engine.steps == [3]
    assert [epoch for epoch, _, _ in world.engine.commands] == [1, 2, 3, 4]


def test_a_move_is_told_with_its_reason_and_its_price(world):
    world.engine.queue = 9
    world.seconds(8)
    [(_, line)] = [told for told in world.lines if told[1].moved]
    assert line.why.startswith("full -> reduced(1): load_high: queue depth at least 9 over 3 s, limit 8")
    assert (line.confirmed_ms, line.rounds) == (0.0, 0)


def test_a_command_that_is_refused_leaves_the_state_and_is_tried_again_ever_less_often(world):
    world.engine.queue = 9
    world.engine.refuses = True
    assert not world.seconds(60)
    assert world.rung == "full"
    tries = len(world.engine.commands)
    assert 4 <= tries <= 8  # after 1, 2, 4, 8, 16, 32 s
    assert "asked for reduced(1), the engine still reports full" in world.why
    assert "[act.not-taken]" in world.why
    assert world.controller.patience.failures == tries
    world.engine.refuses = False
    assert "full -> reduced(1) load_high" in world.seconds(61)[0]
    assert world.controller.patience.problem == ""


def test_a_refusal_of_one_rung_does_not_delay_another(world):
    world.engine.queue = 9
    world.engine.refuses = True
    world.seconds(30)
    world.engine.refuses = False
    world.engine.fault()
    assert world.seconds(1) == ["31: full -> zero_draft draft_fault"]


def test_a_command_that_was_taken_after_its_caller_gave_up_is_believed(world):
    world.seconds(3)
    world.engine.queue = 9
    world.engine.refuses = True
    world.seconds(4)
    assert world.rung == "full"
    [knob] = world.engine.knobs.values()
    knob.take({"epoch": 9, "mode": 1, "steps": 1})
    sent = len(world.engine.commands)
    assert [move.split(": ")[1] for move in world.seconds(3)] == ["full -> reduced(1) load_high"]
    assert len(world.engine.commands) == sent


def test_an_engine_that_fell_by_itself_is_followed_and_not_fought(world):
    world.seconds(3)
    world.engine.fault()
    assert world.seconds(1) == ["4: full -> zero_draft draft_fault"]
    assert not world.engine.commands
    assert world.seconds(19) == []  # cools down
    assert [move.split(": ")[1] for move in world.seconds(5)] == ["zero_draft -> reduced(1) profit_possible"]


def test_a_fall_that_nothing_counts_is_followed_too(world):
    world.engine.faults = None
    world.seconds(3)
    world.engine.fault()
    world.engine.faults = None
    assert world.seconds(1) == ["4: full -> zero_draft draft_fault"]
    assert "the engine fell by itself: draft_fault" in world.why
    assert world.seconds(15) == []
    assert not world.engine.commands


def test_faults_of_an_engine_that_took_anothers_place_are_all_new(world):
    world.seconds(3)
    world.engine.fault()
    world.seconds(1)
    assert world.controller.state.faults_seen == 1
    other = FakeEngine(steps=0)
    other.faults = 1
    world.route(other, number=2)
    world.seconds(1)
    assert "draft faults 1, of them new 1" in world.why


def test_a_fall_below_a_hold_is_followed(world):
    world.controller.hold = held(Mode.FULL, 3)
    world.seconds(3)
    world.engine.fault()
    assert world.seconds(2) == ["4: full -> zero_draft draft_fault"]
    assert world.controller.state.held


def test_an_engine_that_somebody_else_moved_is_set_back(world):
    world.seconds(3)
    [knob] = world.engine.knobs.values()
    knob.take({"epoch": 5, "mode": 1, "steps": 1})
    world.seconds(1)
    assert world.engine.steps == [3]
    assert world.engine.commands == [(6, KnobMode.FULL, 3)]


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        pytest.param(((0, 0), (0, 1)), "", id="tensor-parallel"),
        pytest.param(((0, 0), (1, 1)), "", id="attention-dp"),
    ],
)
def test_all_ranks_move_together(ranks, told):
    with World(engine=FakeEngine(steps=3, ranks=ranks)) as world:
        world.engine.queue = 9
        world.seconds(8)
        assert world.engine.steps == [1, 1]
        assert world.controller.sight.look.finding == told


def test_ranks_that_disagree_are_no_number_and_are_brought_together():
    with World(engine=FakeEngine(steps=3, ranks=((0, 0), (0, 1)))) as world:
        world.seconds(2)
        world.engine.knobs[0, 1].take({"epoch": 1, "mode": 2, "steps": 0})
        assert world.seconds(1) == []
        look = world.controller.sight.look
        assert "ranks disagree on mode or steps, epoch" in look.finding
        assert look.telemetry.steps is None
        assert world.engine.steps == [3, 3]
        assert world.engine.commands == [(2, KnobMode.FULL, 3)]


def test_at_its_start_the_engine_is_right(world):
    [knob] = world.engine.knobs.values()
    knob.take({"epoch": 5, "mode": 1, "steps": 1})
    world.seconds(1)
    assert world.rung == "reduced(1)"
    assert not world.engine.commands


def test_a_sidecar_that_was_killed_is_carried_on_with():
    with World() as world:
        world.engine.queue = 9
        world.seconds(20)
        world.engine.fault()
        world.seconds(1)
        before = world.controller.carried(world.now_s)
        with World(carried=before, engine=world.engine, now_s=world.now_s) as after:
            after.seconds(1)
            assert after.controller.state == before.state
            assert not [line for _, line in after.lines if line.moved]


def test_what_happened_while_no_sidecar_ran_is_caught_up_with():
    with World() as world:
        world.seconds(5)
        before = world.controller.carried(world.now_s)
        stand_in = FakeEngine(steps=None)
        with World(carried=before, engine=stand_in, now_s=world.now_s) as after:
            after.route(stand_in, number=2, lost=1)
            assert after.seconds(1) == ["6: full -> autoregressive engine_lost"]
            assert after.controller.state.crash_times_s == (6.0,)
            assert after.seconds(1) == []


def test_a_person_who_starts_anew_is_not_refused_for_yesterdays_crashes():
    with World() as world:
        world.seconds(1)
        before = world.controller.carried(1.0)
        crashed = before.state.__class__(
            **{name: getattr(before.state, name) for name in before.state.__struct_fields__}
            | {"mode": Mode.AUTOREGRESSIVE, "steps": 0, "sticky": True, "crash_times_s": (0.1, 0.2, 0.3)}
        )
        left = before.__class__(state=crashed, run="run-a", engine=4, lost=3, written_s=1.0)
        with World(carried=left, run="run-b", now_s=1.0) as after:
            assert after.seconds(3) == []
            assert after.rung == "full"
            assert not after.controller.state.sticky
            after.route(None, lost=1)
            after.seconds(1)
            assert after.controller.state.sticky, "they still count with the next one"


def lose(world: World) -> FakeEngine:
    """The engine dies; the supervisor puts another in its place."""
    world.route(None, lost=1, returning=True)
    world.seconds(1)
    stand_in = FakeEngine(steps=None)
    stand_in.running = 0
    world.route(stand_in, number=2, lost=1)
    return stand_in


def test_a_lost_engine_is_remembered_and_nobody_is_asked_for_what_happens_anyway(world):
    world.seconds(3)
    lose(world)
    world.seconds(20)
    assert [line.why for _, line in world.lines if line.moved] == [
        "full -> autoregressive: engine_lost: the engine ended or hung without being asked to"
    ]
    assert not world.asked
    assert world.controller.state.crash_times_s == (4.0,)


def test_beside_a_speculating_engine_is_asked_for_when_the_cool_down_is_over_and_arrives_at_the_lowest_rung(world):
    world.seconds(3)
    stand_in = lose(world)
    world.seconds(29)
    assert not world.asked
    world.seconds(5)
    [(speculate, why)] = world.asked
    assert speculate
    assert why.startswith("profit_possible")
    world.route(stand_in, number=2, lost=1, returning=True)
    assert world.seconds(20) == []
    assert "another engine was asked for" in world.why
    back = FakeEngine(steps=0)
    world.route(back, number=3, lost=1)
    assert [move.split(": ")[1] for move in world.seconds(1)] == ["autoregressive -> zero_draft profit_possible"]
    assert len(world.asked) == 1
    moves = [move.split(": ")[1] for move in world.seconds(30)]
    assert moves[0] == "zero_draft -> reduced(1) profit_possible"


@pytest.mark.parametrize("how", ["it is lost", "it is given up", "it never comes"])
def test_a_return_that_fails_is_a_crash_and_the_next_waits_longer(world, how):
    world.seconds(3)
    stand_in = lose(world)
    world.seconds(34)
    assert len(world.asked) == 1
    world.route(stand_in, number=2, lost=1, returning=True)
    world.seconds(3)
    if how == "it is lost":
        world.route(stand_in, number=2, lost=2, returning=True)
    elif how == "it is given up":
        world.route(stand_in, number=2, lost=1)
    else:
        world.seconds(100)
    world.seconds(1)
    [failed_s] = [at for at, line in world.lines if "the engine that was to return did not" in line.why]
    assert len(world.controller.state.crash_times_s) == 2
    assert world.rung == "autoregressive"
    while len(world.asked) == 1 and world.now_s < failed_s + 100:
        world.seconds(1)
    assert 60 <= world.now_s - failed_s <= 65


def test_of_an_engine_that_took_anothers_place_nothing_older_is_believed(world):
    world.seconds(3)
    lose(world)
    world.seconds(20)
    other = FakeEngine(steps=None)
    world.route(other, number=3, lost=1)
    world.seconds(2)
    assert world.controller.seen.seconds == 1


def test_in_place_waits_until_nothing_runs_or_waits():
    with World(comeback=Comeback.IN_PLACE) as world:
        world.seconds(3)
        stand_in = lose(world)
        stand_in.running = 1
        world.seconds(60)
        assert not world.asked
        assert "waits until nothing runs or queues for a window; running 1," in world.why
        stand_in.running = 0
        world.seconds(5)
        assert [speculate for speculate, _ in world.asked] == [True]


def test_by_hand_waits_for_a_person():
    with World(comeback=Comeback.BY_HAND) as world:
        world.seconds(3)
        lose(world)
        world.seconds(100)
        assert not world.asked
        assert "comeback is by_hand" in world.why
        world.controller.hold = held(Mode.ZERO_DRAFT, 0)
        world.seconds(1)
        assert [speculate for speculate, _ in world.asked] == [True]


def test_a_supervisor_that_refuses_is_asked_again_later(world):
    world.seconds(3)
    lose(world)
    world.refuses = "the engine that served before still finishes what it runs"
    world.seconds(60)
    assert 3 <= len(world.asked) <= 7
    assert world.refuses in world.why
    assert world.rung == "autoregressive"


def test_an_engine_that_hangs_is_replaced_once(world):
    world.seconds(3)
    world.engine.answers = False
    world.seconds(40)
    assert not world.asked
    assert world.seconds(2) == ["44: full -> autoregressive engine_lost"]
    [(speculate, why)] = world.asked
    assert not speculate
    assert "no rank of engine 1 has answered for 41 s" in why
    assert world.hung == [True]
    world.seconds(60)  # longer than a hang, while the other one starts
    assert len(world.asked) == 1
    assert len(world.controller.state.crash_times_s) == 1
    world.route(FakeEngine(steps=None), number=2)
    assert world.seconds(3) == []
    assert world.rung == "autoregressive"
    assert len(world.controller.state.crash_times_s) == 1


def test_a_stand_in_that_hangs_while_a_return_is_under_way_is_told_and_the_return_goes_on(world):
    world.seconds(3)
    stand_in = lose(world)
    world.seconds(34)
    world.route(stand_in, number=2, lost=1, returning=True)
    stand_in.answers = False
    world.seconds(40)
    assert len(world.asked) == 1
    world.seconds(2)
    assert (world.asked[1][0], world.hung) == (False, [False, True])
    told = [line.why for _, line in world.lines if "another one is on its way" in line.why]
    assert [why.partition("; another")[0] for why in told] == [
        "autoregressive stays: engine_lost: no rank of engine 2 has answered for 41 s"
    ]
    world.route(None, lost=1, returning=True)
    world.seconds(5)
    assert len(world.asked) == 2
    world.route(FakeEngine(steps=0), number=3, lost=1)
    assert [move.split(": ")[1] for move in world.seconds(1)] == ["autoregressive -> zero_draft profit_possible"]
    assert len(world.controller.state.crash_times_s) == 1


def test_a_return_that_fails_after_the_stand_in_hung_is_one_crash(world):
    world.seconds(3)
    stand_in = lose(world)
    world.seconds(34)
    world.route(stand_in, number=2, lost=1, returning=True)
    stand_in.answers = False
    world.seconds(42)
    world.route(None, lost=1, returning=True)
    world.seconds(5)
    world.route(None, lost=2, returning=True)
    world.seconds(1)
    world.route(FakeEngine(steps=None), number=4, lost=2)
    world.seconds(6)
    assert world.rung == "autoregressive"
    assert len(world.controller.state.crash_times_s) == 2
    assert "cools down" in world.why


def test_where_every_engine_speculates_the_next_one_after_a_hang_is_attended_to_at_once():
    with World(always_speculates=True) as world:
        world.seconds(3)
        world.engine.answers = False
        world.seconds(42)
        world.route(None, lost=1, returning=True)
        world.seconds(5)
        world.route(FakeEngine(steps=0), number=2, lost=1)
        assert [move.split(": ")[1].split()[2] for move in world.seconds(1)] == ["zero_draft"]
        world.engine.fault()
        world.seconds(1)
        assert "draft_fault" in world.why
        assert len(world.controller.state.crash_times_s) == 1


def test_a_hold_of_autoregressive_where_every_engine_speculates_is_told_and_restarts_nothing():
    with World(always_speculates=True) as world:
        world.seconds(3)
        world.controller.hold = held(Mode.AUTOREGRESSIVE, 0)
        assert world.seconds(20) == []
        assert not world.asked
        assert "policy.allow lacks it" in world.controller.hold_problem


def test_a_return_that_fails_under_a_new_sidecar_is_a_crash_all_the_same(world):
    world.seconds(3)
    stand_in = lose(world)
    world.seconds(34)
    assert len(world.asked) == 1
    before = world.controller.carried(world.now_s)
    with World(carried=before, engine=stand_in, now_s=world.now_s) as after:
        after.route(stand_in, number=2, lost=1, returning=True)
        after.seconds(2)
        after.route(stand_in, number=2, lost=2)
        after.seconds(1)
        assert len(after.controller.state.crash_times_s) == 2
        assert "a speculating engine did not come to serve" in after.why
        after.seconds(40)
        assert not after.asked, "a second crash waits twice as long"


def test_before_it_hangs_nothing_is_believed_and_nothing_is_drafted_if_it_can_be(world):
    world.seconds(3)
    world.engine.answers = False
    world.seconds(6)
    assert "telemetry_stale" in world.why
    world.seconds(26)
    assert "asked for zero_draft, nothing was read" in world.why
    assert world.rung == "full"


def test_a_sidecar_that_slept_does_not_take_that_for_a_hang(world):
    world.seconds(3)
    world.engine.answers = False
    world.seconds(1)
    world.now_s += 3600
    world.seconds(1)
    assert not world.asked


def test_a_hold_is_carried_out_kept_against_signals_and_released(world):
    world.seconds(3)
    world.controller.hold = held(Mode.REDUCED, 1)
    assert world.seconds(1) == ["4: full -> reduced(1) held"]
    world.engine.queue = 9
    assert world.seconds(20) == []
    assert world.why.endswith("held by a person, not followed")
    world.controller.hold = None
    assert world.seconds(1) == ["25: reduced(1) -> zero_draft load_high"]
    assert not world.controller.state.held


def test_a_hold_of_a_rung_there_is_not_says_so_and_changes_nothing(world):
    world.seconds(3)
    world.controller.hold = held(Mode.REDUCED, 2)
    assert world.seconds(3) == []
    assert "reduced(2) is not a rung of this deployment" in world.controller.hold_problem
    assert not world.controller.state.held
    world.controller.hold = held(Mode.REDUCED, 1)
    assert world.seconds(1) == ["7: full -> reduced(1) held"]
    assert world.controller.hold_problem == ""


def test_a_hold_of_autoregressive_and_one_back_go_through_the_supervisor(world):
    world.seconds(3)
    world.controller.hold = held(Mode.AUTOREGRESSIVE, 0)
    assert world.seconds(2) == []
    assert world.asked == [(False, "held by a person")]
    assert world.hung == [False], "what it runs may end"
    world.route(FakeEngine(steps=None), number=2)
    assert world.seconds(1) == ["6: full -> autoregressive held"]
    assert world.seconds(50) == []
    world.controller.hold = held(Mode.FULL, 3, "later")
    assert world.seconds(2) == []
    assert [speculate for speculate, _ in world.asked] == [False, True]
    world.route(FakeEngine(steps=0), number=3)
    assert [move.split(": ")[1] for move in world.seconds(2)] == [
        "autoregressive -> zero_draft held",
        "zero_draft -> full held",
    ]
    assert world.engine.steps == [3]
    assert len(world.asked) == 2


def test_a_hold_that_an_engines_loss_undid_is_not_carried_out_again(world):
    world.controller.hold = held(Mode.FULL, 3)
    world.seconds(3)
    lose(world)
    world.seconds(50)
    assert world.rung == "autoregressive"
    assert not world.asked
    assert world.why.endswith("held by a person, not followed")


def test_limits_that_take_the_rung_away_are_followed(world):
    world.seconds(3)
    world.controller.limits = limits(modes=(Mode.REDUCED, Mode.ZERO_DRAFT, Mode.AUTOREGRESSIVE))
    assert world.seconds(1) == ["4: full -> reduced(1)"]
    assert world.engine.steps == [1]


def test_a_faulty_draft_without_zero_draft_on_the_ladder_goes_to_another_engine():
    with World(chosen=limits(modes=(Mode.FULL, Mode.AUTOREGRESSIVE))) as world:
        world.seconds(3)
        world.engine.fault()
        world.seconds(1)
        assert [speculate for speculate, _ in world.asked] == [False]
        assert world.rung == "full"  # until another serves
        world.route(FakeEngine(steps=None), number=2)
        assert world.seconds(1) == ["5: full -> autoregressive draft_fault"]


def test_an_engine_at_fixed_steps_is_left_alone():
    fixed = FakeEngine(steps=None)
    with World(engine=fixed) as world:
        world.controller.sight.route = world.controller.sight.route.__class__(
            generation=1, address="http://there", engine=1, speculates=True, steps=3
        )
        fixed.queue = 9
        assert world.seconds(20) == []
        assert "fixed steps" in world.why
        assert not fixed.commands


def shown(world: World) -> Snapshot:
    return take_snapshot(world.controller, world.now_s, 7.0, limits_file="", limits_problem="", hold_file_problem="")


def test_a_mode_is_shown_only_where_it_is_known(world):
    assert (shown(world).mode, shown(world).steps) == ("", None)
    world.seconds(1)
    assert (shown(world).mode, shown(world).steps) == ("full", 3)
    silent = FakeEngine(steps=0)
    silent.answers = False
    world.route(silent, number=2, lost=1)
    world.seconds(2)
    assert (shown(world).mode, shown(world).steps) == ("", None), "the last engine's is not this one's"
    world.route(FakeEngine(steps=None), number=3, lost=1)
    world.seconds(1)
    assert (shown(world).mode, shown(world).steps) == ("autoregressive", 0)
    world.controller.sight.route = None
    assert shown(world).mode == ""


def test_a_reason_is_told_once_however_its_numbers_change(world):
    world.seconds(3)
    world.engine.fault()
    world.seconds(18)
    counting_down = [line.why for _, line in world.lines if "cools down for" in line.why]
    assert len(counting_down) == 1
    assert "cools down for 3 s more" in world.why, "what is shown now counts on"
