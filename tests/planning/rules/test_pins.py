from pathlib import Path
from typing import Any

import pytest

from spec_toolkit.errors import Verdict
from spec_toolkit.facts.records import Checkpoint, Tables
from spec_toolkit.planning.rules import pins

COMMIT, CONTENT, OTHER = "a" * 40, "sha256:" + "b" * 64, "sha256:" + "c" * 64
HERE = Checkpoint(
    folder=Path("x"),
    architecture="X",
    num_hidden_layers=1,
    num_nextn_predict_layers=1,
    max_position_embeddings=None,
    tensors={},
    tokenizer=CONTENT,
)


def rules(findings: Any) -> list[str]:
    return [finding.rule for finding in findings]


@pytest.mark.parametrize(("version", "found"), [("0.5.23", 0), ("0.5.24", 1), ("0.5.2", 1), ("0.5.23.post1", 1)])
def test_one_engine_version_is_supported(change: Any, tables: Tables, version: str, found: int) -> None:
    findings = list(pins.engine_version(change(engine__sglang=version), tables.engine))
    assert [(f.rule, f.verdict) for f in findings] == [("pins.engine-version", Verdict.REFUSE)] * found


@pytest.mark.parametrize(
    ("revision", "tokenizer", "expected"),
    [
        pytest.param(CONTENT, CONTENT, [], id="both-right"),
        pytest.param(None, None, [], id="both-open"),
        pytest.param(OTHER, CONTENT, ["pins.target-content"], id="another-model"),
        pytest.param(CONTENT, OTHER, ["pins.tokenizer-differs"], id="another-tokenizer"),
    ],
)
def test_a_local_model_is_the_one_that_was_pinned(
    change: Any, revision: str | None, tokenizer: str | None, expected: list[str]
) -> None:
    recipe = change(target__model="rehearsal:x", target__revision=revision, target__tokenizer=tokenizer)
    assert rules(pins.local_pins(recipe, HERE, CONTENT)) == expected
    assert not rules(pins.local_pins(recipe, None, None))


def test_evidence_is_missed_but_not_in_a_rehearsal(change: Any) -> None:
    assert [f.verdict for f in pins.evidence(change())] == [Verdict.NOTE]
    assert not list(pins.evidence(change(evidence="evidence/x.json")))  # rules/evidence has the word
    assert not list(pins.evidence(change(hardware__gpu="cpu")))


def test_an_open_tokenizer_is_noted(change: Any) -> None:
    assert rules(pins.tokenizer(change())) == ["pins.tokenizer"]
    assert not rules(pins.tokenizer(change(target__tokenizer=CONTENT)))
