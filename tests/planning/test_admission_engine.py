"""What admission says the engine takes where a launch says nothing, against its own resolver: one process, a fork a launch."""

from typing import Any

import pytest
from msgspec.structs import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.read_model import known_model
from spec_toolkit.launch.decided import decided
from spec_toolkit.planning.captured import chunk_tokens, has_decode_graphs, offered_sizes, prefill_sizes
from spec_toolkit.planning.chosen import cap_of
from spec_toolkit.planning.memory.rounds import widths_of
from tests.launch.engine_says import engine_answers, engine_is_asked
from tests.planning.launches import launch

pytestmark = pytest.mark.engine

MODELS = {
    "v3": "deepseek-ai/DeepSeek-V3-0324",
    "v32": "deepseek-ai/DeepSeek-V3.2",
    "v4": "deepseek-ai/DeepSeek-V4-Flash",
    "glm52": "zai-org/GLM-5.2-FP8",
    "gemma": "google/gemma-4-E4B-it",
}
CHAIN = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1}
DP8 = {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}
TP8 = {"tp_size": 8}
DEEPEP = {**DP8, "moe_a2a_backend": "deepep"}
ROWS: list[tuple[str, str, str, dict[str, Any]]] = [
    *((f"{name}-{gpu}-alone", name, gpu, TP8) for name in MODELS for gpu in ("h200", "b200") if name != "gemma"),
    *((f"{name}-{gpu}-mtp", name, gpu, TP8 | CHAIN) for name in MODELS for gpu in ("h200", "b200") if name != "gemma"),
    ("gemma-alone", "gemma", "h200", {"tp_size": 1}),
    ("few-ranks", "v3", "h200", {"tp_size": 2, **CHAIN}),
    ("less-memory", "v3", "h100", {**TP8, **CHAIN}),
    ("a-cap", "v3", "h200", {**TP8, **CHAIN, "max_running_requests": 100}),
    ("a-cap-beyond-the-ladder", "v3", "h200", {**TP8, **CHAIN, "max_running_requests": 700}),
    ("a-largest", "v3", "h200", {**TP8, **CHAIN, "cuda_graph_max_bs_decode": 100, "max_running_requests": 96}),
    ("a-list", "v3", "h200", {**TP8, **CHAIN, "cuda_graph_bs_decode": (1, 8, 16), "max_running_requests": 28}),
    ("attention-ranks", "v3", "h200", {**DP8, **CHAIN, "max_running_requests": 2048}),
    ("attention-ranks-glm", "glm52", "h200", {**DP8, **CHAIN, "max_running_requests": 128}),
    ("groups-of-four", "v3", "h200", {**DP8, "dp_size": 2, "max_running_requests": 66, **CHAIN}),
    ("experts-exchange", "v3", "h200", {**DEEPEP, "max_running_requests": 256, **CHAIN}),
    ("experts-exchange-one-group", "v3", "h200", {**TP8, "moe_a2a_backend": "deepep", "max_running_requests": 256}),
    ("experts-exchange-small-chunk", "v3", "h200", {**TP8, "moe_a2a_backend": "deepep", "chunked_prefill_size": 1024}),
    ("experts-exchange-large-chunk", "v3", "h200", {**DEEPEP, "chunked_prefill_size": 32_768}),
    ("a-chunk", "v3", "b200", {**TP8, "chunked_prefill_size": 4096, "attention_backend": "flashinfer"}),
    ("a-chunk-of-ranks", "v3", "h200", {**DP8, "chunked_prefill_size": 16_384}),
    ("a-pool", "v3", "h200", {**TP8, "max_total_tokens": 1000}),
    ("a-table", "v3", "h200", {**TP8, "speculative_algorithm": "NGRAM", "attention_backend": "flashinfer"}),
    (
        "a-table-of-64",
        "v3",
        "h200",
        {
            **TP8,
            "speculative_algorithm": "NGRAM",
            "speculative_num_draft_tokens": 64,
            "attention_backend": "flashinfer",
        },
    ),
    ("no-graphs", "v3", "h200", {**TP8, "disable_cuda_graph": True}),
    ("no-prefill-graphs", "v3", "h200", {**TP8, "cuda_graph_backend_prefill": "disabled"}),
    ("v4-asked-for-prefill-graphs", "v4", "h200", {**TP8, "cuda_graph_backend_prefill": "breakable"}),
    ("who-only-decodes", "v3", "h200", {**TP8, **CHAIN, "disaggregation_mode": "decode"}),
    ("who-only-prefills", "v3", "h200", {**TP8, **CHAIN, "disaggregation_mode": "prefill"}),
]
QUESTIONS = {
    name: engine_is_asked(Arguments(model_path=MODELS[model], **arguments), gpu=gpu)
    for name, model, gpu, arguments in ROWS
}


@pytest.mark.parametrize(("name", "model", "gpu", "arguments"), ROWS, ids=[row[0] for row in ROWS])
def test_the_engine_takes_what_admission_says(name: str, model: str, gpu: str, arguments: dict[str, Any]) -> None:
    situation = replace(launch(gpu=gpu, **arguments), target=known_model(MODELS[model], load_tables()))
    answer = engine_answers(QUESTIONS[name])
    theirs = decided(answer)
    assert theirs is not None, answer.sentence
    ours = {
        "cap": cap_of(situation),
        "width": max(widths_of(situation)) if situation.arguments.speculates else None,
        "decode graphs": (offered_sizes(situation) or ()) if has_decode_graphs(situation) else (),
        "chunk": chunk_tokens(situation),
        "prefill graphs": prefill_sizes(situation),
    }
    assert ours == {
        "cap": theirs.max_running_requests,
        "width": theirs.num_draft_tokens,
        "decode graphs": theirs.decode_graphs,
        "chunk": theirs.chunked_prefill_tokens,
        "prefill graphs": theirs.prefill_graphs,
    }
