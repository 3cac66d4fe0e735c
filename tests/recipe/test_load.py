import hashlib
import os
from pathlib import Path

import pytest

from spec_toolkit.errors import RecipeError
from spec_toolkit.recipe.load import load_recipe, parse_recipe
from spec_toolkit.shipped import shipped

H200 = (shipped("recipes") / "deepseek_v3_h200.yaml").read_text("utf-8")
PATH = Path("recipes/x.yaml")


def edited(old: str, new: str) -> bytes:
    assert H200.count(old) == 1
    return H200.replace(old, new).encode()


def complaints(content: bytes) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(content, PATH)
    assert caught.value.exit_code == 2
    return [finding.sentence() for finding in caught.value.findings]


def steps(value: str) -> bytes:
    return edited("num_steps: 3", f"num_steps: {value}")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        pytest.param("three", "is the text 'three'", id="a-word"),
        pytest.param('"3"', "is the text '3'", id="a-number-in-quotes"),
        pytest.param("yes", "is 'yes', which YAML reads as a truth value", id="yes"),
        pytest.param("on", "is 'on', which YAML reads as a truth value", id="on"),
        pytest.param("true", "is true", id="true"),
        pytest.param("1:30", "is '1:30', which YAML reads as a number", id="base-sixty"),
        pytest.param("1_0", "is '1_0', which YAML reads as a number", id="underscore"),
        pytest.param("017", "is '017', which YAML reads as a number", id="old-octal"),
        pytest.param("0o17", "is the text '0o17'", id="new-octal"),
        pytest.param("0x3", "is '0x3', which YAML reads as a number", id="hexadecimal"),
        pytest.param("2024-01-01", "is '2024-01-01', which YAML reads as a date", id="a-date"),
        pytest.param("3.0", "is 3.0", id="a-fraction"),
        pytest.param(".inf", "is '.inf', which is no finite number", id="infinity"),
        pytest.param("-.NaN", "is the text '-.NaN'", id="not-a-number"),
        pytest.param("9" * 10_000, "is a number of 10000 digits", id="a-gigantic-number"),
        pytest.param("[3]", "is a list", id="a-list"),
        pytest.param("{a: 3}", "is a group of keys", id="a-group"),
        pytest.param('""', "is an empty text", id="an-empty-text"),
    ],
)
def test_a_wrong_kind_is_named_with_the_kind_that_is_needed(value: str, kind: str) -> None:
    (sentence,) = complaints(steps(value))
    assert sentence.startswith(f"recipes/x.yaml:11: draft.num_steps {kind}; a whole number from 1 to 64 is needed.")
    assert sentence.endswith("[recipe.kind]")


@pytest.mark.parametrize("value", ["no", "2024-01-01", "1:30", "017", ".inf"])
def test_a_text_that_yaml_reads_as_something_else_is_asked_for_in_quotes(value: str) -> None:
    (sentence,) = complaints(edited("quantization: fp8", f"quantization: {value}"))
    assert sentence.endswith("one lower-case word is needed. Put it in quotes. [recipe.kind]")
    if value[0].isalnum() and ":" not in value:
        assert (
            parse_recipe(edited("quantization: fp8", f"quantization: '{value}'"), PATH).recipe.target.quantization
            == value
        )


@pytest.mark.parametrize("value", ["3", "1", "64", "+3", "~", "", "null"], ids=str)
def test_near_misses_of_a_wrong_kind_pass(value: str) -> None:
    assert parse_recipe(steps(value), PATH).recipe.draft.num_steps in {1, 3, 64, None}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        pytest.param(
            "num_steps",
            "num_step",
            "11: no key 'num_step' under 'draft'. Did you mean 'num_steps'? [recipe.unknown-key]",
            id="a-slip",
        ),
        pytest.param(
            "  gpu: h200",
            "  gpu: h200\n  tp: 8",
            "17: no key 'tp' under 'hardware'. It belongs under 'hardware.layout'. [recipe.unknown-key]",
            id="misplaced",
        ),
        pytest.param(
            "  dwell_seconds: 60",
            "  colour: red",
            "33: no key 'colour' under 'policy'. Known are allow, reduced_steps, dwell_seconds, window_seconds, queue_high, cool_down_seconds, crash_cool_down_seconds, comeback, ranks_after_draft_fault, ready_seconds, drain_seconds, watchdog_seconds, resume_deadline_seconds, max_waiting_requests. [recipe.unknown-key]",
            id="like-nothing",
        ),
        pytest.param(
            "topk: 1",
            "num_steps: 5",
            "12: the key 'num_steps' is written twice. It stands in line 11 already; keep one. [recipe.duplicate-key]",
            id="twice",
        ),
        pytest.param(
            "topk: 1",
            "topk: 0",
            "12: draft.topk is 0; a whole number from 1 to 64 is needed. [recipe.range]",
            id="too-small",
        ),
        pytest.param(
            "dwell_seconds: 60",
            "dwell_seconds: 0",
            "33: policy.dwell_seconds is 0 s; a number above 0 to 1,000,000 s is needed. [recipe.range]",
            id="range-with-unit",
        ),
        pytest.param(
            "acceptance: target_only",
            "acceptance: target-only",
            "13: draft.acceptance is the text 'target-only'; one of target_only, rejection, relaxed is needed. Did you mean 'target_only'? [recipe.choice]",
            id="a-choice",
        ),
        pytest.param(
            "acceptance: target_only",
            "acceptance: *x",
            "13: refers to '*x'. Write the value out. [recipe.alias]",
            id="an-alias",
        ),
        pytest.param(
            "topk: 1",
            "topk: &x 1",
            "12: sets the anchor '&x'. Recipes have none: delete it. [recipe.alias]",
            id="an-anchor",
        ),
        pytest.param(
            "topk: 1",
            "topk: !!int 1",
            "12: carries the tag 'tag:yaml.org,2002:int'. Recipes have none: delete it. [recipe.tag]",
            id="a-tag",
        ),
        pytest.param(
            "topk: 1", "? [a]\n  : 1", "12: a key is a list; a word is needed. [recipe.kind]", id="a-list-for-a-key"
        ),
        pytest.param(
            "summary: ",
            "summary: ''\n#",
            "3: summary is an empty text; a sentence on one line is needed. [recipe.text]",
            id="an-empty-summary",
        ),
        pytest.param(
            "    tp: 8",
            "    tp: 8\n---\nsummary: another",
            "20: a second document starts. One file is one recipe: put it into a file of its own. [recipe.documents]",
            id="two-documents",
        ),
    ],
)
def test_a_complaint_says_line_and_remedy(old: str, new: str, sentence: str) -> None:
    assert complaints(edited(old, new)) == [f"recipes/x.yaml:{sentence}"]


def test_everything_wrong_is_collected_in_the_order_of_lines() -> None:
    content = H200.replace("summary:", "sumary:").replace("num_steps: 3", "num_steps: three").replace("tp: 8", "tp: 0")
    sentences = complaints(content.encode())
    assert [sentence.partition("[")[2] for sentence in sentences] == [
        "recipe.missing-key]",
        "recipe.unknown-key]",
        "recipe.kind]",
        "recipe.range]",
    ]
    lines = [int(sentence.split(":")[1]) for sentence in sentences]
    assert lines == sorted(lines)


def test_complaints_about_a_file_that_is_no_recipe_are_bounded() -> None:
    sentences = complaints("".join(f"k{n}: v\n" for n in range(1500)).encode())
    assert len(sentences) == 101
    assert sentences[-1] == "recipes/x.yaml: 1,406 more complaints are left out. [recipe.file]"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(b"", "1: is empty. A recipe begins with 'summary:'. [recipe.file]", id="empty"),
        pytest.param(b"# nothing\n", "1: is empty. A recipe begins with 'summary:'. [recipe.file]", id="only-a-comment"),
        pytest.param(b"- a\n", "1: the whole file is a list; a group of keys (summary, target, draft, ...) is needed. [recipe.kind]", id="a-list"),
        pytest.param(b"a: \x00", "1: holds the control character U+0000. Delete it. [recipe.encoding]", id="nul"),
        pytest.param(b"a: b\n\x1b[31m", "2: holds the control character U+001B. Delete it. [recipe.encoding]", id="escape"),
        pytest.param("a: \u202e".encode(), "1: holds the control character U+202E. Delete it. [recipe.encoding]", id="direction-mark"),
        pytest.param(b"a: b\nc: \xff", "2: byte 0xff is not UTF-8 text. Save the file as UTF-8. [recipe.encoding]", id="latin-1"),
        pytest.param("a: b".encode("utf-16"), "1: is UTF-16 text. Save it as UTF-8. [recipe.encoding]", id="utf-16"),
        pytest.param(b"{a: " * 9, "1: is nested more than 8 deep. Recipes are flat. [recipe.depth]", id="nested"),
        pytest.param(b"a:\n\tb: c\n", "2: is not YAML: found character that cannot start any token; while scanning for the next token. "
                     "Indent with spaces, not tabs. [recipe.syntax]", id="tab"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_recipe_are_refused_in_words(content: bytes, sentence: str) -> None:
    assert complaints(content)[0] == f"recipes/x.yaml:{sentence}"


def test_a_byte_order_mark_of_utf_8_is_let_pass() -> None:
    assert parse_recipe(b"\xef\xbb\xbf" + H200.encode(), PATH).recipe.summary


def test_a_deep_nest_is_refused_without_exhausting_the_stack() -> None:
    for opening in (b"[", b"{a: ", b"- " * 1, b"? "):
        assert complaints(opening * (16_000 // len(opening)))


def test_a_loaded_recipe_knows_its_lines_and_its_hash() -> None:
    loaded = parse_recipe(H200.encode(), PATH)
    assert loaded.name == "x"
    assert loaded.sha256 == "sha256:" + hashlib.sha256(H200.encode()).hexdigest()
    lines = H200.splitlines()
    for key in ("draft.num_steps", "hardware.layout.tp", "summary", "graphs.decode_batch_sizes"):
        assert lines[loaded.line_of(key) - 1].split(":")[0].strip() == key.rpartition(".")[2]
    assert loaded.line_of("draft.num_draft_tokens") == loaded.line_of("draft")
    assert loaded.line_of("nothing.known") == 1


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "deepseek_v3_h200.yaml").write_text("summary: x\n")
    with pytest.raises(RecipeError, match=r"no such file\. Did you mean '.*deepseek_v3_h200\.yaml'\?"):
        load_recipe(tmp_path / "deepsek_v3_h200.yaml")


def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path, kind in ((tmp_path, "a folder"), (pipe, "a named pipe"), (Path("/dev/zero"), "a device")):
        with pytest.raises(RecipeError, match=f"is {kind}, not a file"):
            load_recipe(path)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(RecipeError, match="is larger than 16 KiB"):
        load_recipe(path)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "\ud800.yaml"], ids=["nul", "too-long", "surrogate"])
def test_a_name_that_cannot_be_opened_is_refused(name: str) -> None:
    with pytest.raises(RecipeError):
        load_recipe(Path(name))


def test_a_message_never_carries_what_a_terminal_would_obey() -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(Path("\x1b[31m.yaml"))
    assert "\x1b" not in str(caught.value)
