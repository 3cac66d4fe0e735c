from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.planning.rules.version import is_after, is_before, is_same, release_of

IN_ORDER = ("0.4.6", "0.4.6.post5", "0.5.9", "0.5.10rc0", "0.5.10", "0.5.15", "0.5.15.post1", "0.5.23", "0.6", "1.0.0")


@pytest.mark.parametrize(("older", "newer"), list(pairwise(IN_ORDER)))
def test_releases_are_ordered_as_they_came(older: str, newer: str) -> None:
    assert is_before(older, newer)
    assert is_after(newer, older)
    assert not is_before(newer, older)


@pytest.mark.parametrize(
    "version", [None, "", "latest", "unknown-dev", "deepseek-v4-blackwell", "0.5.x", "0.5.23-cu130"]
)
def test_what_is_no_release_is_neither_older_nor_newer(version: str | None) -> None:
    assert release_of(version) is None
    assert not is_before(version, "9")
    assert not is_after(version, "0")
    assert not is_same(version, "0.5.23")


@pytest.mark.parametrize(("one", "other"), [("0.5.13", "v0.5.13"), ("0.5.13.0", "0.5.13"), ("0.5.13+cu130", "0.5.13")])
def test_one_release_has_several_spellings(one: str, other: str) -> None:
    assert is_same(one, other)


@given(st.text(max_size=20))
def test_any_text_is_answered(text: str) -> None:
    assert release_of(text) is None or is_same(text, text)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4), st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_numbers_count_and_not_letters(one: list[int], other: list[int]) -> None:
    left, right = (".".join(map(str, numbers)) for numbers in (one, other))
    width = max(len(one), len(other))
    padded = [numbers + [0] * (width - len(numbers)) for numbers in (one, other)]
    assert is_before(left, right) is (padded[0] < padded[1])
