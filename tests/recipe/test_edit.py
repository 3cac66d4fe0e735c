from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.errors import RecipeError
from spec_toolkit.recipe import edit
from spec_toolkit.recipe.catalogue import catalogue
from spec_toolkit.recipe.edit import set_values
from spec_toolkit.recipe.load import parse_recipe
from spec_toolkit.recipe.words import render
from spec_toolkit.terms import Method

COMMIT = "0123456789" * 4

BLOCK = """\
# why this recipe is there
summary: a model

target:
  model: a/b   # the vendor's
  quantization: 'fp8'

draft:
  method: mtp  # ships inside

engine: {sglang: 0.5.23}
"""


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda edit: edit.text, id="nothing-was-set"),
        pytest.param(lambda edit: edit.text.replace("a/b", "c/d").replace("fp8", "fp4"), id="something-else-too"),
        pytest.param(lambda edit: edit.text.replace("a/b", "c/D"), id="another-value"),
        pytest.param(lambda edit: "target: {model: c/d}", id="the-rest-went"),
    ],
)
def test_an_edit_that_would_say_anything_but_what_was_asked_is_no_text(wrong, monkeypatch):
    monkeypatch.setattr(edit, "_set", wrong)
    with pytest.raises(RecipeError, match=r"target\.model cannot be written .* \[recipe\.edit\]"):
        set_values(BLOCK, {"target.model": "c/d"})


def changed(before: str, after: str) -> tuple[list[str], list[str]]:
    """Lines that went and lines that came."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


@pytest.mark.parametrize(
    ("path", "value", "gone", "came"),
    [
        pytest.param("target.model", "c/d", ["  model: a/b   # the vendor's"], ["  model: c/d   # the vendor's"], id="comment-stays"),
        pytest.param("target.quantization", "nvfp4", ["  quantization: 'fp8'"], ["  quantization: 'nvfp4'"], id="quotes-stay"),
        pytest.param("target.revision", COMMIT, [], [f"  revision: {COMMIT}"], id="missing-key"),
        pytest.param("draft.num_steps", 3, [], ["  num_steps: 3"], id="behind-a-comment"),
        pytest.param("engine.image", "a/b@sha256:0", ["engine: {sglang: 0.5.23}"], ["engine: {sglang: 0.5.23, image: a/b@sha256:0}"], id="flow"),
        pytest.param("engine.patches", ["x", "y"], ["engine: {sglang: 0.5.23}"], ["engine: {sglang: 0.5.23, patches: [x, y]}"], id="list"),
        pytest.param("graphs.decode_batch_sizes", [1, 2], [], ["graphs:", "  decode_batch_sizes: [1, 2]"], id="missing-group"),
        pytest.param("draft.method", Method.EAGLE3, ["  method: mtp  # ships inside"], ["  method: eagle3  # ships inside"], id="word"),
        pytest.param("target.revision", "1234567", [], ['  revision: "1234567"'], id="near-miss-a-number"),
        pytest.param("summary", "a: b # c", ["summary: a model"], ['summary: "a: b # c"'], id="near-miss-a-comment"),
    ],
)  # fmt: skip
def test_only_the_line_of_the_key_changes(path, value, gone, came):
    assert changed(BLOCK, set_values(BLOCK, {path: value})) == (gone, came)


def test_a_key_goes_where_the_schema_has_it():
    lines = set_values(BLOCK, {"target.revision": COMMIT, "target.tokenizer": "sha256:" + "0" * 64}).splitlines()
    assert [line.split(":")[0].strip() for line in lines[4:8]] == ["model", "revision", "tokenizer", "quantization"]


def test_a_new_group_stands_apart_as_the_others_do():
    assert "0.5.23}\n\ngraphs:\n  decode_batch_sizes: [1]\n" in set_values(BLOCK, {"graphs.decode_batch_sizes": [1]})


@pytest.mark.parametrize(
    ("text", "path", "value", "after"),
    [
        pytest.param("a: 1", "b", 2, "a: 1\nb: 2\n", id="no-line-break-at-the-end"),
        pytest.param("a: 1\r\nb: 2\r\n", "c", 3, "a: 1\r\nb: 2\r\nc: 3\r\n", id="windows"),
        pytest.param("a:\nb: 2\n", "a", 3, "a: 3\nb: 2\n", id="nothing-stood-there"),
        pytest.param("a: # why\nb: 2\n", "a", 3, "a: 3 # why\nb: 2\n", id="nothing-but-a-comment"),
        pytest.param("{a: 1}\n", "b", 2, "{a: 1, b: 2}\n", id="all-in-braces"),
        pytest.param("a: {}\n", "a.b", 2, "a: {b: 2}\n", id="empty-braces"),
        pytest.param("a: {b: 1,\n    c: 2,}\n", "a.d", 3, "a: {b: 1,\n    c: 2, d: 3,}\n", id="comma-at-the-end"),
        pytest.param("a:\n- 1\n# two\n- 2\nb: 3\n", "a", [4], "a: [4]\n# two\nb: 3\n", id="a-block-list"),
        pytest.param("a:  # why\n  - 1\n  - 2\n\nb: 3\n", "a", [4], "a: [4]  # why\n\nb: 3\n", id="a-block-list-with-why"),
        pytest.param("a: >-\n  b\n  c\n\n# d\ne: 1\n", "a", "f", "a: f\n\n# d\ne: 1\n", id="a-folded-text"),
        pytest.param("a: 'é 💥' # é\nb: 'x''y'\n", "b", "z'", "a: 'é 💥' # é\nb: 'z'''\n", id="wide-characters"),
        pytest.param("l:\n  - a: 1\n    b: 2\n  - a: 3\n", "l[1].b", 4, "l:\n  - a: 1\n    b: 2\n  - a: 3\n    b: 4\n", id="in-a-list"),
        pytest.param("a:\n  b: 1\n  # last\n\nc: 2\n", "a.d", 3, "a:\n  b: 1\n  d: 3\n  # last\n\nc: 2\n", id="comment-behind-the-group"),
        pytest.param("a: 1\n...\n", "b", 2, "a: 1\nb: 2\n...\n", id="document-end"),
        pytest.param("a: null\n", "a", "-", 'a: "-"\n', id="a-dash"),
        pytest.param("a: [1, 2]  # x\n", "a", [3], "a: [3]  # x\n", id="list-in-brackets"),
    ],
)  # fmt: skip
def test_any_layout_is_kept(text, path, value, after):
    assert set_values(text, {path: value}) == after


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("a: 1\n", "a.b", id="a-value-is-no-group"),
        pytest.param("a: [1]\n", "a[1]", id="behind-the-list"),
        pytest.param("- a: [1]\n", "a", id="no-recipe"),
        pytest.param("a: &x 1\nb: *x\n", "a", id="alias"),
        pytest.param("a: 1\na: 2\n", "a", id="twice"),
        pytest.param("a: [\n", "a", id="no-yaml"),
        pytest.param("- 1\n---\n- 2\n", "a", id="two-documents"),
    ],
)
def test_what_cannot_be_edited_is_refused(text, path):
    with pytest.raises(RecipeError):
        set_values(text, {path: 2})


@pytest.mark.parametrize("entry", catalogue(), ids=lambda entry: entry.name)
def test_every_shipped_recipe_can_be_pinned(entry):
    text = entry.path.read_text()
    tokenizer, image = "sha256:" + "a" * 64, "lmsysorg/sglang@sha256:" + "b" * 64
    after = set_values(text, {"target.revision": COMMIT, "target.tokenizer": tokenizer, "engine.image": image})
    recipe = parse_recipe(after.encode(), Path("x.yaml")).recipe
    assert (recipe.target.revision, recipe.target.tokenizer, recipe.engine.image) == (COMMIT, tokenizer, image)
    gone, came = changed(text, after)
    assert len(came) <= 3
    assert len(gone) <= 3
    assert all(line in after.splitlines() for line in text.splitlines() if line.startswith("#"))


keys = st.sampled_from(["summary", "target", "model", "revision", "engine", "x", "yes", "graphs", "3"])
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["yes", "null", "~", "1:30", "0x1F", "1e3", "- a", "a: b", "a #b", "[", "'", '"', "!x", "&a", "*a", "%", "@", "<<", "=", ""]),
)  # fmt: skip
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**17), 10**17),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.lists(st.one_of(st.integers(0, 99), texts), max_size=4),
)
comments = st.sampled_from(["", "", "  # why", " #"])
lines_between = st.sampled_from(["", "", "\n", "# a comment\n", "\n  # inside\n"])


@st.composite
def groups(draw, depth=0):
    """A group as lines of YAML and as data; blocks and braces mixed, with comments and blank lines wherever they may stand."""
    lines, data = "", {}
    for key in draw(st.lists(keys, min_size=1, max_size=4, unique=True)):
        indent = "  " * depth
        name = render(key)
        if depth < 3 and draw(st.booleans()):
            inner, inner_data = draw(groups(depth + 1))
            lines += f"{indent}{name}:{draw(comments)}\n{inner}"
            data[key] = inner_data
        else:
            value = draw(values)
            style = draw(st.sampled_from([None, "'", '"']))
            lines += f"{indent}{name}: {render(value, style=style)}{draw(comments)}\n"
            data[key] = value
        lines += draw(lines_between)
    return lines, data


@given(st.data())
def test_an_edit_says_what_was_asked_and_nothing_else(data):
    text, before = data.draw(groups())
    path, place = [], before
    while isinstance(place, dict) and (not path or data.draw(st.booleans())):
        path.append(data.draw(keys))
        place = place.get(path[-1])
    value = data.draw(values)
    try:
        after = set_values(text, {".".join(path): value})
    except RecipeError:  # a group cannot become a value in the same line, nor a value a group
        assert isinstance(place, dict)
        return
    expected = before
    for key in path[:-1]:
        expected = expected.setdefault(key, {})
    expected[path[-1]] = value
    assert yaml.load(after, yaml.CSafeLoader) == yaml.load(yaml.safe_dump(before), yaml.CSafeLoader)
    gone = [line for line in text.splitlines() if line not in after.splitlines()]
    assert len(gone) <= 1 or isinstance(place, dict | list)
    assert all(line.strip() in after for line in text.splitlines() if line.lstrip().startswith("#"))


@given(values)
def test_a_written_value_is_read_as_it_was(value):
    for written in (f"a: {render(value, alone=True)}", f"{{a: {render(value)}, b: 1}}", f"- {render(value)}"):
        read = yaml.load(written, yaml.CSafeLoader)
        assert (read["a"] if isinstance(read, dict) else read[0]) == value
