import pytest

from spec_toolkit.errors import Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.planning.rules.revisions import draft_revision, engine_version, target_revision
from tests.planning.field_cases import build

COMMIT, OTHER, CONTENT = "a" * 40, "d" * 40, "sha256:" + "b" * 64
REFUSED, WARNED, CORRECTED = Verdict.REFUSE, Verdict.WARN, Verdict.CORRECT


def found(rule, **server_args):
    return [(f.rule, f.verdict) for f in rule(build({"server_args": server_args}))]


@pytest.mark.parametrize(
    ("model", "revision", "expected"),
    [
        pytest.param("org/model", COMMIT, [], id="a-commit-for-a-repository"),
        pytest.param("org/model", CONTENT, [("pins.revision-kind", REFUSED)], id="a-content-hash-for-a-repository"),
        pytest.param("rehearsal:x", CONTENT, [], id="a-content-hash-for-a-folder"),
        pytest.param("./x", COMMIT, [("pins.revision-kind", REFUSED)], id="a-commit-for-a-folder"),
        pytest.param("org/model", None, [("pins.target-revision", WARNED)], id="open"),
        pytest.param("/models/x", None, [], id="a-folder-has-none"),
        pytest.param(None, None, [], id="no-model"),
    ],
)
def test_a_target_is_pinned_by_what_fits_it(model, revision, expected):
    assert found(target_revision, model_path=model, revision=revision) == expected


@pytest.mark.parametrize(
    ("path", "revision", "target", "expected"),
    [
        pytest.param(None, None, COMMIT, [], id="in-the-target"),
        pytest.param(None, OTHER, COMMIT, [CORRECTED], id="in-the-target-and-pinned"),
        pytest.param("org/draft", None, None, [WARNED], id="separate-and-all-open"),
        pytest.param("org/draft", None, COMMIT, [REFUSED], id="separate-and-open-beside-a-pinned-target"),  # C035
        pytest.param("org/model", None, COMMIT, [REFUSED], id="the-target-by-path-follows-main-all-the-same"),  # C035
        pytest.param("org/draft", OTHER, COMMIT, [], id="separate-and-pinned"),
        pytest.param("org/draft", CONTENT, COMMIT, [REFUSED], id="separate-and-of-the-wrong-kind"),
        pytest.param("/models/draft", None, COMMIT, [], id="near-miss-a-folder"),
    ],
)
def test_a_separate_draft_is_pinned(path, revision, target, expected):
    asked = {"speculative_draft_model_path": path, "speculative_draft_model_revision": revision}
    verdicts = [verdict for _, verdict in found(draft_revision, model_path="org/model", revision=target, **asked)]
    assert verdicts == expected


@pytest.mark.parametrize(
    ("pinned", "warned"), [("0.5.16", True), ("0.5.23.post1", True), ("v{}", False), ("{}", False)]
)
def test_another_engine_is_told_of(pinned, warned):
    situation = build({"pins": {"sglang": pinned.format(load_tables().engine.version)}})
    assert [f.verdict for f in engine_version(situation)] == [WARNED] * warned
