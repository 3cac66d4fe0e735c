"""What is written is what is read, on both ways between the launcher and the engine."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.handover import (
    HandedHook,
    HookType,
    Relied,
    Report,
    Role,
    decode_list,
    decode_report,
    encode_list,
    encode_report,
    process_name,
    report_folder,
)

words = st.text(min_size=1, max_size=8)
hooks = st.builds(
    HandedHook,
    patch=words,
    target=words,
    fingerprint=words,
    file=words,
    file_sha256=words,
    function=words,
    type=st.sampled_from(HookType),
    roles=st.lists(st.sampled_from(Role)).map(tuple),
    may_keep=st.lists(words).map(tuple),
    relies_on=st.lists(st.builds(Relied, target=words, fingerprint=words), max_size=2).map(tuple),
)
reports = st.builds(
    Report,
    role=st.sampled_from(Role),
    ranks=st.dictionaries(st.sampled_from(["dp", "pp", "tp"]), st.integers(0, 64)),
    pid=st.integers(1),
    list_sha256=words,
    applied=st.lists(words).map(tuple),
    inherited=st.lists(words).map(tuple),
)


@given(st.lists(hooks, max_size=3).map(tuple))
def test_a_list_is_read_as_it_was_written(handed):
    assert decode_list(encode_list(handed)) == handed


@given(reports)
def test_a_report_is_read_as_it_was_written(report):
    assert decode_report(encode_report(report)) == report


@given(st.binary(max_size=30))
def test_bytes_that_are_no_list_are_refused_and_nothing_else(content):
    try:
        decode_list(content)
    except (ValueError, KeyError, TypeError):
        return
    assert content.strip() == b"[]"


@pytest.mark.parametrize("content", [b"{}", b"3", b"[1]", b'{"role": "pilot"}', b"null"])
def test_what_is_no_report_is_refused(content):
    with pytest.raises((ValueError, KeyError, TypeError)):
        decode_report(content)


def test_a_process_is_named_by_role_and_ranks_in_one_order():
    assert process_name(Role.SCHEDULER, {"tp": 1, "dp": 0, "pp": 2}) == "scheduler-dp0-pp2-tp1"


def test_reports_lie_beside_the_list():
    assert report_folder(Path("/run/x/patches.json")) == Path("/run/x/patches.json.d")
