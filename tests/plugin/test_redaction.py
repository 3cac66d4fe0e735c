"""What is struck, what is left, and that nothing known is ever said."""

import json
from collections import namedtuple
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.plugin.redaction import MARK, Secrets

KEY = "kX9-admin-key-of-thirty-two-bytes"


@pytest.fixture
def secrets() -> Secrets:
    found = Secrets()
    found.learn(KEY)
    return found


@pytest.mark.parametrize("name", ["api_key", "admin_api_key", "ssl_keyfile_password"])
def test_a_key_is_struck_under_its_name(name):
    assert Secrets().scrub({name: KEY, "port": 1}) == {name: MARK, "port": 1}


def test_a_key_that_is_unset_stays_unset():
    assert Secrets().scrub({"api_key": None}) == {"api_key": None}


@pytest.mark.parametrize(
    ("value", "scrubbed"),
    [
        pytest.param(f"--admin-api-key {KEY} --tp 2", f"--admin-api-key {MARK} --tp 2", id="command-line"),
        pytest.param([[f"x{KEY}x"]], [[f"x{MARK}x"]], id="nested-list"),
        pytest.param((1, KEY), (1, MARK), id="tuple"),
        pytest.param({KEY: 1}, {MARK: 1}, id="dictionary-key"),
        pytest.param({KEY, "b"}, {MARK, "b"}, id="set"),
        pytest.param(b"\xff" + KEY.encode() + b"\x00", b"\xff" + MARK.encode() + b"\x00", id="bytes"),
        pytest.param({"deep": [{"err": f"bad {KEY}"}]}, {"deep": [{"err": f"bad {MARK}"}]}, id="error-text"),
        pytest.param("api_key", "api_key", id="near-miss-the-name-alone"),
        pytest.param(KEY[:-1], KEY[:-1], id="near-miss-a-part-of-it"),
        pytest.param([1, 2.5, True, None], [1, 2.5, True, None], id="near-miss-numbers"),
        pytest.param(b"\xff\xfe", b"\xff\xfe", id="near-miss-other-bytes"),
    ],
)
def test_a_known_key_is_struck_wherever_it_stands(secrets, value, scrubbed):
    assert secrets.scrub(value) == scrubbed


def test_a_key_under_its_name_is_struck_from_everything_around_it():
    """The engine's own shape: the key at the top, and again inside launch_command and internal_states."""
    said = {
        "internal_states": [{"admin_api_key": KEY}],
        "launch_command": f"launch_server --admin-api-key {KEY}",
        "admin_api_key": KEY,
    }
    assert KEY not in json.dumps(Secrets().scrub(said))


def test_what_was_learned_once_is_struck_later():
    secrets = Secrets()
    secrets.scrub({"admin_api_key": KEY})
    assert secrets.scrub_text(f"ValueError: {KEY}") == f"ValueError: {MARK}"


@pytest.mark.parametrize(
    "argv", [["--admin-api-key", KEY], [f"--api-key={KEY}"], ["--tp", "2", "--ssl-keyfile-password", KEY]]
)
def test_keys_are_learned_from_arguments(argv):
    secrets = Secrets()
    secrets.learn_from_arguments(argv)
    assert secrets.scrub_text(KEY) == MARK


@pytest.mark.parametrize("argv", [["--api-key"], ["--api-keys", KEY], [KEY]])
def test_other_arguments_teach_nothing(argv):
    secrets = Secrets()
    secrets.learn_from_arguments(argv)
    assert secrets.scrub_text(KEY) == KEY


def test_a_short_key_is_struck_as_a_word_only():
    secrets = Secrets()
    secrets.learn("test")
    assert secrets.scrub_text("--api-key test --model tests/latest") == f"--api-key {MARK} --model tests/latest"


def test_of_two_keys_the_longer_is_struck_whole():
    secrets = Secrets()
    secrets.learn("longish-key")
    secrets.learn("longish-key-of-the-admin")
    assert secrets.scrub_text("longish-key-of-the-admin") == MARK


def test_a_record_that_holds_a_key_is_said_as_text():
    @dataclass
    class Arguments:
        api_key: str
        port: int = 1

    scrubbed = Secrets().scrub([Arguments(KEY)])
    assert KEY not in repr(scrubbed)
    assert MARK in scrubbed[0]


def test_a_record_without_a_key_passes_as_it_is():
    @dataclass
    class Arguments:
        api_key: str | None = None

    record = Arguments()
    assert Secrets().scrub([record]) == [record]


def test_a_named_tuple_stays_one(secrets):
    pair = namedtuple("pair", "text count")  # noqa: PYI024 - the untyped kind is what old code returns
    assert secrets.scrub(pair(KEY, 1)) == pair(MARK, 1)


def test_only_the_outermost_of_nested_calls_scrubs():
    secrets = Secrets()
    with secrets.outermost() as first, secrets.outermost() as second:
        assert (first, second) == (True, False)
    with secrets.outermost() as again:
        assert again


def test_after_an_error_the_next_call_is_outermost_again():
    secrets = Secrets()
    with pytest.raises(ValueError, match="inside"), secrets.outermost():
        raise ValueError("inside")
    with secrets.outermost() as first:
        assert first


plain = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=5) | st.just(KEY) | st.just(f"a {KEY} b"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("api_key"), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain)
def test_no_value_of_any_shape_says_a_known_key(value):
    secrets = Secrets()
    secrets.learn(KEY)
    assert KEY not in repr(secrets.scrub(value))


@given(plain)
def test_scrubbing_twice_changes_nothing_more(value):
    secrets = Secrets()
    secrets.learn(KEY)
    once = secrets.scrub(value)
    assert secrets.scrub(once) == once
