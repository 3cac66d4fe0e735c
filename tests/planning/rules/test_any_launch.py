"""Whatever a launch says, rules answer with findings and never with a traceback."""

from typing import Any, get_args, get_type_hints

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding
from spec_toolkit.facts.known import load_tables
from tests.planning.field_cases import build, offered

REPOSITORIES = sorted({repo for model in load_tables().models.values() for repo in model.checkpoints})
WORDS = {
    "speculative_algorithm": [
        "EAGLE",
        "NEXTN",
        "eagle",
        "EAGLE3",
        "STANDALONE",
        "DSPARK",
        "DFLASH",
        "NGRAM",
        "FROZEN_KV_MTP",
        "?",
    ],
    "attention_backend": ["flashinfer", "fa3", "triton", "trtllm_mla", "flashmla", "dsa", "?"],
    "moe_a2a_backend": ["deepep", "megamoe", "none", "?"],
    "kv_cache_dtype": ["auto", "bf16", "fp8_e4m3", "fp8_e5m2", "?"],
    "quantization": ["fp8", "modelopt_fp4", "awq", "?"],
    "disaggregation_mode": ["prefill", "decode", "null", "?"],
    "device": ["cuda", "cpu"],
}


def any_value(name: str, kind: Any) -> st.SearchStrategy[Any]:
    kinds = set(get_args(kind)) or {kind}
    if name in WORDS:
        return st.sampled_from(WORDS[name])
    if bool in kinds:
        return st.booleans()
    if int in kinds:
        return st.one_of(st.integers(-2, 64), st.integers(0, 2**20))
    if float in kinds:
        return st.floats(-1, 2, allow_nan=False)
    if str in kinds:
        return st.sampled_from(["", "org/model", "/models/x", "a" * 40, *REPOSITORIES[:3]])
    return st.lists(st.integers(0, 600), max_size=5) if "int" in str(kind) else st.just(["x"])


HINTS = {name: kind for name, kind in get_type_hints(Arguments).items() if name != "others"}
LAUNCHES = st.fixed_dictionaries({}, optional={name: any_value(name, kind) for name, kind in HINTS.items()})
MODELS = st.one_of(st.just({}), st.sampled_from(REPOSITORIES).map(lambda repo: {"model": repo}))
SITUATIONS = st.fixed_dictionaries(
    {"server_args": LAUNCHES, "target": MODELS},
    optional={
        "draft": MODELS,
        "gpu": st.sampled_from([*load_tables().gpus, "no-such-gpu"]),
        "count": st.integers(1, 72),
        "nodes": st.integers(1, 4),
        "env": st.dictionaries(
            st.sampled_from(["SGLANG_HEALTH_CHECK_TIMEOUT", "SGLANG_DSV4_KV_LAYOUT"]), st.text(max_size=4)
        ),
        "workload": st.fixed_dictionaries(
            {"peak_concurrency": st.integers(1, 9999), "context_tokens": st.integers(1, 2**21)}
        ),
    },
)


def said(findings: list[Finding]) -> None:
    for finding in findings:
        assert finding.sentence().endswith(f"[{finding.rule}]")
        assert "None" not in finding.found, finding.sentence()


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(SITUATIONS)
def test_a_launch_is_answered_with_findings(data: dict[str, Any]) -> None:
    situation = build(data)
    for rule in offered("RULES"):
        said(list(rule(situation)))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(SITUATIONS, SITUATIONS)
def test_a_pair_is_answered_with_findings(prefill: dict[str, Any], decode: dict[str, Any]) -> None:
    sides = build(prefill), build(decode)
    for rule in offered("PAIR_RULES"):
        said(list(rule(*sides)))


def test_every_argument_is_varied() -> None:
    assert set(HINTS) | {"others"} == set(Arguments.__struct_fields__)
    assert msgspec.convert(dict.fromkeys(HINTS), Arguments) == Arguments()
