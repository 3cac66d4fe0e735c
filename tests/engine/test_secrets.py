"""What is blotted out of a launch's values, and what is not."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.engine.secrets import without_secrets


@pytest.mark.parametrize(
    ("text", "after"),
    [
        pytest.param('{"password": "a b,c", "n": 1}', '{"password": "***", "n": 1}', id="a-member"),
        pytest.param('{"a": [{"secretKey": "abcd"}]}', '{"a": [{"secretKey": "***"}]}', id="deep-and-in-camels-case"),
        pytest.param('{"credentials": {"user": "me", "id": "x"}}', '{"credentials": {"user": "***", "id": "***"}}', id="a-group"),
        pytest.param('{"password": 12345}', '{"password": "***"}', id="a-number"),
        pytest.param('{"a": "{\\"password\\": \\"abcd\\"}"}', '{"a": "{\\"password\\": \\"***\\"}"}', id="an-object-in-a-text"),
        pytest.param("{'api-key': 'ab cd', x: 1}", "{'api-key': '***', x: 1}", id="as-python-writes-it"),
        pytest.param('{"password": "ab', '{"password": "***"', id="cut-off"),
        pytest.param("{password: abcd, n: 1}", '{password: "***", n: 1}', id="as-yaml-writes-it"),
        pytest.param('{"max_tokens": 9999, "eos_token": "<s>", "num_key_value_heads": 8}', None, id="near-miss-tokens"),
        pytest.param('{"use_auth": true, "token": ""}', None, id="near-miss-nothing-is-said"),
        pytest.param('{"eos_token_password": "abcd"}', '{"eos_token_password": "***"}', id="a-password-all-the-same"),
    ],
)  # fmt: skip
def test_what_stands_under_a_name_for_a_secret_is_blotted_out(text, after):
    assert without_secrets(text) == (text if after is None else after)


@pytest.mark.parametrize("text", ['{"a":' * 400 + '"x"' + "}" * 400, "{" * 60_000, '{"key":' * 9_000, "{" + "a" * 60_000, "{" + "a:" * 30_000])  # fmt: skip
def test_no_text_takes_long_or_goes_too_deep(text):
    began = time.process_time()
    without_secrets(text)
    assert time.process_time() - began < 2


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
objects = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.sampled_from(["password", "token"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(objects)
def test_an_object_stays_one_and_is_blotted_once(data):
    text = json.dumps({"a": data})
    after = without_secrets(text)
    assert json.loads(after).keys() == {"a"}
    assert without_secrets(after) == after
