"""What the plan reckons with, beside what the engine decides."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from spec_toolkit.launch.decided import decided
from spec_toolkit.launch.foreseen import misjudged
from spec_toolkit.launch.prepare import plan_and_patches
from spec_toolkit.launch.resolving.records import Decided
from tests.launch.test_decided import ANSWER

_, PLAN, _ = plan_and_patches(Path(__file__).parents[2] / "recipes" / "deepseek_v3_h200.yaml")


def as_reckoned() -> Decided:
    admission, ledger = PLAN.forecast.admission, PLAN.forecast.ledger
    assert admission is not None
    made = decided(ANSWER)
    assert made is not None
    return replace(
        made,
        page_tokens=ledger.page_size,
        memory_fraction=ledger.fraction,
        chunked_prefill_tokens=8192,
        max_running_requests=64,
        prefill_graphs=admission.prefill_graphs or (),
        adaptive=True,
        kv_cache_dtype="auto",
    )


def test_an_engine_that_decides_as_reckoned_is_no_news() -> None:
    assert not list(misjudged(PLAN, as_reckoned()))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        pytest.param(
            {"prefill_attention": "triton"}, "attention in prefill fa3, the engine takes triton", id="prefill"
        ),
        pytest.param({"decode_attention": "triton"}, "attention in decode fa3, the engine takes triton", id="decode"),
        pytest.param({"page_tokens": 64}, "pages in tokens 1, the engine takes 64", id="pages"),
        pytest.param({"memory_fraction": 0.5}, "the engine takes 0.5", id="memory"),
        pytest.param({"chunked_prefill_tokens": 4096}, "the engine takes 4096", id="chunks"),
        pytest.param({"max_running_requests": 48}, "a request cap 64, the engine takes 48", id="cap"),
        pytest.param({"prefill_graphs": ()}, "the engine takes none", id="prefill-graphs"),
        pytest.param({"adaptive": False}, "adaptive speculation on, the engine takes off", id="adaptive"),
        pytest.param({"kv_cache_dtype": "fp8_e4m3"}, "a KV cache in auto, the engine takes fp8_e4m3", id="kv"),
    ],
)
def test_each_thing_that_it_decides_otherwise_is_told(other: dict[str, object], says: str) -> None:
    (finding,) = misjudged(PLAN, replace(as_reckoned(), **other))
    assert finding.rule == "resolve.misjudged"
    assert says in finding.found


def test_near_miss_a_rounded_memory_fraction_is_the_same() -> None:
    fraction = PLAN.forecast.ledger.fraction
    assert fraction is not None
    assert not list(misjudged(PLAN, replace(as_reckoned(), memory_fraction=round(fraction, 3))))
