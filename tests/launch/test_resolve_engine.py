"""The engine's resolver under described GPUs: what it decides, what it refuses, and that nothing of it is a CPU's."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.decided import cpu_values, decided, findings
from spec_toolkit.launch.prepare import plan_and_patches
from spec_toolkit.launch.resolution import about_plan, conclude
from spec_toolkit.launch.resolve import resolve_many
from spec_toolkit.launch.resolving.cache import Cache
from spec_toolkit.launch.resolving.records import Outcome, Stage
from tests.launch.engine_says import engine_answers, engine_is_asked, to_be_asked

pytestmark = pytest.mark.engine

TABLES = load_tables()
RECIPES = Path(__file__).parents[2] / "recipes"
INQUIRIES = {
    path.stem: about_plan(plan, TABLES, patches)
    for path in sorted(RECIPES.rglob("*.yaml"))
    for _, plan, patches in [plan_and_patches(path)]
}
for inquiry in INQUIRIES.values():
    to_be_asked(*inquiry.questions)

MTP = Arguments(
    tp_size=8,
    speculative_algorithm="EAGLE",
    speculative_num_steps=3,
    speculative_eagle_topk=1,
    speculative_num_draft_tokens=4,
)
PLAIN = Arguments(tp_size=8)
REFUSED = {
    "a pipeline that speculates": (replace(MTP, pp_size=2), Stage.CHECK, "only supported on prefill nodes"),
    "two nodes that divide no ranks": (replace(PLAIN, nnodes=3), Stage.CHECK, "divisible by number of nodes"),
    "a name with a colon": (replace(PLAIN, served_model_name="a:b"), Stage.CHECK, "colon"),
    "ranks of data that are no divisor": (
        replace(PLAIN, dp_size=3, enable_dp_attention=True),
        Stage.RESOLVE,
        "",
    ),
    "a tree where a chain is all that is verified": (
        replace(MTP, speculative_use_rejection_sampling=True, speculative_eagle_topk=2, speculative_num_draft_tokens=6),
        Stage.RESOLVE,
        "",
    ),
}
REFUSED_LAUNCHES = {name: (engine_is_asked(asked), stage, says) for name, (asked, stage, says) in REFUSED.items()}
NEAR_MISSES = {
    "a pipeline that does not speculate": replace(PLAIN, pp_size=2),
    "two nodes": replace(PLAIN, tp_size=16, nnodes=2),
    "a name": replace(PLAIN, served_model_name="a-b"),
    "ranks of data": replace(PLAIN, dp_size=4, enable_dp_attention=True),
    "a chain": replace(MTP, speculative_use_rejection_sampling=True),
}
ACCEPTED_LAUNCHES = {name: engine_is_asked(asked) for name, asked in NEAR_MISSES.items()}
# By model: attention backend, page size and KV dtype on an H200 and on a B200 where a launch says nothing of them.
DEFAULTS = {
    "deepseek-ai/DeepSeek-V3-0324": (("fa3", 1, "auto"), ("trtllm_mla", 64, "auto")),
    "deepseek-ai/DeepSeek-V3.2": (("dsa", 64, "bfloat16"), ("dsa", 64, "fp8_e4m3")),
    "deepseek-ai/DeepSeek-V4-Flash": (("dsv4", 256, "fp8_e4m3"), ("dsv4", 256, "fp8_e4m3")),
    "zai-org/GLM-5.2-FP8": (("dsa", 64, "bfloat16"), ("dsa", 64, "fp8_e4m3")),
    "google/gemma-4-31B-it": (("triton", 1, "auto"), ("trtllm_mha", 64, "auto")),
}
DEFAULT_LAUNCHES = {
    (model, gpu): engine_is_asked(replace(PLAIN, model_path=model), gpu=gpu)
    for model in DEFAULTS
    for gpu in ("h200", "b200")
}
ON_A_CPU = engine_is_asked(replace(PLAIN, device="cpu"))
OTHER_THAN_ASKED = engine_is_asked(replace(PLAIN, dp_size=8, enable_dp_attention=True, chunked_prefill_size=8192))
UNKNOWN_FLAG = to_be_asked(replace(engine_is_asked(PLAIN), argv=("--model-path", "x", "--no-such-flag", "3")))[0]


@pytest.mark.parametrize("name", INQUIRIES)
def test_every_recipe_resolves_to_what_it_asks(name: str) -> None:
    inquiry = INQUIRIES[name]
    found = conclude(inquiry, [engine_answers(question) for question in inquiry.questions])
    assert found.resolved, found.findings
    assert found.decided is not None
    assert [f.sentence() for f in found.findings if f.verdict in (Verdict.REFUSE, Verdict.WARN)] == []


@pytest.mark.parametrize("launch", REFUSED_LAUNCHES.values(), ids=REFUSED_LAUNCHES)
def test_it_refuses_in_its_own_words(launch) -> None:
    question, stage, says = launch
    answer = engine_answers(question)
    assert (answer.outcome, answer.stage) == (Outcome.REFUSED, stage), answer.sentence
    assert says in answer.sentence
    (finding,) = findings(question, PLAIN, answer)
    assert finding.rule == "resolve.refused"
    assert answer.sentence.split("\n")[0][:60] in finding.found


@pytest.mark.parametrize("question", ACCEPTED_LAUNCHES.values(), ids=ACCEPTED_LAUNCHES)
def test_it_takes_what_is_nearly_that(question) -> None:
    answer = engine_answers(question)
    assert answer.outcome is Outcome.RESOLVED, answer.sentence


@pytest.mark.parametrize("model", DEFAULTS)
def test_what_it_chooses_depends_on_the_gpu(model: str) -> None:
    chosen = []
    for gpu in ("h200", "b200"):
        said = decided(engine_answers(DEFAULT_LAUNCHES[model, gpu]))
        assert said is not None
        chosen.append((said.decode_attention, said.page_tokens, said.kv_cache_dtype))
    assert tuple(chosen) == DEFAULTS[model]


def test_nothing_of_an_answer_for_a_gpu_is_a_cpus() -> None:
    for question in DEFAULT_LAUNCHES.values():
        answer = engine_answers(question)
        assert cpu_values(question, answer) is None
        said = decided(answer)
        assert said is not None
        assert said.decode_graphs
        assert said.sampling == "flashinfer"


def test_an_answer_with_cpu_values_is_an_error() -> None:
    (finding,) = findings(ON_A_CPU, PLAIN, engine_answers(ON_A_CPU))
    assert finding.rule == "resolve.cpu-values"


def test_a_chunk_is_divided_among_ranks_that_hold_requests_of_their_own() -> None:
    asked = Arguments(chunked_prefill_size=8192, dp_size=8, enable_dp_attention=True)
    (finding,) = findings(OTHER_THAN_ASKED, asked, engine_answers(OTHER_THAN_ASKED))
    assert finding.rule == "resolve.per-rank"
    assert "1024 on each of 8" in finding.found


def test_a_flag_it_does_not_know_is_a_refusal() -> None:
    answer = engine_answers(UNKNOWN_FLAG)
    assert (answer.outcome, answer.stage) == (Outcome.REFUSED, Stage.READ)
    assert "--no-such-flag" in answer.sentence


def test_an_answer_does_not_depend_on_what_was_asked_before_it(tmp_path: Path) -> None:
    questions = list(DEFAULT_LAUNCHES.values())
    first = [engine_answers(question) for question in questions]
    again = resolve_many(questions[::-1], cache=Cache(tmp_path))[::-1]

    def bare(answers):
        return [replace(answer, seconds=None, imported_seconds=None) for answer in answers]

    assert bare(first) == bare(again)
