import pytest
from msgspec.structs import replace

from spec_toolkit.errors import Verdict
from spec_toolkit.facts.read_model import known_model
from spec_toolkit.planning.memory.caps import Becomes
from spec_toolkit.planning.memory.ledger import DRAFT, DRAFT_KV, EMPTY_KV
from spec_toolkit.planning.memory.situated import draw_up
from spec_toolkit.planning.memory.weights import Layout, assistant_weights
from spec_toolkit.planning.rules import capacity
from spec_toolkit.planning.situation import Caps, Measured, Site, Situation
from tests.planning.memory.launches import BLACKWELL, HOPPER, TABLES, TARGETS, launch


def situation_of(name="deepseek-v3-0324", gpu=HOPPER, *, speculates=True, repo=None, **more) -> Situation:
    return launch(TARGETS[name], gpu, speculates=speculates, repo=repo, **more).situation


def said(rule, situation):
    return [(finding.rule, finding.verdict, finding.where) for finding in rule(situation)]


def sentence(rule, situation):
    (finding,) = rule(situation)
    return finding.sentence()


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        pytest.param(situation_of(tp_size=4), [("capacity.memory", Verdict.REFUSE, "tp_size")], id="v3-on-four-h200"),
        pytest.param(
            situation_of("glm-5.2"), [("capacity.memory", Verdict.REFUSE, "tp_size")], id="glm-bf16-on-eight-h200"
        ),
        pytest.param(
            situation_of(context_length=131_072, max_running_requests=64),
            [("capacity.memory", Verdict.NOTE, "max_running_requests")],
            id="more-requests-than-fit-at-once",
        ),
        pytest.param(situation_of(context_length=8_192, max_running_requests=32), [], id="near-miss-they-fit"),
        pytest.param(situation_of(max_running_requests=64), [], id="near-miss-no-context-is-stated"),
        pytest.param(
            replace(situation_of(tp_size=4), site=replace(situation_of().site, facts=None)),
            [],
            id="near-miss-nobody-knows-the-gpu",
        ),
    ],
)
def test_memory(situation, expected):
    assert said(capacity.memory, situation) == expected


def test_what_does_not_fit_is_said_with_its_parts_and_what_does():
    found = sentence(capacity.memory, situation_of(context_length=32_768, max_running_requests=64))
    for part in (
        "64 requests of 32,768 tokens need 220.3 GiB on each H200",
        "125.2 usable",
        "weights 79.31, draft 1.45",
    ):
        assert part in found
    assert "20 fit at once with 0.9 to spare" in found
    assert "unknown and left out: taken before the load, graphs, attention workspaces" in found


# C008
@pytest.mark.parametrize(
    ("fraction", "speculates", "refused"),
    [
        pytest.param(0.90, False, True, id="below-both"),
        pytest.param(0.92, True, True, id="between-with-a-draft"),
        pytest.param(0.92, False, False, id="near-miss-between-without-one"),
        pytest.param(0.95, True, False, id="near-miss-above-both"),
    ],
)
def test_a_draft_moves_the_floor_of_the_fraction(fraction, speculates, refused):
    seen = Measured(free_before_load_gib=138.1, free_after_load_gib=12.25, draft_weights_gib=3.07)
    situation = replace(
        situation_of("deepseek-v4-pro", speculates=speculates, mem_fraction_static=fraction), measured=seen
    )
    expected = [("capacity.memory-fraction", Verdict.REFUSE, "mem_fraction_static")] if refused else []
    assert said(capacity.memory_fraction, situation) == expected


def test_both_floors_are_said():
    seen = Measured(free_before_load_gib=138.1, free_after_load_gib=12.25, draft_weights_gib=3.07)
    found = sentence(
        capacity.memory_fraction, replace(situation_of("deepseek-v4-pro", mem_fraction_static=0.88), measured=seen)
    )
    assert "0.9335" in found
    assert "without speculation 0.9113" in found
    assert "Write more than 0.934" in found


def test_counted_weights_make_a_floor_too():
    assert said(capacity.memory_fraction, situation_of(mem_fraction_static=0.5))
    assert not said(capacity.memory_fraction, situation_of(mem_fraction_static=0.7))


@pytest.mark.parametrize(
    ("situation", "refused"),
    [
        pytest.param(situation_of(context_length=163_840), False, id="near-miss-v3"),
        pytest.param(
            situation_of("glm-5.2", repo="zai-org/GLM-5.2-FP8", context_length=1_048_576), True, id="a-million"
        ),
        pytest.param(
            situation_of("glm-5.2", BLACKWELL, repo="nvidia/GLM-5.2-NVFP4", context_length=1_048_576),
            False,
            id="near-miss-a-million-on-b200",
        ),
        pytest.param(
            situation_of(context_length=163_840, max_total_tokens=65_536), False, id="near-miss-it-is-the-written-pool"
        ),
    ],
)
def test_the_longest_request_must_fit_alone(situation, refused):
    expected = [("capacity.context", Verdict.REFUSE, "context_length")] if refused else []
    assert said(capacity.context, situation) == expected


@pytest.mark.parametrize(
    ("situation", "refused"),
    [
        pytest.param(situation_of(context_length=163_840, max_total_tokens=1_000), True, id="it-is-the-smaller"),
        pytest.param(situation_of(context_length=32_768, max_total_tokens=32_775), True, id="but-for-the-reserve"),
        pytest.param(situation_of(context_length=32_768, max_total_tokens=32_776), False, id="near-miss-just-enough"),
        pytest.param(
            replace(situation_of(context_length=163_840, max_total_tokens=1_000), site=Site()),
            True,
            id="on-a-gpu-nobody-knows",
        ),
        pytest.param(
            situation_of("glm-5.2", repo="zai-org/GLM-5.2-FP8", context_length=1_048_576, max_total_tokens=1_000_000),
            False,
            id="near-miss-memory-leaves-less",
        ),
        pytest.param(
            situation_of("glm-5.2", repo="zai-org/GLM-5.2-FP8", context_length=1_048_576, max_total_tokens=100_000),
            True,
            id="memory-leaves-too-little-and-the-launch-takes-less-of-it",
        ),
    ],
)
def test_a_written_pool_that_is_smaller_than_one_request_is_named_and_said_once(situation, refused):
    found = [one for rule in capacity.RULES for one in rule(situation) if one.verdict is Verdict.REFUSE]
    pool = [("capacity.pool", "max_total_tokens")] if refused else []
    assert [(one.rule, one.where) for one in found if one.rule == "capacity.pool"] == pool
    assert len(found) == (0 if situation.arguments.max_total_tokens == 32_776 else 1)


# gemma-4-12b on one H200: of 4.1 million tokens that fit, 4,145 of the window's pool.
@pytest.mark.parametrize(
    ("more", "warned"),
    [
        pytest.param({"swa_full_tokens_ratio": 0.001}, True, id="a-small-share"),
        pytest.param({"swa_full_tokens_ratio": 0.001, "max_running_requests": 3}, False, id="near-miss-no-more-run"),
        pytest.param({"swa_full_tokens_ratio": 0.1}, False, id="near-miss-enough-for-the-cap"),
        pytest.param({}, False, id="near-miss-the-engines-share"),
        pytest.param({"swa_full_tokens_ratio": 0.001, "disable_radix_cache": True}, False, id="near-miss-by-requests"),
    ],
)
def test_a_windows_pool_that_ends_before_the_cap_is_warned_of(more, warned):
    situation = situation_of("gemma-4-12b", context_length=4096, **more)
    expected = [("capacity.window-pool", Verdict.WARN, "swa_full_tokens_ratio")] if warned else []
    assert said(capacity.window_pool, situation) == expected
    assert not warned or "4 run at once on each rank, and 48 are admitted" in sentence(capacity.window_pool, situation)


def with_draft(repo, **more):
    """Gemma 4 31B on four RTX 5090, with a draft model of its own."""
    situation = situation_of("gemma-4-31b", "rtx_5090", tp_size=4, speculative_algorithm="STANDALONE", **more)
    return replace(situation, draft=known_model(repo, TABLES))


def test_an_assistant_is_counted_by_the_layout_of_its_target():
    situation = situation_of("gemma-4-31b", tp_size=4)
    line, counted = draw_up(situation).line(DRAFT), assistant_weights(situation.draft, Layout(tp=4))
    assert (line.bytes, line.most) == (counted.bytes, None)


def test_a_draft_whose_cut_is_known_is_counted_by_it():
    """Whole on each rank it was refused: 14.56 GiB of weights and 14.79 of the draft, of 31.8."""
    situation = with_draft("google/gemma-4-E4B-it")
    assert not [one for rule in capacity.RULES for one in rule(situation) if one.verdict is Verdict.REFUSE]
    line = draw_up(situation).line(DRAFT)
    assert line.bytes < 15_882_201_664 / 3
    assert line.most is None


@pytest.mark.parametrize(
    ("gib", "verdict"),
    [
        pytest.param(80, Verdict.REFUSE, id="even-an-equal-share-is-too-much"),
        pytest.param(24, Verdict.WARN, id="the-whole-is-too-much"),
        pytest.param(2, None, id="near-miss-the-whole-fits"),
    ],
)
def test_a_draft_whose_cut_nobody_knows_is_refused_by_its_share_and_warned_of_by_the_whole(gib, verdict):
    situation = with_draft("google/gemma-4-E4B-it")
    stranger = replace(situation, draft=replace(situation.draft, shape=None, weight_bytes=gib * 2**30))
    rules = (capacity.memory, capacity.memory_fraction, capacity.context, capacity.draft_whole)
    found = [one for rule in rules for one in rule(stranger) if one.verdict is not Verdict.NOTE]
    assert [one.verdict for one in found] == ([verdict] if verdict else [])
    assert all("nobody knows how the draft is cut" in one.why for one in found if one.verdict is Verdict.WARN)


def test_the_context_that_is_proposed_fits():
    situation = situation_of("glm-5.2", repo="zai-org/GLM-5.2-FP8", context_length=1_048_576)
    most = int(sentence(capacity.context, situation).partition("at most ")[2].partition(",")[0])
    at_most = situation_of("glm-5.2", repo="zai-org/GLM-5.2-FP8", context_length=most)
    beyond = situation_of("glm-5.2", repo="zai-org/GLM-5.2-FP8", context_length=most + 1)
    assert not said(capacity.context, at_most)
    assert said(capacity.context, beyond)


# C010
@pytest.mark.parametrize(
    ("more", "warned"),
    [
        pytest.param({"mem_fraction_static": 0.95}, True, id="a-high-fraction"),
        pytest.param({"mem_fraction_static": 0.95, "cuda_graph_max_bs_decode": 1}, True, id="fewer-graphs-do-not-help"),
        pytest.param({"mem_fraction_static": 0.88}, False, id="near-miss-room-enough"),
        pytest.param({}, False, id="near-miss-the-engine-chose-it"),
    ],
)
def test_what_is_left_outside_against_what_is_needed(more, warned):
    expected = [("capacity.reserve", Verdict.WARN, "mem_fraction_static")] if warned else []
    assert said(capacity.reserve, situation_of(**more)) == expected


def test_the_fraction_that_is_proposed_leaves_enough():
    found = sentence(capacity.reserve, situation_of(mem_fraction_static=0.95))
    proposed = float(found.partition("Write at most ")[2].partition(" ")[0].rstrip("."))
    assert not said(capacity.reserve, situation_of(mem_fraction_static=proposed))
    assert said(capacity.reserve, situation_of(mem_fraction_static=proposed + 0.001))


# C014
@pytest.mark.parametrize(
    ("caps", "verdict", "becomes"),
    [
        pytest.param(Caps(draft_weights_gib=1.0), Verdict.CORRECT, Becomes.AUTOREGRESSIVE, id="weights"),
        pytest.param(Caps(draft_kv_gib=0.1), Verdict.CORRECT, Becomes.AUTOREGRESSIVE, id="kv"),
        pytest.param(
            Caps(draft_weights_gib=1.0, may_run_autoregressive=False), Verdict.REFUSE, Becomes.REFUSED, id="refused"
        ),
        pytest.param(Caps(temporary_kv_gib=0.02), Verdict.CORRECT, Becomes.NARROWER, id="slots"),
        pytest.param(
            Caps(draft_weights_gib=4, draft_kv_gib=2, temporary_kv_gib=1), None, Becomes.AS_ASKED, id="near-miss"
        ),
    ],
)
def test_caps(caps, verdict, becomes):
    situation = replace(situation_of(), caps=caps)
    assert [finding.verdict for finding in capacity.draft_cap(situation)] == ([verdict] if verdict else [])
    assert capacity.judged(situation).becomes is becomes


def test_a_cap_that_cannot_be_compared_is_not_passed_in_silence():
    situation = replace(situation_of(), caps=Caps(draft_weights_gib=0.001))
    stranger = replace(situation, target=replace(situation.target, shape=None))
    assert said(capacity.draft_cap, stranger) == [("capacity.draft-cap", Verdict.WARN, "limits.draft_weights_gib")]
    assert "cannot be compared" in sentence(capacity.draft_cap, stranger)


def test_an_assistants_kv_is_charged_left_empty_and_exceeds_no_cap():
    situation = replace(situation_of("gemma-4-e4b"), caps=Caps(draft_kv_gib=0.001))
    ledger = draw_up(situation)
    assert ledger.taken(EMPTY_KV) > 10 * 2**30
    assert ledger.line(DRAFT_KV) is None
    assert not said(capacity.draft_cap, situation)
    mtp = replace(situation_of(), caps=Caps(draft_kv_gib=0.001))
    assert said(capacity.draft_cap, mtp)


def test_fewer_steps_are_the_most_that_stay_below_the_cap():
    situation = replace(situation_of(), caps=Caps(temporary_kv_gib=0.02))
    outcome = capacity.judged(situation)
    assert f"Planned with num_steps {outcome.num_steps}" in sentence(capacity.draft_cap, situation)
    narrower = replace(
        situation,
        arguments=launch(
            TARGETS["deepseek-v3-0324"],
            HOPPER,
            speculates=True,
            speculative_num_steps=outcome.num_steps,
            speculative_num_draft_tokens=outcome.num_steps + 1,
        ).situation.arguments,
    )
    assert capacity.judged(narrower).becomes is Becomes.AS_ASKED


# C013
@pytest.mark.parametrize(
    ("fraction", "spare", "lowered"),
    [
        pytest.param(0.92, 2.1, 0.885, id="no-room"),
        pytest.param(None, 2.1, 0.885, id="left-as-it-was"),
        pytest.param(0.92, 3.3, None, id="near-miss-just-enough"),
        pytest.param(0.88, 2.1, None, id="near-miss-lowered-already"),
    ],
)
def test_a_fraction_tuned_without_a_draft_has_no_room_for_one(fraction, spare, lowered):
    seen = Measured(
        memory_gib=96,
        autoregressive_fraction=0.92,
        autoregressive_spare_gib=spare,
        draft_weights_gib=1.9,
        draft_graphs_gib=1.4,
    )
    situation = replace(situation_of(mem_fraction_static=fraction), measured=seen)
    found = [finding.sentence() for finding in capacity.draft_room(situation)]
    assert bool(found) is (lowered is not None)
    assert all(f"Planned with {lowered}" in one for one in found)


# C012
def test_families_of_graphs_are_listed_where_something_is_drafted():
    assert said(capacity.graph_lists, situation_of()) == [
        ("capacity.graph-families", Verdict.NOTE, "speculative_algorithm")
    ]
    assert not said(capacity.graph_lists, situation_of(speculates=False))
    assert not said(capacity.graph_lists, situation_of(disable_cuda_graph=True))
    on_a_cpu = situation_of()
    assert not said(capacity.graph_lists, replace(on_a_cpu, site=replace(on_a_cpu.site, gpu="cpu")))


def test_what_could_not_be_counted_is_said():
    situation = situation_of()
    unknown = replace(situation, target=replace(situation.target, weights=None))
    assert ("capacity.unknown", Verdict.NOTE, "target.weights") in said(capacity.unknown, unknown)
    assert not said(capacity.unknown, situation)
    (of_target,) = (f for f in capacity.unknown(unknown) if f.where == "target.weights")
    assert of_target.sentence().endswith(". What is left for KV is not known either. [capacity.unknown]")


@pytest.mark.parametrize("rule", capacity.RULES)
def test_a_launch_of_which_nothing_is_known_is_refused_by_none(rule):
    situation = situation_of()
    nothing = replace(
        situation,
        target=replace(situation.target, shape=None, weights=None, weight_bytes=None, architecture=None),
        site=replace(situation.site, gpu=None, facts=None),
    )
    assert not [finding for finding in rule(nothing) if finding.verdict in {Verdict.REFUSE, Verdict.CORRECT}]


def test_tables_hold_what_the_rules_ask_of_a_gpu():
    for word in (HOPPER, BLACKWELL):
        assert TABLES.gpus[word].memory_mib.v
