"""Where the engine takes something else than a launch asks, and what shows that it answered for a CPU."""

import pytest
from msgspec.structs import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Verdict
from spec_toolkit.launch.decided import _why, cpu_values, decided, differences, findings
from spec_toolkit.launch.resolving.records import Answer, Believed, DescribedGpu, Outcome, Question, SeenModel, Stage

H200 = DescribedGpu(name="NVIDIA H200", capability=(9, 0), memory_mib=143771, multiprocessors=132, count=8)
QUESTION = Question(argv=("--model-path", "a/b"), gpu=H200)
GRAPHS = {
    "decode": {"backend": "full", "max_bs": 4, "bs": [1, 2, 4]},
    "prefill": {"backend": "breakable", "max_bs": 8, "bs": [4, 8]},
}
TAKEN = {
    "device": "cuda",
    "tp_size": 8,
    "attn_dp_size": 1,
    "dp_size": 1,
    "ep_size": 1,
    "pp_size": 1,
    "nnodes": 1,
    "mem_fraction_static": 0.886,
    "max_running_requests": 48,
    "chunked_prefill_size": 8192,
    "kv_cache_dtype": "bfloat16",
    "speculative_algorithm": "EAGLE",
    "speculative_num_draft_tokens": 4,
    "speculative_adaptive": False,
    "disable_overlap_schedule": False,
    "cuda_graph_config": GRAPHS,
}
ANSWER = Answer(
    outcome=Outcome.RESOLVED,
    engine="0.5.23",
    stage=Stage.DONE,
    believed=Believed(cuda=True, sm=90, memory_mib=143771.0),
    arguments=TAKEN,
    prefill_attention="fa3",
    decode_attention="fa3",
    widest_round=4,
    model=SeenModel(architecture="DeepseekV3ForCausalLM", dtype="bfloat16", context_tokens=4096, quantization="fp8"),
)


@pytest.mark.parametrize(
    ("asked", "where", "says"),
    [
        pytest.param(Arguments(max_running_requests=64), "max_running_requests", "asked is 64", id="cap"),
        pytest.param(Arguments(kv_cache_dtype="auto"), "kv_cache_dtype", "takes bfloat16", id="kv-dtype"),
        pytest.param(Arguments(mem_fraction_static=0.9), "mem_fraction_static", "takes 0.886", id="memory"),
        pytest.param(Arguments(speculative_num_draft_tokens=5), "speculative_num_draft_tokens", "takes 4", id="width"),
        pytest.param(Arguments(speculative_adaptive=True), "speculative_adaptive", "takes False", id="adaptive"),
        pytest.param(Arguments(cuda_graph_bs_decode=(1, 2)), "cuda_graph_bs_decode", "takes 1, 2, 4", id="graphs"),
        pytest.param(Arguments(cuda_graph_max_bs_decode=8), "cuda_graph_max_bs_decode", "takes 4", id="largest-graph"),
        pytest.param(Arguments(dp_size=8, enable_dp_attention=True), "dp_size", "asked is 8", id="attention-dp"),
        pytest.param(Arguments(speculative_algorithm="EAGLE3"), "speculative_algorithm", "takes EAGLE", id="method"),
        pytest.param(Arguments(ep_size=8), "ep_size", "takes 1", id="experts"),
    ],
)
def test_what_is_not_taken_as_asked_is_told(asked: Arguments, where: str, says: str) -> None:
    (finding,) = [finding for finding in differences(asked, ANSWER) if finding.where == where]
    assert (finding.rule, finding.verdict) == ("resolve.differs", Verdict.WARN)
    assert says in finding.found


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(Arguments(), id="nothing"),
        pytest.param(Arguments(max_running_requests=48, tp_size=8, kv_cache_dtype="bfloat16"), id="as-taken"),
        pytest.param(Arguments(cuda_graph_bs_decode=(1, 2, 4)), id="graphs"),
        pytest.param(Arguments(speculative_algorithm="NEXTN"), id="another-name-of-it"),
        pytest.param(Arguments(speculative_algorithm="eagle"), id="another-case"),
        pytest.param(Arguments(model_path="x", port=1, served_model_name="y"), id="places"),
        pytest.param(Arguments(api_key="***"), id="secret"),
    ],
)
def test_what_is_taken_as_asked_is_not(asked: Arguments) -> None:
    assert list(differences(asked, ANSWER)) == []


def test_the_engines_own_warning_is_the_reason() -> None:
    said = ("Something else.", "speculative_adaptive disabled: attention DP is not supported.")
    (finding,) = differences(Arguments(speculative_adaptive=True), replace(ANSWER, said=said))
    assert finding.why == 'it says "speculative_adaptive disabled: attention DP is not supported"'


def test_a_chunk_that_is_shared_by_ranks_is_a_note() -> None:
    asked = Arguments(chunked_prefill_size=65536, dp_size=8, enable_dp_attention=True)
    taken = replace(ANSWER, arguments=TAKEN | {"attn_dp_size": 8, "enable_dp_attention": True})
    (finding,) = differences(asked, taken)
    assert (finding.rule, finding.verdict) == ("resolve.per-rank", Verdict.NOTE)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(replace(ANSWER, believed=None), "no CUDA", id="no-probe"),
        pytest.param(replace(ANSWER, believed=Believed(cuda=False, sm=0, memory_mib=None)), "no CUDA", id="no-cuda"),
        pytest.param(replace(ANSWER, believed=Believed(cuda=True, sm=100, memory_mib=143771)), "SM 100", id="another"),
        pytest.param(replace(ANSWER, believed=Believed(cuda=True, sm=90, memory_mib=80000)), "80000 MiB", id="memory"),
        pytest.param(replace(ANSWER, arguments=TAKEN | {"device": "cpu"}), "device cpu", id="device"),
        pytest.param(replace(ANSWER, decode_attention="intel_amx"), "intel_amx", id="attention"),
        pytest.param(replace(ANSWER, prefill_attention="torch_native"), "torch_native", id="attention-in-prefill"),
    ],
)
def test_an_answer_for_a_cpu_is_refused(answer: Answer, says: str) -> None:
    assert says in str(cpu_values(QUESTION, answer))
    (finding,) = findings(QUESTION, Arguments(), answer)
    assert (finding.rule, finding.verdict) == ("resolve.cpu-values", Verdict.REFUSE)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        pytest.param(QUESTION, ANSWER, id="a-gpus"),
        pytest.param(replace(QUESTION, gpu=None), replace(ANSWER, arguments=TAKEN | {"device": "cpu"}), id="cpu-asked"),
        pytest.param(
            replace(QUESTION, argv=("--attention-backend=torch_native",)),
            replace(ANSWER, prefill_attention="torch_native", decode_attention="torch_native"),
            id="backend-asked",
        ),
        pytest.param(QUESTION, Answer(outcome=Outcome.REFUSED, believed=None), id="refused"),
    ],
)
def test_near_misses_of_a_cpu_are_silent(question: Question, answer: Answer) -> None:
    assert cpu_values(question, answer) is None


def test_a_refusal_is_the_engines_sentence() -> None:
    answer = Answer(
        outcome=Outcome.REFUSED, engine="0.5.23", stage=Stage.CHECK, kind="AssertionError", sentence="no\n  pipeline"
    )
    (finding,) = findings(QUESTION, Arguments(), answer)
    assert finding.sentence() == (
        'engine: sglang 0.5.23 would not start: "no pipeline" (AssertionError, while it checks its arguments). '
        "Change what it names. [resolve.refused]"
    )
    assert decided(answer) is None


def test_a_fault_is_not_blamed_on_the_launch() -> None:
    answer = Answer(outcome=Outcome.UNANSWERED, kind="ImportError", sentence="no module x", at="a.py:1 in f")
    (finding,) = findings(QUESTION, Arguments(), answer)
    assert finding.rule == "resolve.unanswered"
    assert "a.py:1 in f: ImportError: no module x" in finding.found


def test_graphs_that_are_off_are_none() -> None:
    off = {phase: config | {"backend": "disabled"} for phase, config in GRAPHS.items()}
    taken = decided(replace(ANSWER, arguments=TAKEN | {"cuda_graph_config": off}))
    assert taken is not None
    assert (taken.decode_graphs, taken.prefill_graphs) == ((), ())
    on = decided(ANSWER)
    assert on is not None
    assert (on.decode_graphs, on.prefill_graphs, on.overlap, on.attention_dp) == ((1, 2, 4), (4, 8), True, 1)


@pytest.mark.parametrize(
    ("name", "line", "is_its_cause"),
    [
        ("kv_cache_dtype", "Setting KV cache dtype to fp8_e4m3 for this model.", True),
        ("dtype", "Setting KV cache dtype to fp8_e4m3 for this model.", False),
        ("tp_size", "attn_tp_size is set to 1.", False),
        ("tp_size", "tp_size is set to 8.", True),
        ("page_size", "The page size is set to 64.", True),
        ("attention_backend", "prefill_attention_backend is not supported.", False),
        ("max_running_requests", "Max running requests is reset to 48 for speculative decoding.", True),
    ],
)
def test_a_reason_is_the_engines_word_about_this_argument_and_no_other(
    name: str, line: str, is_its_cause: bool
) -> None:
    assert bool(_why(name, (line,))) is is_its_cause
