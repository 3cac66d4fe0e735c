import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spec_toolkit.facts.model import Weights
from spec_toolkit.planning.memory.kv import KvBytes, KvDtype
from spec_toolkit.planning.memory.launched_kv import kv_of
from spec_toolkit.planning.memory.ledger import (
    DRAFT,
    DRAFT_KV,
    IMAGES,
    RESERVE,
    STATE,
    TARGET,
    TARGET_KV,
    Demand,
    How,
    Place,
    fits,
    make_ledger,
)
from spec_toolkit.planning.memory.rounds import Rounds, graph_families, rounds_of
from spec_toolkit.planning.memory.situated import draw_up
from spec_toolkit.planning.situation import Measured
from tests.planning.memory.launches import HOPPER, TARGETS, launch

GIB = 2**30
KV = KvBytes(dtype=KvDtype.BF16, target=900.0, draft=100.0, rule="made up")
DEMAND = Demand(
    memory=100 * GIB,
    free_before=None,
    fraction=0.9,
    fraction_says="written",
    memory_says="the GPU has",
    target=(60 * GIB, How.COUNTED, ""),
    draft=(2 * GIB, How.COUNTED, ""),
    kv=KV,
    page_size=64,
    rounds=Rounds(steps=(0, 1, 3), topk=1, width=4),
    requests=32,
    context_tokens=8_000,
    pool_tokens=None,
    outside=(),
)


def situation_of(name="deepseek-v3-0324", **more):
    return launch(TARGETS[name], HOPPER, speculates=True, **more).situation


def test_what_is_left_for_kv_is_the_fraction_less_the_weights():
    ledger = make_ledger(DEMAND)
    assert ledger.pool == round(100 * GIB * 0.9) - 62 * GIB
    assert ledger.tokens == ledger.pool // 1000 // 64 * 64


def test_what_was_free_goes_before_what_the_gpu_has():
    ledger = make_ledger(replace(DEMAND, free_before=98 * GIB))
    taken = ledger.line("taken before the load")
    assert ledger.usable == round(98 * GIB * 0.9)
    assert (taken.bytes, taken.how, taken.place) == (2 * GIB, How.MEASURED, Place.BEFORE)


def test_lines_inside_the_fraction_add_up_to_it():
    ledger = make_ledger(DEMAND)
    inside = sum(line.bytes for line in ledger.lines if line.place is Place.STATIC)
    assert ledger.usable - 64 * 1000 <= inside <= ledger.usable


def test_the_reserve_is_for_every_request_at_the_largest_width():
    ledger = make_ledger(DEMAND)
    assert ledger.slots_per_request == 64
    assert ledger.taken(RESERVE) == 64 * 32 * 1000


def test_a_reserve_larger_than_the_pool_takes_all_of_it_and_says_what_it_lacks():
    ledger = make_ledger(replace(DEMAND, requests=1_000_000))
    inside = sum(line.bytes for line in ledger.lines if line.place is Place.STATIC)
    assert inside <= ledger.usable
    assert ledger.taken(RESERVE) == ledger.tokens * 1000
    assert ledger.reserve == 64 * 1_000_000 * 1000
    assert f"the pool holds no more of {ledger.reserve / GIB:,.2f} GiB" in ledger.line(RESERVE).says


def test_a_written_pool_is_no_larger_than_that_whatever_memory_leaves():
    ledger, free = make_ledger(replace(DEMAND, pool_tokens=10_000)), make_ledger(DEMAND)
    assert ledger.tokens == 10_000 // 64 * 64
    assert (ledger.fitting, ledger.room.kv) == (free.tokens, free.tokens)


def test_a_windows_pool_is_a_share_of_the_whole_and_a_request_takes_a_window_a_page_and_its_reserve():
    ledger = make_ledger(replace(DEMAND, kv=replace(KV, window_share=0.0001), window_tokens=128))
    assert ledger.room.windows == int(ledger.tokens * 0.0001)
    assert ledger.room.of_request_windows == 128 + 64 + 64
    assert make_ledger(DEMAND).room.windows is None


def test_every_line_says_where_it_comes_from_or_that_nobody_knows():
    for name in TARGETS:
        for line in draw_up(situation_of(name, context_length=4096)).lines:
            levels = ("sglang-source", "official-", "third-party", "transformers-source", "paper")
            assert line.how is How.UNKNOWN or any(level in line.says for level in levels), line


def test_who_sees_images_keeps_some_of_the_pool_for_them():
    """100 MiB: what the environment variable SGLANG_VLM_CACHE_SIZE_MB is without a word."""
    seeing = situation_of("gemma-4-26b-a4b", mem_fraction_static=0.85)
    ledger = draw_up(seeing)
    assert ledger.taken(IMAGES) == 100 * 2**20
    assert ledger.pool == ledger.usable - ledger.taken(TARGET) - ledger.taken(DRAFT) - 100 * 2**20
    text = replace(seeing, target=replace(seeing.target, architecture="Gemma4ForCausalLM"))
    assert draw_up(text).line(IMAGES) is None


# srt/mem_cache/kv_cache_configurator.py asks for flashinfer_sparse_mla's layout there: the FP8 latent carries its scales.
def test_glm_on_workstation_blackwell_keeps_its_scales_beside_the_latent():
    def latent(name, gpu):
        return kv_of(launch(TARGETS[name], gpu, speculates=False, kv_cache_dtype="fp8_e4m3").situation).rule

    assert latent("glm-5.2", "rtx_5090").startswith("latent 656 B")
    assert latent("glm-5.2", "b200").startswith("latent 576 B")
    assert latent("deepseek-v3.2", "rtx_5090").startswith("latent 576 B")


def test_windows_by_request_have_a_line_of_their_own():
    ledger = draw_up(situation_of("gemma-4-26b-a4b", disable_radix_cache=True, mem_fraction_static=0.85))
    assert ledger.taken(STATE) == ledger.kv.fixed(48)
    assert "windows of 48 requests" in ledger.line(STATE).says


def test_an_unknown_draft_is_left_out_and_said():
    ledger = make_ledger(replace(DEMAND, draft=(None, How.UNKNOWN, "nobody knows")))
    assert ledger.tokens is not None
    assert DRAFT in ledger.unknown
    assert fits(ledger)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"target": (None, How.UNKNOWN, "")}, id="weights"),
        pytest.param({"kv": None}, id="kv"),
        pytest.param({"fraction": None}, id="fraction"),
        pytest.param({"memory": None}, id="memory"),
    ],
)
def test_without_what_it_hangs_on_nothing_is_answered(change):
    ledger = make_ledger(replace(DEMAND, **change))
    assert ledger.tokens is None
    assert fits(ledger) is None
    assert ledger.room.kv is None


def test_weights_beyond_the_fraction_fit_nothing():
    ledger = make_ledger(replace(DEMAND, target=(95 * GIB, How.COUNTED, "")))
    assert fits(ledger) is False
    assert ledger.tokens == 0


@given(
    fraction=st.floats(0.01, 0.99),
    weights=st.integers(0, 120),
    requests=st.integers(1, 4096),
    context=st.integers(1, 2_000_000),
    page=st.sampled_from([1, 64, 256]),
)
def test_an_account_is_never_negative_and_never_more_than_there_is(fraction, weights, requests, context, page):
    demand = replace(
        DEMAND,
        fraction=fraction,
        target=(weights * GIB, How.COUNTED, ""),
        requests=requests,
        context_tokens=context,
        page_size=page,
    )
    ledger = make_ledger(demand)
    assert ledger.tokens >= 0
    assert ledger.tokens % page == 0
    assert all(line.bytes is None or line.bytes >= 0 for line in ledger.lines)
    if ledger.pool > 0:
        assert sum(line.bytes or 0 for line in ledger.lines if line.place is Place.STATIC) <= ledger.usable


# C012
@pytest.mark.parametrize(
    ("rounds", "names"),
    [
        pytest.param(
            Rounds(steps=(0, 1, 3), topk=1, width=4),
            ["graphs: target verify", "graphs: draft decode", "graphs: draft extend", "attention workspaces"],
            id="adaptive",
        ),
        pytest.param(
            Rounds(steps=(1,), width=6, has_draft_passes=False),
            ["graphs: target verify", "attention workspaces"],
            id="a-block-is-drafted-at-once",
        ),
        pytest.param(Rounds(steps=(0,), topk=1, width=1), ["graphs: target verify", "attention workspaces"], id="none"),
        pytest.param(Rounds(), [], id="autoregressive"),
    ],
)
def test_families_of_graphs(rounds, names):
    assert [name for name, _ in graph_families(rounds)] == names


def test_every_step_count_has_graphs_of_its_own():
    says = dict(graph_families(Rounds(steps=(0, 1, 3), topk=1, width=4)))
    assert says["graphs: target verify"] == "3 of them, 1, 2, 4 tokens a request"
    assert says["graphs: draft decode"].startswith("2 of them, 1, 3 passes")
    assert says["graphs: draft extend"] == "2 of them, 2, 4 tokens a request"


def test_an_adaptive_launch_can_draft_nothing():
    assert rounds_of(situation_of()).steps == (3,)
    assert rounds_of(situation_of(speculative_adaptive=True)).steps == (0, 1, 3, 5, 7)
    with_a_file = situation_of(speculative_adaptive=True, speculative_adaptive_config="steps.json")
    assert rounds_of(with_a_file).steps == (0, 3)
    planned = replace(situation_of(speculative_adaptive=True), steps=(0, 1, 3))
    assert rounds_of(planned).widths == (1, 2, 4)


# Algorithms as the engine fills them in; NGRAM's tree is kept in a mask, so its slots are those of its tokens on pages too.
@pytest.mark.parametrize(
    ("asked", "widths", "slots"),
    [
        pytest.param({"speculative_algorithm": "NGRAM"}, (12,), 12, id="ngram"),
        pytest.param(
            {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 64}, (64,), 64, id="ngram-written"
        ),
        pytest.param(
            {"speculative_algorithm": "NGRAM", "speculative_num_steps": 5, "speculative_ngram_max_bfs_breadth": 4},
            (12,),
            20,
            id="ngram-deeper-than-its-tokens",
        ),
        pytest.param({"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 16}, (16,), 16, id="dflash"),
        pytest.param({"speculative_algorithm": "DFLASH", "speculative_dflash_block_size": 8}, (8,), 8, id="a-block"),
        pytest.param({"speculative_algorithm": "DFLASH"}, (), None, id="a-block-nobody-read"),
        pytest.param({"speculative_algorithm": "DSPARK", "speculative_dspark_block_size": 5}, (6,), 6, id="dspark"),
        pytest.param({"speculative_algorithm": "UNO", "speculative_num_draft_tokens": 8}, (8,), 9, id="uno-and-root"),
        pytest.param({"speculative_algorithm": "EAGLE"}, (4,), 4, id="a-chain-of-the-engines-own"),
        pytest.param({"speculative_algorithm": "EAGLE", "speculative_num_steps": 0}, (1,), 1, id="no-steps"),
        pytest.param({"speculative_algorithm": "EAGLE", "speculative_num_steps": -9}, (), None, id="less-than-none"),
        pytest.param(
            {"speculative_algorithm": "EAGLE", "speculative_num_steps": 4, "speculative_eagle_topk": 4},
            (),
            None,
            id="a-tree-without-a-width",
        ),
    ],
)
def test_a_round_is_as_wide_as_the_engine_makes_it(asked, widths, slots):
    nothing = dict.fromkeys(("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"))
    rounds = rounds_of(situation_of(**nothing | asked))
    assert rounds.widths == widths
    assert rounds.slots_per_decode(64) == slots


def test_a_draft_of_its_own_brings_its_own_block():
    """The target's is another's: one room must not read the one and another the other."""
    situation = situation_of(
        **dict.fromkeys(("speculative_num_steps", "speculative_num_draft_tokens")), speculative_algorithm="DSPARK"
    )
    target, draft = (replace(situation.target, dspark_block_size=size) for size in (5, 3))
    assert rounds_of(replace(situation, target=target)).widths == (6,)
    assert rounds_of(replace(situation, target=target, draft=draft)).widths == (4,)


def test_without_a_draft_there_is_more_for_the_target():
    drafting = draw_up(situation_of())
    alone = draw_up(launch(TARGETS["deepseek-v3-0324"], HOPPER, speculates=False).situation)
    assert alone.tokens > drafting.tokens
    assert alone.line(DRAFT) is None
    assert alone.line(DRAFT_KV) is None
    assert {line.name for line in alone.lines if line.how is How.UNKNOWN} == {"taken before the load"}


@pytest.mark.parametrize(
    ("name", "more", "draft"),
    [
        pytest.param("deepseek-v3-0324", {}, 1_152, id="mtp"),
        pytest.param("gemma-4-26b-a4b", {}, 16_384, id="each-of-an-assistants-layers-as-a-full-one"),
        pytest.param("deepseek-v4-flash", {}, 7_939.186 / 44, id="one-layer-in-all-of-them"),
        pytest.param("deepseek-v3-0324", {"speculative_algorithm": "NGRAM"}, 0, id="a-table-has-no-layers"),
    ],
)
def test_draft_kv_is_charged_by_the_drafts_layers(name, more, draft):
    assert kv_of(situation_of(name, **more)).draft == pytest.approx(draft, abs=0.01)


def test_a_draft_whose_layers_nobody_knows_leaves_kv_unknown():
    situation = situation_of("gemma-4-26b-a4b")
    assert kv_of(replace(situation, draft=None)) is None


def test_what_was_measured_goes_before_what_is_counted():
    situation = situation_of()
    seen = Measured(target_weights_gib=81.5, draft_weights_gib=1.6, free_before_load_gib=138.1)
    ledger = draw_up(replace(situation, measured=seen))
    assert ledger.line(TARGET).how is How.MEASURED
    assert ledger.taken(TARGET) == round(81.5 * GIB)
    assert ledger.usable == pytest.approx(138.1 * GIB * ledger.fraction)


def test_pipeline_stages_are_not_counted_and_say_so():
    ledger = draw_up(situation_of(pp_size=2))
    assert {TARGET, DRAFT, TARGET_KV} <= set(ledger.unknown)


def test_without_a_radix_cache_windows_are_kept_by_request():
    by_share, by_request = (kv_of(situation_of("gemma-4-26b-a4b", disable_radix_cache=off)) for off in (None, True))
    assert by_request.target == 20_480  # its full layers
    assert by_request.total < by_share.total
    assert by_request.fixed(48) == (48 * (1024 + 128 * 4 + 1 + 8) + 2 * 8192 + 1) * 8192 * 25
    assert by_share.fixed(48) == 0


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"disable_overlap_schedule": True}, id="overlap-off"),
        pytest.param({"disaggregation_mode": "decode"}, id="decode-engine"),
        pytest.param({"chunked_prefill_size": -1}, id="prefill-in-one-piece"),
    ],
)
def test_what_windows_by_request_come_to_elsewhere_is_not_counted(more):
    ledger = draw_up(situation_of("gemma-4-26b-a4b", disable_radix_cache=True, **more))
    assert TARGET_KV in ledger.unknown


def test_a_model_nobody_knows_has_no_account():
    situation = situation_of()
    stranger = replace(situation.target, shape=None, weights=Weights.BF16, architecture="Other")
    ledger = draw_up(replace(situation, target=stranger))
    assert TARGET in ledger.unknown
    assert ledger.tokens is None
