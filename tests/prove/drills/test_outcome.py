from typing import Any

import msgspec
import pytest

from spec_toolkit.prove.drills.outcome import Outcome, judge_all, open_at, safe_tokens
from spec_toolkit.prove.streams import Answer, Ask, Endpoint
from spec_toolkit.report.drills import outcome_lines

ASK = Ask(Endpoint.CHAT, "a message", 2)


def answer(
    arrivals: list[float], *, ended: float = 9.0, text: str = "ab", problem: str = "", refused: bool = False
) -> Answer:
    made = Answer(ASK, 0.0, text=text, counted=2, finish="length", problem=problem, refused=refused)
    made.arrivals, made.ended = arrivals, ended
    return made


WHOLE = {ASK: answer([1.0, 2.0])}


def test_a_changed_answer_is_a_failure_and_a_refused_one_is_not() -> None:
    answers = [answer([1, 2]), answer([1, 2], text="aX"), answer([], problem="HTTP 429: later", refused=True)]
    [failure] = judge_all(answers, WHOLE)
    assert failure.startswith("request 1 (/v1/chat/completions): the text parts")


def test_an_error_that_is_no_refusal_fails() -> None:
    assert judge_all([answer([1], problem="the stream broke off")], WHOLE)


def test_a_stream_is_open_between_its_first_text_and_its_end() -> None:
    before, across, after = answer([1.0], ended=2.0), answer([1.0, 6.0], ended=7.0), answer([4.0], ended=7.0)
    assert open_at([before, across, after], 3.0) == [across]


def test_a_safe_token_is_the_first_after_the_fallback_of_a_stream_that_was_open_at_the_strike() -> None:
    first, last, young = answer([1.0, 4.9, 6.0]), answer([2.0, 5.5, 8.0]), answer([4.0, 5.1])
    assert safe_tokens([first, last, young], struck=3.0, safe=5.0) == (2.5, 3.0)
    assert safe_tokens([young], struck=3.0, safe=5.0) == (None, None)


HELD = Outcome(
    drill="x",
    requests=3,
    refused=1,
    open_at_strike=2,
    failures=(),
    waited=0,
    fallback_seconds=1.0,
    rearmed_seconds=2.0,
)


def test_a_drill_holds_where_somebody_was_answered_and_it_fell_back_and_came_back() -> None:
    assert HELD.passed


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"requests": 0, "refused": 0}, id="nothing-asked"),
        pytest.param({"refused": 3}, id="everybody-refused"),
        pytest.param({"failures": ("request 0: lost",)}, id="one-failed"),
        pytest.param({"problem": "not within 60 s"}, id="no-end"),
        pytest.param({"fallback_seconds": None}, id="never-fell-back"),
        pytest.param({"rearmed_seconds": None}, id="never-came-back"),
    ],
)
def test_nothing_less_holds(changes: dict[str, Any]) -> None:
    outcome = msgspec.structs.replace(HELD, **changes)
    assert not outcome.passed
    assert "DID NOT HOLD" in outcome_lines(outcome, ("rehearsal",))


@pytest.mark.parametrize(
    ("milliseconds", "rounds", "says"),
    [
        pytest.param(300.0, 2, "was met", id="just"),
        pytest.param(301.0, 1, "WAS MISSED", id="too-late"),
        pytest.param(100.0, 3, "WAS MISSED", id="too-many-rounds"),
    ],
)
def test_a_slow_fall_is_said(milliseconds: float, rounds: int, says: str) -> None:
    outcome = msgspec.structs.replace(HELD, slowest_fall_ms=milliseconds, slowest_fall_rounds=rounds)
    assert says in outcome_lines(outcome, ("rehearsal",))
