import pytest

from spec_toolkit.errors import Finding, Verdict
from tests.planning.field_cases import FOLDER, IDS, Action, Case, Expected, Outcome, examine, load_cases

CASES = load_cases()
ROOMS = {"planning", "sidecar", "launch", "gateway", "cluster", "prove", "patches", "operator"}
SITUATIONS = [
    pytest.param(case, situation, id=f"{case.id}-{situation['name'].replace(' ', '-')}")
    for case in CASES
    for situation in case.situations
]


@pytest.mark.parametrize(("case", "situation"), SITUATIONS)
def test_a_field_case_is_answered_as_it_must_be(case, situation):
    assert not list(examine(case, situation).faults())


def test_every_case_of_the_open_set_is_kept_and_no_other():
    assert len(set(IDS)) == 88
    assert [case.id for case in CASES] == list(IDS)
    assert [case.id for case in CASES] == sorted(path.stem for path in FOLDER.glob("C*.yaml"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_is_answered_here_or_kept_for_the_room_that_must_catch_it(case):
    assert case.room in ROOMS
    assert not case.source.endswith((",", ";")), "an unquoted ' #' ends a YAML line"
    if case.room == "planning":
        assert any(not situation["expect"] for situation in case.situations), "no near miss"
        assert case.rules or case.note, "expects nothing and does not say why"
    else:
        assert case.later is not None, "keeps no input for its room"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_answered_more_mildly_than_the_set_asks_says_why_and_no_other_does(case):
    assert case.is_milder is bool(case.milder)


REFUSED = Finding(rule="a.rule", verdict=Verdict.REFUSE, where="here", found="is 3")
WARNED = Finding(rule="a.rule", verdict=Verdict.WARN, where="here", found="is 3")


@pytest.mark.parametrize(
    ("expected", "findings", "faults"),
    [
        pytest.param([Expected("a.rule", Verdict.REFUSE, (3,))], [REFUSED], 0, id="met"),
        pytest.param([Expected("a.rule", Verdict.REFUSE)], [], 1, id="missing"),
        pytest.param([Expected("a.rule", Verdict.REFUSE, (4,))], [REFUSED], 1, id="says-another-number"),
        pytest.param([Expected("a.rule", Verdict.WARN)], [REFUSED], 2, id="harsher-than-expected"),
        pytest.param([], [WARNED], 1, id="a-near-miss-that-meets-the-cases-rule"),
        pytest.param(
            [], [Finding(rule="b.rule", verdict=Verdict.REFUSE, where="x", found="y")], 1, id="refused-by-another"
        ),
        pytest.param(
            [], [Finding(rule="b.rule", verdict=Verdict.WARN, where="x", found="y")], 0, id="warned-by-another"
        ),
    ],
)
def test_the_comparison_itself_can_fail(expected, findings, faults):
    wanted = {"name": "x", "expect": [{"rule": "a.rule", "verdict": "refuse"}]}
    case = Case(id="C000", source="", title="", action=Action.REJECT, room="planning", situations=(wanted,))
    outcome = Outcome(case=case, name="x", expected=tuple(expected), findings=tuple(findings))
    assert len(list(outcome.faults())) == faults


@pytest.mark.parametrize(
    ("action", "room", "verdicts", "is_milder"),
    [
        (Action.REJECT, "planning", ["warn"], True),
        (Action.REJECT, "planning", ["warn", "refuse"], False),
        (Action.AUTO_CORRECT, "planning", ["warn"], True),
        (Action.AUTO_CORRECT, "planning", ["refuse"], False),
        (Action.WARN, "planning", [], True),
        (Action.DOCUMENT, "planning", [], False),
        (Action.REJECT, "gateway", [], False),
    ],
)
def test_milder_is_less_than_the_set_asks(action, room, verdicts, is_milder):
    wanted = {"name": "x", "expect": [{"rule": "a.rule", "verdict": verdict} for verdict in verdicts]}
    assert Case(id="C000", source="", title="", action=action, room=room, situations=(wanted,)).is_milder is is_milder
