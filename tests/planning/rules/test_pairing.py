import itertools

import pytest

from spec_toolkit.errors import Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.planning.rules import pairing
from tests.planning.field_cases import build

REFUSED, WARNED = Verdict.REFUSE, Verdict.WARN
# Hidden size of each target and what its assistant is made for: model-facts, from their config.json.
SIZES = {"E2B": 1536, "E4B": 2560, "12B": 3840, "31B": 5376, "26B-A4B": 2816}
ASSISTANT = {
    size: "Gemma4UnifiedAssistantForCausalLM" if size == "12B" else "Gemma4AssistantForCausalLM" for size in SIZES
}
TARGET = {
    size: "Gemma4UnifiedForConditionalGeneration" if size == "12B" else "Gemma4ForConditionalGeneration"
    for size in SIZES
}


def found(rule, algorithm="NEXTN", env=None, **parts):
    situation = {"server_args": {"speculative_algorithm": algorithm} | parts.pop("server_args", {}), "env": env or {}}
    return [(f.rule, f.verdict) for f in rule(build(situation | parts))]


def gemma(size, suffix=""):
    return {
        "model": f"google/gemma-4-{size}-it{suffix}",
        "architectures": [TARGET[size]],
        "text_config": {"hidden_size": SIZES[size]},
    }


def assistant(size, suffix=""):
    own = {"backbone_hidden_size": SIZES[size], "text_config": {"hidden_size": 1024}}
    return {"model": f"google/gemma-4-{size}-it{suffix}-assistant", "architectures": [ASSISTANT[size]]} | own


@pytest.mark.parametrize(("target", "draft"), list(itertools.product(SIZES, SIZES)))
def test_every_pairing_of_target_and_assistant_sizes(target, draft):  # C037
    findings = [
        f
        for rule in pairing.RULES
        for f in rule(
            build(
                {"target": gemma(target), "draft": assistant(draft), "server_args": {"speculative_algorithm": "NEXTN"}}
            )
        )
    ]
    assert [f.rule for f in findings] == ([] if target == draft else ["pairing.assistant-size"])


def tables_pairs():
    models = load_tables().models
    for assistant_of in (model for model in models.values() if model.drafts_for):
        for target in (model for model in models.values() if model.engine):
            for pair in itertools.product(target.checkpoints, assistant_of.checkpoints):
                yield *pair, target is models[assistant_of.drafts_for]


@pytest.mark.parametrize(("target", "draft", "belong"), list(tables_pairs()))
def test_the_tables_assistants_go_with_their_targets_and_no_other(target, draft, belong):  # C037
    asked = {"speculative_algorithm": "EAGLE", "model_path": target, "speculative_draft_model_path": draft}
    situation = build({"server_args": asked, "target": {"model": target}, "draft": {"model": draft}})
    findings = {f.rule for rule in pairing.RULES for f in rule(situation)}
    assert ("pairing.assistant-size" in findings) is not belong
    if belong:
        assert findings == ({"pairing.assistant-variant"} if ("-qat-" in target) != ("-qat-" in draft) else set())


@pytest.mark.parametrize("architecture", sorted(pairing.ASSISTANTS))
@pytest.mark.parametrize(
    ("algorithm", "refused"),
    [
        *((algorithm, True) for algorithm in ("EAGLE3", "eagle3", "STANDALONE", "DFLASH", "DSPARK", "NGRAM")),
        *((algorithm, False) for algorithm in ("NEXTN", "nextn", "EAGLE", "FROZEN_KV_MTP", None)),
    ],
)
def test_an_assistant_goes_with_nextn_and_eagle(architecture, algorithm, refused):  # C040
    expected = [("pairing.assistant-algorithm", REFUSED)] if refused else []
    assert found(pairing.assistant_algorithm, algorithm, draft={"architectures": [architecture]}) == expected


@pytest.mark.parametrize(
    ("algorithm", "architecture", "count"),
    [("FROZEN_KV_MTP", "LlamaForCausalLMEagle", 1), ("EAGLE", "LlamaForCausalLMEagle", 0)],
)
def test_frozen_kv_is_for_assistants(algorithm, architecture, count):
    assert len(found(pairing.assistant_algorithm, algorithm, draft={"architectures": [architecture]})) == count


@pytest.mark.parametrize(
    ("target", "server_args", "missing"),
    [
        pytest.param(gemma("31B"), {}, True, id="no-draft"),
        pytest.param(gemma("12B"), {"model_path": "x/y", "speculative_draft_model_path": "x/y"}, True, id="itself"),
        pytest.param(gemma("31B"), {"speculative_draft_model_path": "org/assistant"}, False, id="near-miss-named"),
        pytest.param(gemma("31B"), {"speculative_algorithm": None}, False, id="near-miss-no-speculation"),
        pytest.param({"architectures": ["DeepseekV3ForCausalLM"]}, {}, False, id="near-miss-a-head-inside"),
    ],
)
def test_gemma_needs_an_assistant(target, server_args, missing):
    expected = [("pairing.assistant-missing", REFUSED)] if missing else []
    assert found(pairing.assistant_missing, target=target, server_args=server_args) == expected


@pytest.mark.parametrize(
    ("target", "draft", "warned"),
    [
        pytest.param("-qat-q4_0-unquantized", "", True, id="the-plain-assistant-of-a-qat-target"),
        pytest.param("", "-qat-q4_0-unquantized", True, id="a-qat-assistant-of-the-plain-target"),
        pytest.param("-qat-q4_0-unquantized", "-qat-q4_0-unquantized", False, id="near-miss-both"),
        pytest.param("", "", False, id="near-miss-neither"),
    ],
)
def test_a_qat_target_has_its_own_assistant(target, draft, warned):
    expected = [("pairing.assistant-variant", WARNED)] if warned else []
    assert found(pairing.assistant_variant, target=gemma("E4B", target), draft=assistant("E4B", draft)) == expected


@pytest.mark.parametrize(
    ("algorithm", "draft", "expected"),
    [
        pytest.param("EAGLE", {"hidden_size": 6144}, [("pairing.hidden-size", REFUSED)], id="another-size"),
        pytest.param("EAGLE", {"hidden_size": 7168}, [], id="near-miss-the-same"),
        pytest.param("EAGLE", {}, [], id="not-known"),
        pytest.param("EAGLE3", {"hidden_size": 6144}, [], id="near-miss-eagle3-projects"),
        pytest.param("STANDALONE", {"hidden_size": 2048}, [], id="near-miss-a-model-of-its-own"),
    ],
)
def test_a_head_reads_the_targets_hidden_states(algorithm, draft, expected):
    assert found(pairing.hidden_size, algorithm, target={"hidden_size": 7168}, draft=draft) == expected


@pytest.mark.parametrize(
    ("draft", "architecture", "warned"),
    [
        pytest.param("deepseek-ai/DeepSeek-R1-0528", "DeepseekV3ForCausalLM", True, id="the-head-of-another-model"),
        pytest.param("deepseek-ai/DeepSeek-V3-0324", "DeepseekV3ForCausalLM", False, id="near-miss-its-own"),
        pytest.param("lmsys/DeepSeek-V3-NextN", "DeepseekV3ForCausalLMNextN", False, id="near-miss-a-head-by-itself"),
    ],
)
def test_the_head_of_another_checkpoint_is_told(draft, architecture, warned):
    target = {"model": "deepseek-ai/DeepSeek-V3-0324", "architectures": ["DeepseekV3ForCausalLM"]}
    findings = found(pairing.other_checkpoint, target=target, draft={"model": draft, "architectures": [architecture]})
    assert findings == ([("pairing.other-checkpoint", WARNED)] if warned else [])


@pytest.mark.parametrize("algorithm", ["EAGLE", "EAGLE3", "STANDALONE", "DFLASH"])
@pytest.mark.parametrize(
    ("sizes", "tokenizers", "otherwise", "standalone"),
    [
        pytest.param((152064, 32002), "ab", "pairing.tokenizer=refuse", "pairing.tokenizer=refuse", id="another"),
        pytest.param(
            (152064, 151936), "aa", "pairing.vocabulary-size=warn", "pairing.vocabulary-size=refuse", id="padding"
        ),
        pytest.param(
            (152064, 32002), "", "pairing.vocabulary-size=warn", "pairing.vocabulary-size=refuse", id="not-known"
        ),
        pytest.param((152064, 152064), "ab", "pairing.tokenizer=warn", "pairing.tokenizer=refuse", id="same-size"),
        pytest.param((152064, 152064), "aa", "", "", id="near-miss-the-same"),
        pytest.param((152064, 152064), "", "", "", id="near-miss-nothing-to-compare"),
        pytest.param((152064, None), "aa", "", "", id="near-miss-half-known"),
    ],
)
def test_what_decides_is_what_token_ids_mean(algorithm, sizes, tokenizers, otherwise, standalone):  # C036
    models = [{"vocab_size": size} if size else {} for size in sizes]
    for model, tokenizer in zip(models, tokenizers, strict=False):
        model["tokenizer"] = f"sha256:{tokenizer}"
    findings = found(pairing.vocabulary, algorithm, target=models[0], draft=models[1])
    assert ",".join(f"{rule}={verdict.value}" for rule, verdict in findings) == (
        standalone if algorithm == "STANDALONE" else otherwise
    )


@pytest.mark.parametrize("env", [{}, {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "true"}])
@pytest.mark.parametrize(
    ("asked", "target", "draft", "refused"),
    [
        (8192, None, 2048, True),
        (None, 8192, 2048, True),
        (2048, 8192, 2048, False),
        (2049, 8192, 2048, True),
        (None, None, 2048, False),
        (8192, None, None, False),
    ],
)
def test_a_draft_reaches_as_far_as_what_is_served(env, asked, target, draft, refused):  # C041
    models = {"target": {"max_position_embeddings": target}, "draft": {"max_position_embeddings": draft}}
    findings = found(pairing.draft_context, "EAGLE", env, server_args={"context_length": asked}, **models)
    assert findings == ([("pairing.draft-context", REFUSED)] if refused else [])


@pytest.mark.parametrize(
    ("asked", "says"),
    [(4096, "is 4,096 tokens, and"), (None, "is left out, the target's 8,192 tokens are taken, and")],
)
def test_a_context_that_nobody_wrote_is_not_said_to_be_one(asked, says):
    parts = {"target": {"max_position_embeddings": 8192}, "draft": {"max_position_embeddings": 2048}}
    asked_of = {"speculative_algorithm": "EAGLE", "context_length": asked}
    (finding,) = pairing.draft_context(build({"server_args": asked_of, **parts}))
    assert finding.found.startswith(says)
