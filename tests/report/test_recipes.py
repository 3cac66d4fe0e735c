"""A recipe explained: what was chosen, what follows, who says so, what is open."""

from pathlib import Path

import pytest

from spec_toolkit.facts.known import load_tables
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.recipe.catalogue import catalogue
from spec_toolkit.recipe.load import parse_recipe
from spec_toolkit.recipe.page import shipped_recipes
from spec_toolkit.report.recipes import Explained, explain, explanation, listing, row

BASE = """
summary: A test.
target: {{model: zai-org/GLM-5.2-FP8{target}}}
draft: {draft}
hardware: {{gpu: h200, count: 8, layout: {{tp: 8{layout}}}}}
engine: {{sglang: 0.5.23{engine}}}
limits: {{max_running_requests: 64, context_tokens: 32768}}
policy: {{allow: [full, reduced, zero_draft, autoregressive], dwell_seconds: 60}}
{more}
"""
MTP = "{method: mtp, num_steps: 3}"
HASH = "sha256:" + "a" * 64


def told(*, draft: str = MTP, target: str = "", layout: str = "", engine: str = "", more: str = "") -> Explained:
    text = BASE.format(draft=draft, target=target, layout=layout, engine=engine, more=more)
    loaded = parse_recipe(text.encode(), Path("glm52_fp8_h200_mine.yaml"))
    return explain("glm52_fp8_h200_mine", loaded, make_plan(loaded, load_tables()))


def test_choices_are_the_written_keys_and_nothing_derived() -> None:
    choices = told(layout=", dp: 8, dp_attention: true").choices
    assert choices["draft.num_steps"] == 3
    assert choices["hardware.layout.dp_attention"] is True
    assert choices["policy.allow"] == ["full", "reduced", "zero_draft", "autoregressive"]
    assert not {"draft", "summary", "draft.num_draft_tokens", "draft.topk"} & choices.keys()


@pytest.mark.parametrize(
    ("draft", "layout", "line"),
    [
        pytest.param(MTP, "", "each round verifies 4 positions a request: 3 drafts and the root", id="a-chain"),
        pytest.param(
            "{method: mtp, num_steps: 1}", "", "verifies 2 positions a request: one draft and the root", id="one-draft"
        ),
        pytest.param("{method: none}", "", "one token a request: nothing is drafted", id="nothing-drafted"),
        pytest.param(MTP, "", "at most 64 requests in a rank's batch, 256 positions to verify", id="one-batch"),
        pytest.param(
            MTP, ", dp: 8, dp_attention: true", "at most 8 requests in a rank's batch, 32 positions", id="shared-cap"
        ),
        pytest.param(MTP, "", "the steps can be set to 0, 1, 3 while it serves", id="steps"),
        pytest.param(
            "{method: frozen_kv_mtp, model: org/draft, num_steps: 3}",
            "",
            "the engine runs at one depth",
            id="one-depth",
        ),
        pytest.param(
            "{method: frozen_kv_mtp, model: org/draft, num_steps: 3}", "", "modes: full, autoregressive", id="two-modes"
        ),
        pytest.param("{method: none}", "", "modes: autoregressive", id="one-mode"),
    ],
)
def test_what_follows_is_said_in_a_line(draft: str, layout: str, line: str) -> None:
    assert line in explanation(told(draft=draft, layout=layout))


@pytest.mark.parametrize(
    ("more", "line"),
    [
        pytest.param("", "unproven\n  Nobody has measured here", id="nobody"),
        pytest.param("source: {basis: vendor_docs, says: a page}", "vendor_docs: a page\n  Nobody has", id="a-page"),
        pytest.param("evidence: evidence/x.json", "Evidence\n  evidence/x.json\n", id="rows"),
    ],
)
def test_who_says_so_is_said_and_nobody_measured_without_rows(more: str, line: str) -> None:
    assert line in explanation(told(more=more))


@pytest.mark.parametrize(
    ("pinned", "still_open"),
    [
        pytest.param({}, ["target.revision", "target.tokenizer", "engine.image", "evidence"], id="nothing-pinned"),
        pytest.param(
            {"draft": "{method: frozen_kv_mtp, model: org/draft, num_steps: 3}"},
            ["target.revision", "draft.revision", "target.tokenizer", "engine.image", "evidence"],
            id="a-draft-apart",
        ),
        pytest.param(
            {
                "target": f", revision: {'a' * 40}, tokenizer: {HASH}",
                "engine": f", image: a/b@{HASH}",
                "more": "evidence: evidence/x.json",
            },
            [],
            id="everything-pinned",
        ),
    ],
)
def test_what_is_open_is_listed(pinned: dict[str, str], still_open: list[str]) -> None:
    assert list(told(**pinned).open) == still_open


def test_every_shipped_recipe_is_listed_once_and_fits_a_screen() -> None:
    lines = listing([row(name, recipe) for name, recipe in shipped_recipes()]).splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(catalogue())]] == [entry.name for entry in catalogue()]
    assert max(map(len, lines)) <= 200
