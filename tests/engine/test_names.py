"""Reading `meta_info`: absent is None, never zero."""

import pytest

from spec_toolkit.engine.names import read_rounds

SPECULATIVE = {
    "completion_tokens": 12,
    "spec_verify_ct": 8,
    "spec_num_correct_drafts": 3,
    "spec_num_proposed_drafts": 24,
    "spec_correct_drafts_histogram": [6, 1, 1],
    "spec_accept_length": 1.5,
}


def test_the_bonus_token_is_in_the_emitted_length_and_prefills_token_is_not() -> None:
    seen = read_rounds(SPECULATIVE)
    assert seen.emitted_length == (3 + 8) / 8
    assert seen.emitted_length != SPECULATIVE["spec_accept_length"]
    assert sum(n * rounds for n, rounds in enumerate(seen.accepted_histogram or ())) == seen.accepted_drafts


def test_without_speculation_there_is_no_emitted_length() -> None:
    seen = read_rounds({"completion_tokens": 12})
    assert (seen.rounds, seen.accepted_drafts, seen.proposed_drafts, seen.emitted_length) == (None, None, None, None)


@pytest.mark.parametrize("key", ["spec_verify_ct", "spec_num_correct_drafts"])
def test_a_renamed_key_is_none_and_not_no_acceptance(key: str) -> None:
    renamed = {k: v for k, v in SPECULATIVE.items() if k != key}
    assert read_rounds(renamed).emitted_length is None
