import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.evidence import Evidence, read_evidence
from tests.planning.speed.measured import drafting, evidence, plain

GOOD = evidence(
    plain(1, 50.0),
    drafting(1, 3, 90.0, 2.9, survival=(0.9, 0.6, 0.4), rounds=4000),
    drafting(1, 0, 48.0, 1.0),
)


def written(tmp_path: Path, change: Any = None) -> Path:
    data = json.loads(msgspec.json.encode(GOOD))
    if change is not None:
        place, value = change
        *groups, key = place
        inner = data
        for group in groups:
            inner = inner[group]
        if value is ...:
            del inner[key]
        else:
            inner[key] = value
    path = tmp_path / "evidence.json"
    path.write_text(json.dumps(data), "utf-8")
    return path


def test_what_a_tool_wrote_is_read_as_it_was(tmp_path: Path) -> None:
    assert read_evidence(written(tmp_path)) == GOOD


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        pytest.param(("rows", 1, "batch"), "eight", "$.rows[1].batch: expected `int`", id="wrong-kind"),
        pytest.param(("rows", 1, "batch"), 0, "$.rows[1].batch: is 0", id="batch-of-none"),
        pytest.param(("rows", 1, "bach"), 8, "$.rows[1]: object contains unknown field `bach`", id="unknown-key"),
        pytest.param(("identity", "gpu"), ..., "$.identity: object missing required field `gpu`", id="left-out"),
        pytest.param(("identity", "acceptance"), "lucky", "$.identity.acceptance: invalid enum", id="no-such-rule"),
        pytest.param(("identity", "layout", "tp"), 0, "$.identity.layout.tp: is 0", id="no-ranks"),
        pytest.param(
            ("identity", "draft", "topk"), 4, "$.identity.draft.num_draft_tokens: is left out", id="a-tree-of-no-width"
        ),
        pytest.param(("identity", "nodes"), 0, "$.identity.nodes: is 0", id="no-machines"),
        pytest.param(("rows",), [], "$.rows: is empty", id="no-rows"),
        pytest.param(("rows", 0, "tokens_per_second"), 0, "$.rows[0].tokens_per_second: is 0", id="no-speed"),
        pytest.param(
            ("rows", 0, "emitted_length"), 1.0, "$.rows[0].emitted_length: is written", id="plain-with-rounds"
        ),
        pytest.param(("rows", 1, "emitted_length"), None, "$.rows[1].emitted_length: is left out", id="no-length"),
        pytest.param(("rows", 1, "emitted_length"), 4.1, "$.rows[1].emitted_length: is 4.1", id="longer-than-it-can"),
        pytest.param(("rows", 1, "emitted_length"), 0.9, "$.rows[1].emitted_length: is 0.9", id="bonus-not-counted"),
        pytest.param(("rows", 1, "num_steps"), -1, "$.rows[1].num_steps: is -1", id="fewer-than-none"),
        pytest.param(("rows", 1, "rounds"), 0, "$.rows[1].rounds: is 0", id="no-sample"),
        pytest.param(
            ("rows", 1, "survival"), [0.9, 0.9], "$.rows[1].survival: has 2 positions", id="too-few-positions"
        ),
        pytest.param(("rows", 1, "survival"), [0.6, 0.9, 0.4], "$.rows[1].survival: falls", id="rises"),
        pytest.param(("rows", 1, "survival"), [1.2, 0.5, 0.2], "$.rows[1].survival: falls", id="above-one"),
        pytest.param(("rows", 1, "survival"), [0.9, 0.8, 0.7], "$.rows[1].survival: adds up to", id="another-length"),
        pytest.param(("rows", 2, "num_steps"), None, "$.rows[2].emitted_length", id="plain-row-that-drafts"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, place: Any, value: Any, says: str) -> None:
    path = written(tmp_path, (place, value))
    with pytest.raises(FactsError) as refused:
        read_evidence(path)
    assert f"{path}: {says}" in str(refused.value)
    assert "[facts.evidence]" in str(refused.value)


def test_the_same_load_is_measured_once(tmp_path: Path) -> None:
    data = json.loads(msgspec.json.encode(GOOD))
    data["rows"].append(data["rows"][1])
    (tmp_path / "e.json").write_text(json.dumps(data), "utf-8")
    with pytest.raises(FactsError, match=r"\$\.rows\[3\]: has the batch and the steps of \$\.rows\[1\]"):
        read_evidence(tmp_path / "e.json")


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    data = json.loads(msgspec.json.encode(GOOD))
    data["rows"][0]["tokens_per_second"] = -1
    data["rows"][1]["emitted_length"] = 9
    (tmp_path / "e.json").write_text(json.dumps(data), "utf-8")
    with pytest.raises(FactsError) as refused:
        read_evidence(tmp_path / "e.json")
    assert len(refused.value.findings) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b'{"identity":' + b'{"target":' * 100_000, "e.json"),
        (b"[]", "$: expected `object`"),
    ],
    ids=["empty", "not-text", "deep", "a-list"],
)
def test_another_file_is_refused_without_a_traceback(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "e.json").write_bytes(content)
    with pytest.raises(FactsError) as refused:
        read_evidence(tmp_path / "e.json")
    assert says in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FactsError, match=r"nowhere\.json: no such file"):
        read_evidence(tmp_path / "nowhere.json")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PLACES = st.sampled_from(
    [
        ("identity",),
        ("identity", "target"),
        ("identity", "layout", "tp"),
        ("identity", "workload", "prompts"),
        ("rows",),
        ("rows", 1),
        ("rows", 1, "num_steps"),
        ("rows", 1, "emitted_length"),
        ("rows", 1, "survival"),
        ("rows", 1, "tokens_per_second"),
        ("simulated",),
    ]
)


@given(PLACES, VALUES)
def test_any_value_anywhere_is_read_or_refused(tmp_path_factory: Any, place: tuple[Any, ...], value: Any) -> None:
    path = written(tmp_path_factory.mktemp("evidence"), (place, value))
    with contextlib.suppress(FactsError):
        assert isinstance(read_evidence(path), Evidence)
