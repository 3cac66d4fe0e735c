"""What is counted here is what SGLang's own configurators count, run in one child process."""

import pytest

from spec_toolkit.planning.memory.launched import fraction_of
from spec_toolkit.planning.memory.launched_kv import kv_of
from spec_toolkit.planning.memory.rounds import rounds_of
from spec_toolkit.planning.memory.situated import demand_of, draw_up
from spec_toolkit.planning.rules.resolved import kv_word
from tests.planning.memory.engine_pools import BUDGET
from tests.planning.memory.launches import ask_engine, every_model, failures, further

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def pools():
    launches = every_model() + further()
    answers = ask_engine(launches)
    assert not failures(launches, answers)
    return list(zip(launches, answers, strict=True))


def test_bytes_per_token_are_the_engines(pools):
    ours = {asked.name: kv_of(asked.situation).total for asked, _ in pools}
    assert ours == pytest.approx({asked.name: said["bytes_per_token"] for asked, said in pools}, rel=1e-12)


def test_state_of_requests_is_the_engines(pools):
    ours = {asked.name: kv_of(asked.situation).fixed(said["requests"]) for asked, said in pools}
    assert ours == {asked.name: said["fixed"] for asked, said in pools}


def test_tokens_of_a_pool_are_the_engines(pools):
    for asked, said in pools:
        kv, page = kv_of(asked.situation), said["page_size"]
        tokens = int((BUDGET - kv.fixed(said["requests"])) / kv.total) // page * page
        assert tokens == said["tokens"], asked.name


def test_requests_pages_and_ranks_are_the_engines(pools):
    for asked, said in pools:
        demand = demand_of(asked.situation)
        assert (demand.requests, demand.page_size) == (said["requests"], said["page_size"]), asked.name


def test_what_kv_is_stored_as_is_the_engines(pools):
    ours = {asked.name: kv_word(asked.situation) for asked, _ in pools}
    assert ours == {asked.name: said["kv_word"] for asked, said in pools}
    of_checkpoints = [
        a for a, said in pools if said["kv_word"] == "fp8_e4m3" and not a.situation.arguments.kv_cache_dtype
    ]
    assert any("DeepSeek-V3" in asked.situation.target.name for asked in of_checkpoints)


def test_memory_fraction_is_the_engines(pools):
    ours = {asked.name: fraction_of(asked.situation)[0] for asked, _ in pools}
    assert ours == pytest.approx({asked.name: said["memory_fraction"] for asked, said in pools}, abs=1e-9)


def test_slots_of_a_round_are_the_engines(pools):
    for asked, said in pools:
        rounds, page = rounds_of(asked.situation), said["page_size"]
        if rounds.steps:
            assert rounds.slots_per_decode(page) == said["slots_per_decode"], asked.name


def test_every_model_was_asked_with_and_without_a_draft(pools):
    assert len(pools) >= 56
    assert all(draw_up(asked.situation).kv is not None for asked, _ in pools)
