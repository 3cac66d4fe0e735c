"""A change is believed when every rank reports it, and a change that is not taken says what is in force."""

import asyncio
import math

import pytest

from spec_toolkit.errors import ActError
from spec_toolkit.launch import control
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.policy.modes import Rung
from spec_toolkit.sidecar.act import Patience, World, set_rung
from spec_toolkit.terms import KnobMode, Mode
from tests.sidecar.world import FakeEngine

REDUCED = Rung(Mode.REDUCED, 1)


async def _set(engine, rung=REDUCED, seconds=0.2):
    known = await engine.ranks(seconds=1)
    return await set_rung(engine, rung, known, lambda: 7.0, seconds)


def test_the_epoch_lies_above_the_highest_of_any_rank():
    engine = FakeEngine(steps=3, ranks=((0, 0), (0, 1)))
    engine.knobs[0, 1].take({"epoch": 41, "mode": 0, "steps": 3})
    confirmed = asyncio.run(_set(engine))
    assert engine.commands == [(42, KnobMode.REDUCED, 1)]
    assert (confirmed.epoch, engine.steps) == (42, [1, 1])


def test_what_is_so_already_is_not_commanded():
    engine = FakeEngine(steps=1)
    [knob] = engine.knobs.values()
    knob.take({"epoch": 3, "mode": 1, "steps": 1})
    assert asyncio.run(_set(engine)).epoch == 3
    assert not engine.commands


def test_ranks_of_one_rung_and_two_epochs_are_commanded():
    engine = FakeEngine(steps=1, ranks=((0, 0), (0, 1)))
    engine.knobs[0, 1].take({"epoch": 3, "mode": 1, "steps": 1})
    engine.knobs[0, 0].take({"epoch": 2, "mode": 1, "steps": 1})
    assert asyncio.run(_set(engine)).epoch == 4


class OneRankDeaf(FakeEngine):
    async def command(self, *, epoch, mode, steps, seconds):
        self.commands.append((epoch, mode, steps))
        self.knobs[0, 0].take({"epoch": epoch, "mode": int(mode), "steps": steps})
        return True


def test_one_rank_that_does_not_follow_is_not_taken():
    engine = OneRankDeaf(steps=3, ranks=((0, 0), (0, 1)))
    with pytest.raises(ActError, match=r"the engine reports no one mode \(last answer taken after 0\.2 s\)"):
        asyncio.run(_set(engine))


class OneRankFalls(FakeEngine):
    async def command(self, *, epoch, mode, steps, seconds):
        taken = await super().command(epoch=epoch, mode=mode, steps=steps, seconds=seconds)
        self.knobs[0, 1].fall("draft_fault")
        return taken


def test_one_rank_that_falls_after_it_took_the_command_is_not_taken():
    engine = OneRankFalls(steps=3, ranks=((0, 0), (0, 1)))
    with pytest.raises(ActError, match="the engine reports no one mode"):
        asyncio.run(_set(engine))
    assert {knob.setting.epoch for knob in engine.knobs.values()} == {1}


def test_a_refusal_is_told_as_the_engine_gave_it():
    engine = FakeEngine(steps=3)
    with pytest.raises(ActError) as refused:
        asyncio.run(_set(engine, Rung(Mode.REDUCED, 2)))
    assert str(refused.value) == (
        "actuator: asked for reduced(2), the engine still reports full (last answer unknown_steps). "
        "Mode stays full. [act.not-taken]"
    )


def test_an_engine_without_a_knob_is_not_commanded():
    engine = FakeEngine(steps=None)
    with pytest.raises(ActError, match="this engine has no knob"):
        asyncio.run(_set(engine))
    assert not engine.commands


def test_an_engine_that_does_not_answer_is_given_up_in_time():
    engine = FakeEngine(steps=3)
    engine.answers = False
    with pytest.raises(ActError, match="nothing was read"):
        asyncio.run(asyncio.wait_for(set_rung(engine, REDUCED, (), lambda: 7.0, 0.1), 2))


def test_waits_double_to_a_longest_and_spread():
    waits = {}
    for draw in (0.0, 0.999):
        patience, waits[draw], now_s = Patience(lambda draw=draw: draw), [], 0.0
        for _ in range(10):
            patience.failed("x", now_s, "no")
            waited = next(s for s in (n / 100 for n in range(10_000)) if patience.allows("x", now_s + s))
            waits[draw].append(waited)
            now_s += waited
    assert [math.ceil(2 * wait) for wait in waits[0.0]] == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert all(low < high <= 2 * low + 0.02 for low, high in zip(waits[0.0], waits[0.999], strict=True))
    assert patience.failures == 10
    assert patience.allows("another", now_s)
    patience.took()
    assert patience.allows("x", now_s)
    assert (patience.failures, patience.problem) == (0, "")


@pytest.mark.parametrize("hung", [False, True])
def test_a_restart_is_asked_for_in_the_supervisors_words(tmp_path, hung):
    folder, heard = Folder(tmp_path / "d"), []
    folder.create()

    def handle(verb, arguments):
        heard.append((verb, dict(arguments)))
        return {"ok": not hung, "why": "it is being replaced"}

    async def ask() -> None:
        async with control.listening(folder, handle):
            await World(folder, lambda: 0.0).ask_restart(speculate=False, why="w" * 900, hung=hung)

    if hung:
        with pytest.raises(ActError, match="asked for an engine autoregressive, the supervisor refused: it is being"):
            asyncio.run(ask())
    else:
        asyncio.run(ask())
    said = {"speculate": False, "why": "w" * 500} | ({"hung": True} if hung else {})
    assert heard == [("restart", said)]
