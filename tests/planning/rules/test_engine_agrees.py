"""What rules say the engine would refuse, and what it would choose, against its own resolver: one process, a fork a launch."""

import random
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.facts.model import Quantization
from spec_toolkit.launch.resolving.records import Answer, Outcome, Question
from spec_toolkit.planning.rules import (
    acceptance,
    algorithm,
    backend,
    draft_parallel,
    engine_shape,
    lora,
    parallel,
    positions,
    precision,
    prefill,
    resolved,
)
from spec_toolkit.planning.rules import (
    cache as caches,
)
from spec_toolkit.planning.situation import Situation
from tests.launch.engine_says import engine_answers, engine_is_asked
from tests.planning.field_cases import build

pytestmark = pytest.mark.engine

_MODULES = (
    *(acceptance, algorithm, backend, caches, draft_parallel, engine_shape),
    *(lora, parallel, positions, precision, prefill),
)
CLAIMED: frozenset[str] = frozenset().union(*(module.REFUSED_BY_ENGINE for module in _MODULES))
CHAIN = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1}
TREE = {**CHAIN, "speculative_eagle_topk": 2, "speculative_num_draft_tokens": 4}
NGRAM = {"speculative_algorithm": "NGRAM"}
DSPARK = {"speculative_algorithm": "DSPARK"}
FROZEN = {**CHAIN, "speculative_algorithm": "NEXTN", "speculative_num_draft_tokens": 4}
DP8 = {"tp_size": 8, "attn_dp_size": 8}


REPOSITORIES = {
    "v3": "deepseek-ai/DeepSeek-V3-0324",
    "v3-nvfp4": "nvidia/DeepSeek-V3-0324-NVFP4",
    "v32": "deepseek-ai/DeepSeek-V3.2",
    "v4": "deepseek-ai/DeepSeek-V4-Flash",
    "v4-dspark": "deepseek-ai/DeepSeek-V4-Flash-0731",
    "gemma": "google/gemma-4-E4B-it",
}
ASSISTANT = "google/gemma-4-E4B-it-assistant"
OTHER = "deepseek-ai/DeepSeek-V3.1"  # a draft of nobody in particular


@dataclass(frozen=True)
class Launch:
    """`rule`: the finding that says the engine does not take it; empty: it does."""

    name: str
    model: str
    asked: dict[str, Any]
    rule: str = ""
    gpu: str = "h200"
    env: dict[str, str] = field(default_factory=dict)

    @property
    def draft(self) -> str | None:
        promoted = (self.asked.get("speculative_algorithm") or "").upper() in {"NEXTN", "EAGLE"}
        return ASSISTANT if self.model == "gemma" and promoted else None

    @property
    def arguments(self) -> dict[str, Any]:
        draft = {"speculative_draft_model_path": self.draft} if self.draft else {}
        return {"model_path": REPOSITORIES[self.model], **draft, **self.asked}

    def situation(self) -> Situation:
        draft = {"draft": {"model": self.draft}} if self.draft else {}
        site = {"gpu": self.gpu, "count": 16, "nodes": self.asked.get("nnodes", 1)}
        models = {"target": {"model": REPOSITORIES[self.model]}, **draft}
        return build({"server_args": self.arguments, "env": self.env, **models, **site})

    def question(self) -> Question:
        asked = msgspec.convert(self.arguments, Arguments)
        return engine_is_asked(asked, gpu=self.gpu, count=16, environment=self.env)

    def objections(self) -> list[Finding]:
        """Ours, to what the engine is said to refuse; what the engine corrects by itself is none."""
        found = [f for module in _MODULES for rule in module.RULES for f in rule(self.situation())]
        return [f for f in found if f.verdict is Verdict.REFUSE or (f.verdict is Verdict.CORRECT and f.rule in CLAIMED)]


TABLE = (
    # C018
    Launch("v4-nextn", "v4", {**CHAIN, "speculative_algorithm": "NEXTN"}, "algorithm.v4"),
    Launch("v4-lower-case", "v4", {**CHAIN, "speculative_algorithm": "eagle"}, "algorithm.v4"),
    Launch("v4-eagle3", "v4", {**CHAIN, "speculative_algorithm": "EAGLE3"}, "algorithm.v4"),
    Launch("v4-without-topk", "v4", {"speculative_algorithm": "EAGLE", "speculative_num_steps": 2}, "shape.v4-topk"),
    Launch("v4-tree", "v4", TREE, "shape.v4-topk"),
    Launch(
        "v4-topk-alone", "v4", {"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 1}, "shape.steps-missing"
    ),
    Launch("v4-eagle", "v4", CHAIN),
    Launch("v4-dspark", "v4-dspark", DSPARK),
    Launch("v4-dspark-without-stages", "v4", DSPARK, "features.draft-model"),
    Launch("v3-nextn", "v3", {**CHAIN, "speculative_algorithm": "NEXTN"}),
    Launch("v3-lower-case", "v3", {**CHAIN, "speculative_algorithm": "eagle"}),
    Launch("v3-nothing-but-eagle", "v3", {"speculative_algorithm": "EAGLE"}),
    Launch("v3-unknown", "v3", {"speculative_algorithm": "EAGEL"}, "algorithm.unknown"),
    Launch(
        "v3-steps-alone", "v3", {"speculative_algorithm": "EAGLE", "speculative_num_steps": 2}, "shape.topk-missing"
    ),
    Launch(
        "v3-topk-alone", "v3", {"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 1}, "shape.steps-missing"
    ),
    Launch(
        "v3-width-alone",
        "v3",
        {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 4},
        "shape.steps-missing",
    ),
    Launch("v3-wide-chain", "v3", {**CHAIN, "speculative_num_draft_tokens": 16}),  # C015
    Launch("v3-width-three", "v3", {**CHAIN, "speculative_num_steps": 2, "speculative_num_draft_tokens": 3}),  # C017
    Launch("v3-five-steps", "v3", {**CHAIN, "speculative_num_steps": 5}),  # C022
    # C021
    Launch("adaptive", "v3", {**CHAIN, "speculative_adaptive": True}),
    Launch("adaptive-tree", "v3", {**TREE, "speculative_adaptive": True}),
    Launch(
        "adaptive-two-steps",
        "v3",
        {**CHAIN, "speculative_num_steps": 2, "speculative_adaptive": True},
        "algorithm.adaptive-steps",
    ),
    Launch(
        "adaptive-two-steps-under-dp", "v3", {**CHAIN, **DP8, "speculative_num_steps": 2, "speculative_adaptive": True}
    ),
    Launch("adaptive-assistant", "gemma", {**FROZEN, "speculative_adaptive": True}),
    # blocks
    Launch("dspark-width", "v4-dspark", {**DSPARK, "speculative_num_draft_tokens": 4}, "shape.block-width"),
    Launch("dspark-width-right", "v4-dspark", {**DSPARK, "speculative_num_draft_tokens": 6}),
    Launch(
        "dspark-block", "v4-dspark", {**DSPARK, "speculative_dspark_block_size": 3, "speculative_num_draft_tokens": 4}
    ),
    Launch("dspark-steps", "v4-dspark", {**DSPARK, "speculative_num_steps": 3}),
    Launch("dflash-alone", "v3", {"speculative_algorithm": "DFLASH"}, "features.draft-model"),
    Launch(
        "dflash-on-cpu",
        "v3",
        {"speculative_algorithm": "DFLASH", "speculative_draft_model_path": OTHER, "device": "cpu"},
        "algorithm.device",
    ),
    # acceptance
    Launch("rejection", "v3", {**CHAIN, "speculative_use_rejection_sampling": True}),
    Launch(
        "rejection-tree",
        "v3",
        {**TREE, "attention_backend": "fa3", "speculative_use_rejection_sampling": True},
        "features.rejection-needs-chain",
    ),
    Launch(
        "rejection-threshold",
        "v3",
        {**CHAIN, "speculative_use_rejection_sampling": True, "speculative_accept_threshold_acc": 0.9},
        "acceptance.thresholds-with-rejection",
    ),
    # C028
    Launch("gemma-fa3", "gemma", {"attention_backend": "fa3"}, "backend.gemma"),
    Launch("gemma-flashinfer", "gemma", {"attention_backend": "flashinfer"}, "backend.gemma"),
    Launch("gemma-half-fa3", "gemma", {"decode_attention_backend": "fa3"}, "backend.gemma"),
    Launch("gemma-triton", "gemma", {"attention_backend": "triton"}),
    Launch("gemma-trtllm", "gemma", {"attention_backend": "trtllm_mha"}, gpu="b200"),
    Launch("gemma-assistant", "gemma", FROZEN),
    Launch("flex", "v3", {**CHAIN, "attention_backend": "flex_attention"}, "backend.flex"),
    Launch("ngram-pages", "v3", {**NGRAM, "attention_backend": "fa3", "page_size": 64}, "backend.page-tree"),
    Launch("ngram-pages-flashinfer", "v3", {**NGRAM, "attention_backend": "flashinfer", "page_size": 64}),
    # C083, C084
    Launch("v32-e5m2", "v32", {"kv_cache_dtype": "fp8_e5m2"}, "precision.kv-sparse"),
    Launch("v32-e4m3", "v32", {"kv_cache_dtype": "fp8_e4m3"}),
    Launch("v4-e5m2", "v4", {"kv_cache_dtype": "fp8_e5m2"}, "precision.kv-v4"),
    Launch("v4-bf16", "v4", {"kv_cache_dtype": "bf16"}, "precision.kv-v4"),
    Launch("v4-bfloat16", "v4", {"kv_cache_dtype": "bfloat16"}),
    Launch("v3-e5m2", "v3", {"quantization": "fp8", "kv_cache_dtype": "fp8_e5m2"}),
    Launch("v3-e5m2-b200", "v3", {"kv_cache_dtype": "fp8_e5m2"}, "precision.kv-trtllm", gpu="b200"),
    Launch("v3-nvfp4", "v3-nvfp4", CHAIN, gpu="b200"),
    Launch("v3-nvfp4-e4m3", "v3-nvfp4", {**CHAIN, "kv_cache_dtype": "fp8_e4m3"}, gpu="b200"),
    Launch("v3-nvfp4-bf16", "v3-nvfp4", {**CHAIN, "kv_cache_dtype": "bf16"}, gpu="b200"),
    Launch("v3-nvfp4-bfloat16", "v3-nvfp4", {"kv_cache_dtype": "bfloat16"}, "precision.kv-trtllm", gpu="b200"),
    Launch(
        "v3-cutedsl-bfloat16",
        "v3",
        {"kv_cache_dtype": "bfloat16", "decode_attention_backend": "cutedsl_mla", "attention_backend": "flashinfer"},
        gpu="b200",
    ),
    Launch("v3-mxfp8", "v3", {"kv_cache_dtype": "mxfp8"}, "precision.kv-gpu"),
    Launch("gemma-mxfp8", "gemma", {"kv_cache_dtype": "mxfp8"}, "precision.kv-gpu"),
    Launch("gemma-mxfp8-b200", "gemma", {"kv_cache_dtype": "mxfp8"}, gpu="b200"),
    Launch("v3-nvfp4-cache", "v3", {"kv_cache_dtype": "nvfp4"}, "precision.kv-gpu"),
    Launch("v3-nvfp4-cache-b200", "v3", {"kv_cache_dtype": "nvfp4"}, "precision.kv-nvfp4", gpu="b200"),
    Launch("gemma-nvfp4-cache", "gemma", {"kv_cache_dtype": "nvfp4"}, "precision.kv-gpu"),
    Launch("gemma-nvfp4-cache-b200", "gemma", {"kv_cache_dtype": "nvfp4"}, gpu="b200"),
    Launch("gemma-nvfp4-cache-rtx", "gemma", {"kv_cache_dtype": "nvfp4"}, "precision.kv-nvfp4", gpu="rtx_pro_6000"),
    Launch(
        "gemma-nvfp4-cache-triton",
        "gemma",
        {"kv_cache_dtype": "nvfp4", "attention_backend": "triton"},
        "precision.kv-nvfp4",
        gpu="b200",
    ),
    Launch(
        "gemma-nvfp4-cache-decode",
        "gemma",
        {"kv_cache_dtype": "nvfp4", "decode_attention_backend": "triton"},
        "precision.kv-nvfp4",
        gpu="b200",
    ),
    Launch("gemma-nvfp4-cache-assistant", "gemma", {**FROZEN, "kv_cache_dtype": "nvfp4"}, gpu="b200"),
    Launch(
        "v3-nvfp4-cache-ngram",
        "v3",
        {**NGRAM, "kv_cache_dtype": "nvfp4", "attention_backend": "flashinfer"},
        "precision.kv-nvfp4",
        gpu="b200",
    ),
    Launch("v3-fp4-blocks", "v3", {"kv_cache_dtype": "fp4_mx_block16"}, "precision.kv-fp4"),
    Launch("v3-fp4-blocks-flashinfer", "v3", {"kv_cache_dtype": "fp4_mx_block16", "attention_backend": "flashinfer"}),
    Launch("gemma-fp4-blocks", "gemma", {"kv_cache_dtype": "fp4_mx_block16"}),
    Launch(
        "gemma-fp4-blocks-fa4",
        "gemma",
        {"kv_cache_dtype": "fp4_mx_block16", "attention_backend": "fa4"},
        "precision.kv-fp4",
    ),
    # C029, C031, C033
    Launch("dp", "v3", {**CHAIN, **DP8}),
    Launch("dp-old-spelling", "v3", {**CHAIN, "tp_size": 8, "dp_size": 8, "enable_dp_attention": True}),
    Launch(
        "dp-standalone",
        "v3",
        {**CHAIN, **DP8, "speculative_algorithm": "STANDALONE", "speculative_draft_model_path": OTHER},
        "draft-parallel.dp-algorithm",
    ),
    Launch("dp-ngram", "v3", {**NGRAM, **DP8}, "draft-parallel.dp-algorithm"),
    Launch("dp-dspark", "v4-dspark", {**DSPARK, **DP8}, "draft-parallel.lm-head"),
    Launch("dp-dspark-head", "v4-dspark", {**DSPARK, **DP8, "enable_dp_lm_head": True}),
    Launch(
        "dp-dspark-deepep",
        "v4-dspark",
        {**DSPARK, **DP8, "enable_dp_lm_head": True, "moe_a2a_backend": "deepep"},
        "draft-parallel.exchange",
    ),
    Launch(
        "dp-dspark-megamoe",
        "v4-dspark",
        {**DSPARK, **DP8, "enable_dp_lm_head": True, "moe_a2a_backend": "megamoe"},
        gpu="b200",
    ),
    Launch(
        "dp-dspark-ragged",
        "v4-dspark",
        {**DSPARK, **DP8, "enable_dp_lm_head": True, "moe_a2a_backend": "megamoe"},
        "draft-parallel.ragged",
        gpu="b200",
        env={"SGLANG_RAGGED_VERIFY_MODE": "compact"},
    ),
    Launch(
        "dp-dspark-other-exchange",
        "v4-dspark",
        {**DSPARK, **DP8, "enable_dp_lm_head": True, "speculative_moe_a2a_backend": "deepep"},
        "draft-parallel.exchange",
    ),
    Launch(
        "dp-dspark-cp",
        "v4-dspark",
        {**DSPARK, "tp_size": 8, "attn_dp_size": 2, "attn_cp_size": 2, "enable_dp_lm_head": True},
        "draft-parallel.cp",
    ),
    # C101
    Launch("pp", "v3", {**CHAIN, "tp_size": 8, "pp_size": 2, "nnodes": 2}, "draft-parallel.pipeline"),
    Launch("pp-prefill", "v3", {**CHAIN, "tp_size": 8, "pp_size": 2, "nnodes": 2, "disaggregation_mode": "prefill"}),
    Launch("pp-without", "v3", {"tp_size": 8, "pp_size": 2, "nnodes": 2}),
    Launch("pp-ngram", "v3", {**NGRAM, "pp_size": 2, "disaggregation_mode": "prefill"}, "draft-parallel.pipeline"),
    Launch("pp-switched-on", "v3", {**CHAIN, "pp_size": 2}, env={"SGLANG_ENABLE_PP_SPEC": "1"}),
    Launch(
        "pp-switched-on-dp",
        "v3",
        {**CHAIN, **DP8, "pp_size": 2},
        "draft-parallel.pipeline",
        env={"SGLANG_ENABLE_PP_SPEC": "1"},
    ),
    # layouts
    Launch("dp-uneven", "v3", {"tp_size": 8, "attn_dp_size": 3}, "layout.dp-attention"),
    Launch("nodes-uneven", "v3", {"tp_size": 8, "nnodes": 3}, "layout.nodes"),
    Launch("copies-over-nodes", "v3", {"tp_size": 8, "dp_size": 2, "nnodes": 2}, "layout.copies-over-nodes"),
    Launch("copies-and-ranks", "v3", {**DP8, "dp_size": 2}, "layout.copies-and-ranks"),
    Launch("cp-uneven", "v3", {"tp_size": 8, "attn_cp_size": 3}, "layout.cp"),
    Launch("moe-dp", "v3", {"tp_size": 8, "moe_dp_size": 2, "ep_size": 8}, "layout.moe-dp"),
    Launch("two-batches", "v3", {"tp_size": 8, "enable_two_batch_overlap": True}, "layout.overlap-two-batches"),
    Launch("head-for-nobody", "v3", {"tp_size": 8, "enable_dp_lm_head": True}),
    Launch(
        "megamoe-without-ranks",
        "v4",
        {"tp_size": 8, "moe_a2a_backend": "flashinfer_megamoe"},
        "layout.exchange",
        gpu="b200",
    ),
    Launch("megamoe-on-hopper", "v4", {**DP8, "moe_a2a_backend": "flashinfer_megamoe"}, "layout.exchange"),
    Launch("megamoe", "v4", {**DP8, "moe_a2a_backend": "flashinfer_megamoe"}, gpu="b200"),
    Launch("flashinfer-exchange", "v3", {"tp_size": 8, "moe_a2a_backend": "flashinfer"}, "layout.exchange"),
    Launch("pplx", "v3", {"tp_size": 8, "moe_a2a_backend": "pplx"}, "layout.exchange"),
    Launch("deepep-v2-draft", "v3", {**CHAIN, "tp_size": 8, "moe_a2a_backend": "deepep_v2"}, "layout.exchange"),
    Launch("deepep", "v3", {**CHAIN, "tp_size": 8, "moe_a2a_backend": "deepep"}),
    Launch("deepep-normal", "v3", {"tp_size": 8, "moe_a2a_backend": "deepep", "deepep_mode": "normal"}),
    Launch("sparse-triton", "v32", {"dsa_decode_backend": "triton"}, "backend.sparse-kernels"),
    Launch(
        "sparse-tilelang-half",
        "v32",
        {"dsa_decode_backend": "tilelang", "kv_cache_dtype": "fp8_e4m3"},
        "backend.sparse-kernels",
    ),
    Launch(
        "sparse-tilelang",
        "v32",
        {"dsa_decode_backend": "tilelang", "dsa_prefill_backend": "tilelang", "kv_cache_dtype": "fp8_e4m3"},
    ),
    Launch("sparse-flashmla", "v32", {"dsa_decode_backend": "flashmla_kv", "kv_cache_dtype": "fp8_e4m3"}),
    # C043, C045
    Launch("lora-assistant", "gemma", {**FROZEN, "lora_paths": ["a=org/a"]}, "lora.algorithm"),
    Launch("lora-eagle", "v3", {**CHAIN, "lora_paths": ["a=org/a"]}),
    Launch("lora-bare", "v3", {"enable_lora": True}, "lora.size"),
    Launch("lora-off", "gemma", FROZEN),
    Launch("lora-adaptive", "v3", {**CHAIN, "speculative_adaptive": True, "lora_paths": ["a=org/a"]}, "lora.adaptive"),
    Launch(
        "lora-ragged",
        "v4-dspark",
        {**DSPARK, "lora_paths": ["a=org/a"]},
        "lora.ragged",
        env={"SGLANG_RAGGED_VERIFY_MODE": "compact"},
    ),
    # C064, C099
    Launch(
        "radix-assistant",
        "gemma",
        {**FROZEN, "disaggregation_mode": "decode", "disaggregation_decode_enable_radix_cache": True},
        "cache.decode-radix",
    ),
    Launch(
        "radix-nextn",
        "v3",
        {
            **CHAIN,
            "speculative_algorithm": "NEXTN",
            "disaggregation_mode": "decode",
            "disaggregation_decode_enable_radix_cache": True,
        },
    ),
    Launch("mixed-assistant", "gemma", {**FROZEN, "enable_mixed_chunk": True}),
    Launch("mixed-eagle", "v3", {**CHAIN, "enable_mixed_chunk": True}),
    Launch("multiplexed", "v3", {"enable_pdmux": True}, "prefill.multiplexed"),
    Launch("multiplexed-overlap", "v3", {"enable_pdmux": True, "chunked_prefill_size": -1}, "prefill.multiplexed"),
    Launch(
        "multiplexed-alone",
        "v3",
        {"enable_pdmux": True, "chunked_prefill_size": -1, "disable_overlap_schedule": True},
    ),
    Launch("chunk-pages", "v32", {"chunked_prefill_size": 100}, "prefill.chunk-pages"),
    Launch("chunk-pages-of-ranks", "v4", {**DP8, "chunked_prefill_size": 1024}, "prefill.chunk-pages"),
    Launch("chunk-whole", "v4", {**DP8, "chunked_prefill_size": 4096}),
    # positions
    Launch("context-longer", "v3", {"context_length": 163_841}, "positions.context"),
    Launch("context-longest", "v3", {"context_length": 163_840}),
    Launch("context-longer-v4", "v4", {"context_length": 1_048_577}, "positions.context"),
    Launch("context-longer-gemma", "gemma", {"context_length": 131_073}, "positions.context"),
    Launch("context-stretched", "v3", {"context_length": 163_841}, env={positions.STRETCHES: "1"}),
    Launch(
        "context-not-stretched", "v3", {"context_length": 163_841}, "positions.context", env={positions.STRETCHES: "0"}
    ),
)

# Every backend with every page and width, on the families that let one choose.
_BACKENDS = (None, "flashinfer", "fa3", "fa4", "triton", "flashmla", "trtllm_mla", "cutedsl_mla", "trtllm_mha")
MATRIX = tuple(
    Launch(
        f"{model}-{gpu}-{name}-{page}-{topk}",
        model,
        {
            **CHAIN,
            "speculative_eagle_topk": topk,
            "speculative_num_draft_tokens": 4,
            **({"attention_backend": name} if name else {}),
            **({"page_size": page} if page else {}),
        },
        gpu=gpu,
    )
    for model, gpu, name, page, topk in product(("v3", "v32", "gemma"), ("h200", "b200"), _BACKENDS, (None, 64), (1, 2))
)


def layouts(count: int) -> tuple[Launch, ...]:
    """A sample of all layouts, the same every time."""
    choose = random.Random(5)  # noqa: S311 - a sample
    algorithms = (("v3", {}), ("v3", CHAIN), ("v3", NGRAM), ("v4-dspark", DSPARK), ("v32", CHAIN), ("gemma", FROZEN))
    found = []
    for number in range(count):
        model, asked = choose.choice(algorithms)
        sizes = {
            "tp_size": choose.choice((4, 8, 16)),
            "attn_dp_size": choose.choice((1, 1, 2, 3, 8)),
            "dp_size": choose.choice((1, 1, 1, 2)),
            "pp_size": choose.choice((1, 1, 2)),
            "nnodes": choose.choice((1, 1, 2, 3)),
            "attn_cp_size": choose.choice((1, 1, 1, 2)),
            "enable_dp_lm_head": choose.choice((True, False)),
        }
        mode = choose.choice(({}, {}, {"disaggregation_mode": "prefill"}))
        sizes = {name: value for name, value in sizes.items() if value not in {1, False}}
        found.append(Launch(f"layout-{number}", model, {**asked, **sizes, **mode}))
    return tuple(found)


LAYOUTS = layouts(60)


LAUNCHES = (*TABLE, *MATRIX, *LAYOUTS)
QUESTIONS = {launch.name: launch.question() for launch in LAUNCHES}


def is_taken(answer: Answer) -> bool:
    fails_comparing = answer.kind == "TypeError" and answer.at.startswith(
        "speculative_hook.py"
    )  # None with 1: no start either
    assert answer.outcome is not Outcome.UNANSWERED or fails_comparing, (
        f"{answer.kind}: {answer.sentence} ({answer.at})"
    )
    return answer.outcome is Outcome.RESOLVED


@pytest.mark.parametrize("launch", TABLE, ids=lambda launch: launch.name)
def test_the_engine_takes_a_launch_where_no_rule_says_it_would_refuse(launch):
    objections, answer = launch.objections(), engine_answers(QUESTIONS[launch.name])
    assert bool(launch.rule) is not is_taken(answer), f"{answer.kind}: {answer.sentence}"
    assert (launch.rule in {f.rule for f in objections}) if launch.rule else not objections, objections


@pytest.mark.parametrize("launch", [*MATRIX, *LAYOUTS], ids=lambda launch: launch.name)
def test_no_backend_and_no_layout_is_judged_otherwise_than_by_the_engine(launch):
    objections, answer = launch.objections(), engine_answers(QUESTIONS[launch.name])
    claimed = [f for f in objections if f.rule in CLAIMED]
    if is_taken(answer):
        assert not claimed
    else:
        assert objections, f"{answer.kind}: {answer.sentence} ({answer.at})"


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.name)
def test_what_a_launch_leaves_open_is_filled_in_as_the_engine_does(launch):
    answer, situation = engine_answers(QUESTIONS[launch.name]), launch.situation()
    if not is_taken(answer):
        return
    backends = resolved.backends_of(situation)
    seen = answer.arguments
    assert (backends.prefill, backends.decode) == (answer.prefill_attention, answer.decode_attention)
    assert resolved.page_tokens(situation) == seen["page_size"]
    # What the checkpoint says of its KV comes in when it is loaded: tests/planning/memory/test_pools_on_the_engine.py.
    unread = replace(situation, target=replace(situation.target, quantization=Quantization()))
    assert resolved.kv_word(unread) == seen["kv_cache_dtype"]
    assert resolved.is_adaptive(situation) is bool(seen["speculative_adaptive"])
    if resolved.algorithm_of(situation) in resolved.CHAIN_OR_TREE:
        assert resolved.algorithm_of(situation) == seen["speculative_algorithm"]
        assert resolved.branches_of(situation) == seen["speculative_eagle_topk"]


def test_every_launch_is_asked_by_its_own_name():
    assert len(QUESTIONS) == len(LAUNCHES)


def test_every_rule_that_speaks_for_the_engine_is_put_to_it():
    assert {launch.rule for launch in TABLE if launch.rule} == CLAIMED
