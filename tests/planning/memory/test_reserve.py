import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.facts.model import VisionTower
from spec_toolkit.planning.memory.reserve import (
    Outside,
    default_fraction,
    largest_chain,
    outside_lines,
    slots_per_decode,
    temporary_slots,
)

H200 = 143_771  # MiB
steps_, pages = st.integers(1, 64), st.sampled_from([1, 16, 32, 64, 128, 256])


# The first three as SGLang's get_alloc_len_per_decode printed them.
@pytest.mark.parametrize(
    ("num_steps", "topk", "width", "page_size", "slots"),
    [
        pytest.param(3, 1, 4, 64, 4, id="chain"),
        pytest.param(3, 1, 4, 1, 4, id="chain-small-pages"),
        pytest.param(4, 4, 16, 64, 512, id="tree-on-pages-keeps-whole-ones-for-each-branch"),
        pytest.param(4, 4, 8, 1, 16, id="tree-without-pages"),
        pytest.param(4, 4, 24, 1, 24, id="tree-wider-than-its-branches"),
    ],
)
def test_slots_of_a_round(num_steps, topk, width, page_size, slots):
    assert slots_per_decode(num_steps=num_steps, topk=topk, width=width, page_size=page_size) == slots


def test_two_rounds_are_kept_in_whole_pages():
    assert temporary_slots(4, page_size=1) == 8
    assert temporary_slots(4, page_size=64) == 64
    assert temporary_slots(41, page_size=64) == 128


@given(steps=steps_, page=pages, slots=st.floats(0, 1000))
def test_the_largest_chain_is_the_last_that_stays_within(steps, page, slots):
    def kept(count):
        return temporary_slots(count + 1, page_size=page)

    found = largest_chain(slots=slots, page_size=page, at_most=steps)
    if found is None:
        assert kept(1) > slots
    else:
        assert kept(found) <= slots
        assert found == steps or kept(found + 1) > slots


# As SGLang's resolver printed them under a described GPU; test_pools_on_the_engine runs it.
@pytest.mark.parametrize(
    ("asked", "fraction"),
    [
        pytest.param(Outside(memory_mib=H200, ranks=8, chunk_tokens=8192, largest_graph=48), 0.892, id="h200"),
        pytest.param(Outside(memory_mib=183_359, ranks=8, chunk_tokens=16384, largest_graph=64), 0.849, id="b200"),
        pytest.param(Outside(memory_mib=81_559, ranks=8, chunk_tokens=8192, largest_graph=64), 0.81, id="h100"),
        pytest.param(
            Outside(memory_mib=H200, ranks=8, attention_dp=8, chunk_tokens=8192, largest_graph=256), 0.847, id="dp"
        ),
        pytest.param(
            Outside(memory_mib=H200, ranks=8, attention_dp=8, chunk_tokens=8192, largest_graph=8, deepep=True),
            0.87,
            id="deepep",
        ),
        pytest.param(
            Outside(memory_mib=H200, ranks=8, chunk_tokens=8192, largest_graph=64, prefill_graphs=False), 0.903, id="v4"
        ),
    ],
)
def test_fraction_where_a_launch_says_nothing(asked, fraction):
    assert default_fraction(asked) == fraction


def test_a_tower_for_images_lowers_it():
    asked = Outside(memory_mib=H200, ranks=2, chunk_tokens=8192, largest_graph=32, prefill_graphs=False)
    small, large = VisionTower(layers=16, hidden_size=768), VisionTower(layers=27, hidden_size=1152)
    assert default_fraction(asked, small) == pytest.approx(0.9067275)
    assert default_fraction(asked, large) < default_fraction(asked, small) < default_fraction(asked)


def test_a_large_gpu_keeps_ten_gib_and_deepep_beside_them():
    asked = Outside(memory_mib=H200, ranks=1, chunk_tokens=2048, largest_graph=1, prefill_graphs=False, deepep=True)
    lines = {line.name: line.mib for line in outside_lines(asked)}
    assert sum(lines.values()) == 10 * 1024 + 2048
    small = Outside(memory_mib=40_000, ranks=1, chunk_tokens=2048, largest_graph=1, prefill_graphs=False)
    assert "floor" not in {line.name for line in outside_lines(small)}


@pytest.mark.parametrize(
    ("role", "missing"),
    [
        pytest.param("prefill", "decode graphs", id="prefill-captures-no-decode"),
        pytest.param("decode", "prefill graphs", id="decode-captures-no-prefill"),
    ],
)
def test_a_role_keeps_room_for_what_it_does(role, missing):
    asked = Outside(memory_mib=H200, ranks=8, chunk_tokens=8192, largest_graph=64, role=role, decode_tokens=256)
    assert missing not in {line.name for line in outside_lines(asked)}
