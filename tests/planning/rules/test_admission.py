from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.planning.rules import admission as rules
from tests.planning.launches import launch

MTP = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1}
DP8 = {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}
DEEPEP = {**DP8, "moe_a2a_backend": "deepep", "deepep_mode": "low_latency"}
VARIABLE = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"


def of(rule: Any, **arguments: Any) -> list[Finding]:
    return list(rule(launch(**arguments)))


# C001
@pytest.mark.parametrize(
    ("arguments", "verdict", "says"),
    [
        pytest.param(
            {"peak": 96, **MTP}, Verdict.CORRECT, ("admits 48", "96 are to run", "end at 96"), id="wanted-more"
        ),
        pytest.param({**MTP}, Verdict.NOTE, ("admits 48",), id="nobody-says-how-many"),
        pytest.param({"peak": 48, **MTP}, None, (), id="near-miss-as-many-as-it-admits"),
        pytest.param({"peak": 96, "max_running_requests": 96, **MTP}, None, (), id="near-miss-written"),
        pytest.param({"peak": 96, "architecture": "DeepseekV4ForCausalLM", **MTP}, None, (), id="near-miss-v4"),
        pytest.param(
            {"peak": 300, "architecture": "DeepseekV4ForCausalLM"}, Verdict.CORRECT, ("256",), id="v4-has-256"
        ),
        pytest.param({"peak": 96}, None, (), id="near-miss-no-draft"),
        pytest.param({"peak": 400, **DP8, **MTP}, Verdict.CORRECT, ("400", "end at 50"), id="graphs-are-of-a-rank"),
    ],
)
def test_a_cap_nobody_wrote_is_the_engines(arguments: dict[str, Any], verdict: Any, says: tuple[str, ...]) -> None:
    found = of(rules.request_cap, **arguments)
    assert [(f.rule, f.verdict) for f in found] == ([("capacity.request-cap", verdict)] if verdict else [])
    assert all(word in f.sentence() for f in found for word in says)


# C006
@pytest.mark.parametrize(
    ("peak", "cap", "layout", "says"),
    [
        pytest.param(8192, 1536, DP8, ("8,192", "1,536", "192 on each of 8 ranks"), id="a-label-larger-than-the-cap"),
        pytest.param(97, 96, {}, ("97", "96"), id="one-more"),
        pytest.param(96, 96, {}, (), id="near-miss-as-many"),
        pytest.param(100, 100, DP8, ("admits 96",), id="what-the-division-leaves-over"),
        pytest.param(None, 96, {}, (), id="near-miss-nobody-says"),
    ],
)
def test_more_clients_than_are_admitted_wait(peak: Any, cap: int, layout: Any, says: tuple[str, ...]) -> None:
    found = of(rules.concurrency, peak=peak, max_running_requests=cap, **layout)
    assert [(f.rule, f.verdict) for f in found] == ([("capacity.concurrency", Verdict.WARN)] if says else [])
    assert all(word in f.sentence() for f in found for word in says)


# C005
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(
            {"tp_size": 16, "dp_size": 16, "enable_dp_attention": True, "max_running_requests": 2048, **MTP},
            ("2,048 for all 16", "128 on each", "graphs up to 128", "512 tokens"),
            id="sixteen-share",
        ),
        pytest.param({"max_running_requests": 100, **DP8}, ("12 on each", "4 of it never run"), id="left-over"),
        pytest.param({"max_running_requests": 2048, "tp_size": 16}, (), id="near-miss-one-group"),
        pytest.param({"max_running_requests": 2048, "dp_size": 8}, (), id="near-miss-copies"),
    ],
)
def test_a_rank_admits_its_share(arguments: dict[str, Any], says: tuple[str, ...]) -> None:
    found = of(rules.per_rank_cap, **arguments)
    assert [(f.rule, f.verdict) for f in found] == ([("capacity.per-rank-cap", Verdict.NOTE)] if says else [])
    assert all(word in f.sentence() for f in found for word in says)


LIST = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)


# C003, C007
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(
            {"max_running_requests": 28, "cuda_graph_bs_decode": LIST},
            ("cuda_graph_bs_decode: ends at 16", "28 requests", "batches of 17 to 28", "Go on with 24, 28."),
            id="C003-the-cap-was-raised-alone",
        ),
        pytest.param(
            {"max_running_requests": 4096, "cuda_graph_bs_decode": LIST},
            (
                "Go on with 24, 32,",
                "… 4,096: ",
                " more graphs, each captured at the start",
                "or lower max_running_requests.",
            ),
            id="far-beyond-a-dozen-and-the-count",
        ),
        pytest.param(
            {"max_running_requests": 28, "cuda_graph_bs_decode": (8, 16)}, ("Write 8, 16, 24, 28.",), id="a-short-list"
        ),
        pytest.param({"max_running_requests": 16, "cuda_graph_bs_decode": LIST}, (), id="near-miss-they-agree"),
        pytest.param(
            {"max_running_requests": 100, "cuda_graph_bs_decode": (64, 96), **MTP},
            ("ends at 96", "97 to 100"),
            id="C007-a-list-without-its-maximum",
        ),
        pytest.param({"max_running_requests": 100, "cuda_graph_max_bs_decode": 100, **MTP}, (), id="near-miss-C007"),
        pytest.param(
            {"max_running_requests": 100, "cuda_graph_max_bs_decode": 99},
            ("cuda_graph_max_bs_decode: is 99", "a batch of 100 runs", "Write 100."),
            id="one-below",
        ),
        pytest.param(
            {"max_running_requests": 600, "tp_size": 8},
            ("is left out; graphs then end at 512", "513 to 600"),
            id="by-itself",
        ),
        pytest.param({"max_running_requests": 600, "gpu": None}, (), id="near-miss-on-a-gpu-nobody-named"),
        pytest.param(
            {"max_running_requests": 28, "cuda_graph_bs_decode": LIST, "disable_cuda_graph": True},
            (),
            id="near-miss-nobody-wants-graphs",
        ),
        pytest.param(
            {"tp_size": 8, "attn_dp_size": 2, "max_running_requests": 66, "cuda_graph_bs_decode": (8, 33), **MTP},
            ("ends at 33", "graphs reach 8", "divide among 4", "Write 8, 33, 36."),
            id="a-cap-that-four-ranks-cannot-share",
        ),
        pytest.param(
            {"tp_size": 8, "attn_dp_size": 2, "max_running_requests": 66, "cuda_graph_bs_decode": (8, 36), **MTP},
            (),
            id="near-miss-rounded-up",
        ),
    ],
)
def test_graphs_reach_the_cap(arguments: dict[str, Any], says: tuple[str, ...]) -> None:
    found = of(rules.cover, **arguments)
    assert [(f.rule, f.verdict) for f in found] == ([("graphs.cover", Verdict.WARN)] if says else [])
    assert all(word in f.sentence() for f in found for word in says)
    refused = of(rules.cover, require_graphs=True, **arguments)
    assert [f.verdict for f in refused] == ([Verdict.REFUSE] if says else [])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(
            {"max_running_requests": 2048, "cuda_graph_max_bs_decode": 2048, **DP8},
            ("goes to 2,048", "a rank runs 256 requests", "end at 256"),
            id="C005-a-list-for-all-ranks-together",
        ),
        pytest.param(
            {"max_running_requests": 48, "cuda_graph_bs_decode": (8, 48, 64)},
            ("cuda_graph_bs_decode", "goes to 64", "48 requests run at most"),
            id="a-list-beyond-the-cap",
        ),
        pytest.param({"max_running_requests": 64, "cuda_graph_bs_decode": (8, 64)}, (), id="near-miss-up-to-it"),
        pytest.param(
            {"tp_size": 8, "attn_dp_size": 2, "max_running_requests": 66, "cuda_graph_bs_decode": (8, 36)},
            (),
            id="near-miss-rounded-up",
        ),
        pytest.param({"max_running_requests": 64}, (), id="near-miss-left-out"),
    ],
)
def test_graphs_nobody_can_reach_are_left_out(arguments: dict[str, Any], says: tuple[str, ...]) -> None:
    found = of(rules.beyond_cap, **arguments)
    assert [(f.rule, f.verdict) for f in found] == ([("graphs.beyond-cap", Verdict.CORRECT)] if says else [])
    assert all(word in f.sentence() for f in found for word in says)


# C105
@pytest.mark.parametrize(
    ("arguments", "environment", "found"),
    [
        pytest.param({"max_running_requests": 512, **MTP}, {}, {"capacity.dispatch": "Set it to 256."}, id="C105"),
        pytest.param(
            {"max_running_requests": 512, **MTP},
            {VARIABLE: "128"},
            {"capacity.dispatch": "Set it to 256."},
            id="C105-set",
        ),
        pytest.param({"max_running_requests": 512, **MTP}, {VARIABLE: "256"}, {}, id="near-miss-set-to-256"),
        pytest.param({"max_running_requests": 512}, {}, {}, id="near-miss-no-draft"),
        pytest.param({"max_running_requests": 2048, **MTP}, {VARIABLE: "1024"}, {}, id="near-miss-256-on-each-rank"),
        pytest.param(
            {"max_running_requests": 2056, **MTP},
            {VARIABLE: "1024"},
            {"capacity.dispatch": "lower max_running_requests to 2,048."},
            id="257-on-each-rank",
        ),
        pytest.param(
            {"max_running_requests": 2056, **MTP},
            {VARIABLE: "2048"},
            {"capacity.dispatch-ceiling": "Write at most 1024.", "capacity.dispatch": "to 2,048."},
            id="257-whatever-is-set",
        ),
        pytest.param({"max_running_requests": 512, "deepep_mode": "normal", **MTP}, {}, {}, id="near-miss-normal-mode"),
        pytest.param({"max_running_requests": 256, "attn_dp_size": 2, **MTP}, {}, {}, id="near-miss-four-ranks-share"),
    ],
)
def test_a_verify_pass_fits_the_experts_exchange(
    arguments: dict[str, Any], environment: dict[str, str], found: dict[str, str]
) -> None:
    findings = of(rules.dispatch_buffer, environment=environment, **DEEPEP | arguments)
    assert {f.rule for f in findings} == found.keys()
    assert all(f.verdict is Verdict.REFUSE and f.where == VARIABLE for f in findings)
    assert all(found[f.rule] in f.sentence() for f in findings)


@pytest.mark.parametrize(
    ("environment", "verdicts"),
    [
        pytest.param({VARIABLE: "256"}, [Verdict.CORRECT], id="set-by-the-launch"),
        pytest.param({}, [Verdict.REFUSE], id="never-fits"),
    ],
)
def test_a_launch_that_sets_its_own_variables_says_so(environment: dict[str, str], verdicts: list[Verdict]) -> None:
    """C105 of a recipe, which has no key for the variable."""
    largest = 512 if environment else 16_384
    situation = launch(environment=environment, **DEEPEP | MTP | {"max_running_requests": largest})
    found = list(rules.dispatch_buffer(replace(situation, sets_environment=True)))
    assert [f.verdict for f in found] == verdicts
    assert all("sends 256 from each rank" in f.sentence() for f in found if f.verdict is Verdict.CORRECT)


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        pytest.param(
            {"peak": 96, **MTP}, {"max_running_requests": 96, "cuda_graph_max_bs_decode": 96}, id="a-cap-nobody-wrote"
        ),
        pytest.param(
            {"peak": 100, **DP8, **MTP},
            {"max_running_requests": 104, "cuda_graph_max_bs_decode": 13},
            id="ranks-that-share-100-admit-104",
        ),
        pytest.param(
            {"peak": 60, "cuda_graph_bs_decode": (8, 48), **MTP},
            {"max_running_requests": 60, "cuda_graph_bs_decode": (8, 48, 52, 56, 60)},
            id="a-list-goes-on",
        ),
        pytest.param(
            {"peak": 60, "disable_cuda_graph": True, **MTP}, {"max_running_requests": 60}, id="nobody-wants-graphs"
        ),
        pytest.param(
            {"max_running_requests": 48, "cuda_graph_bs_decode": (8, 40, 64)},
            {"cuda_graph_bs_decode": (8, 40, 48)},
            id="a-list-beyond-the-cap",
        ),
        pytest.param(
            {"max_running_requests": 2048, "cuda_graph_max_bs_decode": 2048, **DP8},
            {"cuda_graph_max_bs_decode": 256},
            id="graphs-of-all-ranks-together",
        ),
    ],
)
def test_what_is_planned_instead_leaves_nothing_to_correct(arguments: dict[str, Any], changes: dict[str, Any]) -> None:
    found = [f for rule in rules.RULES for f in of(rule, **arguments) if f.verdict is Verdict.CORRECT]
    assert [dict(finding.changes) for finding in found] == [changes]
    after = [f for rule in rules.RULES for f in of(rule, **arguments | changes)]
    assert not [f for f in after if f.verdict in {Verdict.CORRECT, Verdict.WARN}]


def test_every_rule_is_silent_where_nothing_is_asked() -> None:
    assert not [f for rule in rules.RULES for f in rule(launch(architecture=None, gpu=None))]


NUMBERS = st.none() | st.integers(-2, 3) | st.sampled_from([8, 64, 1000, 10**9, 10**15])
COUNTS = (
    *("max_running_requests", "tp_size", "attn_dp_size", "attn_cp_size", "max_total_tokens"),
    *("cuda_graph_max_bs_decode", "chunked_prefill_size", "speculative_dspark_block_size"),
    *("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"),
)
ASKED = st.fixed_dictionaries(
    {
        "peak": NUMBERS,
        "context": NUMBERS,
        "environment": st.sampled_from([{}, {VARIABLE: "0"}, {VARIABLE: "-1"}, {VARIABLE: "10000"}, {VARIABLE: "x"}]),
        "cuda_graph_bs_decode": st.none() | st.lists(st.integers(-1, 10**9), max_size=3).map(tuple),
        "speculative_algorithm": st.sampled_from([None, "EAGLE", "NEXTN", "DSPARK", "NGRAM", "nonsense"]),
        "moe_a2a_backend": st.sampled_from([None, "none", "deepep", "pplx", "nonsense"]),
        **dict.fromkeys(COUNTS, NUMBERS),
    }
)


@given(ASKED)
@settings(deadline=None)
def test_no_launch_however_odd_is_more_than_the_rules_can_take(arguments: dict[str, Any]) -> None:
    assert all(finding.sentence() for rule in rules.RULES for finding in of(rule, **arguments))
