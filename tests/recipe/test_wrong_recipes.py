"""Ten recipes that people get wrong, each with the whole of what they are told."""

from pathlib import Path

import pytest

from spec_toolkit.errors import RecipeError
from spec_toolkit.facts.known import load_tables
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.recipe.load import parse_recipe
from spec_toolkit.shipped import shipped

H200 = (shipped("recipes") / "deepseek_v3_h200.yaml").read_text("utf-8")

SLIP_OF_THE_PEN = (
    ("num_steps: 3", "num_step: 3"),
    [
        "x.yaml:11: no key 'num_step' under 'draft'. Did you mean 'num_steps'? [recipe.unknown-key]",
    ],
)
KEY_TWICE = (
    ("topk: 1", "topk: 1\n  topk: 4"),
    [
        "x.yaml:13: the key 'topk' is written twice. It stands in line 12 already; keep one. [recipe.duplicate-key]",
    ],
)
A_WORD_FOR_A_NUMBER = (
    ("num_steps: 3", "num_steps: yes"),
    [
        "x.yaml:11: draft.num_steps is 'yes', which YAML reads as a truth value; a whole number from 1 to 64 is needed. [recipe.kind]",
    ],
)
A_BRANCH_FOR_A_COMMIT = (
    ("quantization: fp8", "revision: main"),
    [
        (
            "x.yaml:7: target.revision is the text 'main'; a commit of 40 hexadecimal digits, or 'sha256:' and the 64 of a local folder's content hash is needed."
            " [recipe.text]"
        ),
    ],
)
ENGINE_SPELLING = (
    ("method: mtp", "method: EAGLE3"),
    [
        (
            "x.yaml:10: draft.method is the text 'EAGLE3'; one of mtp, eagle3, frozen_kv_mtp, standalone, ngram, dflash, dspark, none is needed."
            " Did you mean 'eagle3'? [recipe.choice]"
        ),
    ],
)
WIDTH_OF_A_TREE = (
    ("topk: 1", "topk: 1\n  num_draft_tokens: 16"),
    [
        (
            "draft.num_draft_tokens: is 16; topk 1 with num_steps 3 is a chain 4 wide. Planned with 4; write that, or leave the key out and it is"
            " derived. [shape.chain-width]"
        ),
    ],
)
TREE_WITH_REJECTION = (
    ("topk: 1\n  acceptance: target_only", "topk: 4\n  num_draft_tokens: 16\n  acceptance: rejection"),
    [
        (
            "draft.acceptance: is rejection, with topk 4; rejection sampling is for chains (topk 1). Use acceptance target_only: it is lossless too."
            " [features.rejection-needs-chain]"
        ),
        (
            "policy.allow: allows reduced, zero_draft; the engine cannot change the steps of method mtp with topk 4 while it serves."
            " It runs in full or autoregressive. [policy.one-depth]"
        ),
        (
            "policy.allow: allows full, reduced, zero_draft, autoregressive; after a crash speculation does not come back by itself: the engine cannot"
            " begin below full. Bring it back with `spec-toolkit deploy RECIPE --replace`. [policy.stays-autoregressive]"
        ),
    ],
)
THRESHOLD_WITHOUT_RELAXED = (
    ("topk: 1", "topk: 1\n  accept_threshold_single: 0.9"),
    [
        (
            "draft.accept_threshold_single: is 0.9; acceptance target_only has no threshold. Leave it out; or say acceptance: relaxed, and everything"
            " it touches is labelled lossy. [features.thresholds-need-relaxed]"
        ),
    ],
)
ANOTHER_ENGINE = (
    ("sglang: 0.5.23", "sglang: 0.5.24"),
    [
        (
            "engine.sglang: is 0.5.24; patches, flags and tables here are made for 0.5.23. Write 0.5.23, or use the toolkit made for that version."
            " [pins.engine-version]"
        ),
    ],
)
CAP_ABOVE_THE_GRAPHS = (
    ("max_running_requests: 64", "max_running_requests: 96"),
    [
        (
            "graphs.decode_batch_sizes: ends at 64, and 96 requests may run at once; batches of 65 to 96 run without a graph. Go on with 72, 80,"
            " 88, 96. [graphs.cover]"
        ),
    ],
)
TEN = {name: case for name, case in globals().items() if name.isupper() and isinstance(case, tuple)}


def said_of(content: str) -> list[str]:
    """What the loader says, or else the plan beyond what it says of the recipe as it is shipped."""
    try:
        loaded = parse_recipe(content.encode(), Path("x.yaml"))
    except RecipeError as error:
        return [finding.sentence() for finding in error.findings]
    usual = {"pins.target-revision", "pins.tokenizer", "pins.evidence", "capacity.request-cap"}
    usual |= {"policy.waits-to-return", "policy.deadline-before-ready", "capacity.memory", "capacity.graph-families"}
    return [finding.sentence() for finding in make_plan(loaded, load_tables()).findings if finding.rule not in usual]


@pytest.mark.parametrize(("edit", "sentences"), TEN.values(), ids=[name.lower().replace("_", "-") for name in TEN])
def test_a_wrong_recipe_is_told_what_is_wrong_and_nothing_else(edit: tuple[str, str], sentences: list[str]) -> None:
    old, new = edit
    assert H200.count(old) == 1
    assert said_of(H200.replace(old, new)) == sentences


def test_there_are_ten_and_the_recipe_they_spoil_is_right() -> None:
    assert len(TEN) == 10
    assert said_of(H200) == []
