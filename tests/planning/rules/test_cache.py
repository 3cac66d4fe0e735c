from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.planning.rules import cache
from tests.planning.rules.launches import ASSISTANT, GEMMA, launch, said

_HOST = {"enable_hierarchical_cache": True, "speculative_algorithm": "EAGLE"}
_ALONE = '{"standalone_storage": true}'
_STORE = {**_HOST, "hicache_storage_backend": "mooncake", "hicache_storage_backend_extra_config": _ALONE}


@pytest.mark.parametrize(
    ("version", "change", "found"),
    [
        ("0.5.15.post1", {}, 1),
        ("0.5.16", {}, 1),
        ("0.5.17", {}, 0),
        ("0.5.23", {}, 0),
        ("dev", {}, 0),
        ("0.5.15.post1", {"speculative_algorithm": None}, 0),
        ("0.5.15.post1", {"speculative_algorithm": "NGRAM"}, 0),
        ("0.5.15.post1", {"enable_hierarchical_cache": None}, 0),
    ],
)
def test_before_the_drafts_own_pools_the_host_loses_its_kv(
    version: str, change: dict[str, Any], found: int
) -> None:  # C055
    asked = launch(**{**_HOST, **change}, pins={"sglang": version})
    assert said(cache.host_copies(asked)) == [("cache.draft-kv-not-saved", "warn", "enable_hierarchical_cache")] * found


@pytest.mark.parametrize(("mode", "found"), [("decode", 1), ("prefill", 1), ("null", 0), (None, 0)])
def test_a_replay_between_roles_is_watched(mode: str | None, found: int) -> None:  # C065
    asked = launch(**_HOST, disaggregation_mode=mode)
    assert (
        said(cache.host_copies_of_decode(asked))
        == [("cache.replay-in-roles", "warn", "enable_hierarchical_cache")] * found
    )


def test_an_assistant_has_no_kv_to_lose() -> None:
    asked = {**_HOST, "speculative_algorithm": "NEXTN", "disaggregation_mode": "decode"}
    assert not said(cache.host_copies_of_decode(launch(GEMMA, draft=ASSISTANT, **asked)))


@pytest.mark.parametrize(
    ("version", "change", "verdict"),
    [
        ("0.5.13", {}, "refuse"),
        ("0.5.13.post1", {}, "warn"),
        ("0.5.23", {}, "warn"),
        ("0.5.12", {}, None),
        ("0.5.13", {"hicache_storage_backend_extra_config": '{"standalone_storage": false}'}, None),
        ("0.5.13", {"hicache_storage_backend_extra_config": "@file.toml"}, None),
        ("0.5.13", {"hicache_storage_backend_extra_config": None}, None),
        ("0.5.13", {"hicache_storage_backend": "file"}, None),
        ("0.5.13", {"speculative_algorithm": None}, None),
    ],
)
def test_a_store_that_stands_alone_takes_no_draft(
    version: str, change: dict[str, Any], verdict: str | None
) -> None:  # C058
    asked = launch(**{**_STORE, **change}, pins={"sglang": version})
    expected = [("cache.standalone-storage", verdict, "hicache_storage_backend")] if verdict else []
    assert said(cache.storage_apart(asked)) == expected


@given(st.text(max_size=30))
def test_any_extra_configuration_is_read_or_let_be(text: str) -> None:
    assert not said(cache.storage_apart(launch(**{**_STORE, "hicache_storage_backend_extra_config": text})))


@pytest.mark.parametrize(
    ("algorithm", "found"),
    [
        ("EAGLE", 0),
        ("NEXTN", 0),
        ("EAGLE3", 0),
        ("DSPARK", 0),
        ("NGRAM", 1),
        ("DFLASH", 1),
        ("STANDALONE", 1),
        (None, 0),
    ],
)
def test_a_decode_role_caches_prefixes_beside_three_algorithms(algorithm: str | None, found: int) -> None:  # C064
    asked = {"disaggregation_decode_enable_radix_cache": True, "speculative_algorithm": algorithm}
    where = "disaggregation_decode_enable_radix_cache"
    assert (
        said(cache.decode_radix(launch(**asked, disaggregation_mode="decode")))
        == [("cache.decode-radix", "refuse", where)] * found
    )
    assert not said(cache.decode_radix(launch(**asked, disaggregation_mode="prefill")))
    assert not said(cache.decode_radix(launch(speculative_algorithm=algorithm, disaggregation_mode="decode")))


def test_with_an_assistant_the_alias_is_another_algorithm() -> None:  # C064
    asked = {
        "disaggregation_mode": "decode",
        "disaggregation_decode_enable_radix_cache": True,
        "speculative_algorithm": "NEXTN",
    }
    assert said(cache.decode_radix(launch(GEMMA, draft=ASSISTANT, **asked)))
