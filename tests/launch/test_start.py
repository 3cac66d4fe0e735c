"""What is settled before a supervisor is started: ports, models, attempts."""

from pathlib import Path

import pytest

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.launch.door import LOOPBACK
from spec_toolkit.launch.start import Models, _front, attempts, locate, new_key, rungs
from spec_toolkit.planning.plan import Plan, make_plan
from spec_toolkit.recipe.load import parse_recipe

COMMIT = "a" * 40
BASE = """
summary: A test.
target: {{model: deepseek-ai/DeepSeek-V3-0324{pin}}}
draft: {{{draft}}}
hardware: {{gpu: h200, count: 8, layout: {{tp: 8}}}}
engine: {{sglang: 0.5.23}}
limits: {{max_running_requests: 48, context_tokens: 4096}}
policy: {{allow: [{allow}]}}
"""


def plan(*, pin: str = "", draft: str = "method: mtp, num_steps: 3", allow: str = "full, autoregressive") -> Plan:
    text = BASE.format(pin=pin, draft=draft, allow=allow)
    return make_plan(parse_recipe(text.encode(), Path("x.yaml")), load_tables())


def test_the_gateway_is_told_the_context_of_one_request() -> None:
    assert _front(plan().recipe, LOOPBACK).context_tokens == 4096


def test_no_key_can_be_taken_for_a_flag() -> None:
    # One key in 64 of urlsafe base64 begins with '-', and the engine then ends with "expected one argument".
    keys = {new_key() for _ in range(1000)}
    assert len(keys) == 1000
    assert all(key.isalnum() and len(key) == 64 for key in keys)


def test_a_pinned_revision_is_used_as_it_stands() -> None:
    found = locate(plan(pin=f", revision: {COMMIT}").recipe)
    assert (found.target_commit, found.write_into_recipe) == (COMMIT, ())


def test_an_open_revision_that_nobody_can_resolve_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(FactsError, match="without a commit nobody could say what was deployed"):
        locate(plan().recipe)


def test_an_open_revision_is_not_asked_for_in_a_dry_run() -> None:
    assert locate(plan().recipe, ask_hub=False).target_commit == "<resolved at deploy>"


def test_a_separate_draft_is_located_with_its_own_pin() -> None:
    draft = f"method: eagle3, model: someone/draft, revision: {'b' * 40}, num_steps: 3"
    found = locate(plan(pin=f", revision: {COMMIT}", draft=draft).recipe)
    assert (found.draft, found.draft_commit) == ("someone/draft", "b" * 40)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, (3,), id="near-miss-full-only"),
        pytest.param({"allow": "full, reduced, zero_draft, autoregressive"}, (0, 1, 3), id="all"),
        pytest.param({"allow": "reduced, zero_draft, autoregressive"}, (0, 1), id="never-full"),
        pytest.param({"allow": "full, reduced, autoregressive"}, (1, 3), id="never-none"),
        pytest.param({"allow": "autoregressive"}, (), id="never"),
        pytest.param({"draft": "method: none", "allow": "autoregressive"}, (), id="no-draft"),
    ],
)
def test_the_rungs_a_speculating_engine_may_serve_at(settings: dict[str, str], expected: tuple[int, ...]) -> None:
    assert rungs(plan(**settings)) == expected


def test_nothing_is_started_to_speculate_that_may_never_draft(tmp_path: Path) -> None:
    specs = attempts(plan(allow="zero_draft, autoregressive"), Models("/m", None), Folder(tmp_path))
    assert [spec.speculates for spec in specs] == [False]


@pytest.mark.parametrize(
    ("settings", "speculates"),
    [
        pytest.param({}, [True, True, False], id="twice-then-without"),
        pytest.param({"allow": "full"}, [True, True], id="autoregressive-not-allowed"),
        pytest.param({"allow": "autoregressive"}, [False], id="only-autoregressive"),
        pytest.param({"draft": "method: none", "allow": "autoregressive"}, [False], id="no-draft"),
    ],
)
def test_attempts_are_as_many_as_the_recipe_allows(
    settings: dict[str, str], speculates: list[bool], tmp_path: Path
) -> None:
    specs = attempts(plan(**settings), Models("/m", None), Folder(tmp_path))
    assert [spec.speculates for spec in specs] == speculates
    assert len({spec.address for spec in specs}) == len(specs)
