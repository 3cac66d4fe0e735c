"""Which requests can go on elsewhere, and how they are written for the next engine."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spec_toolkit.engine.patches import installed_engine
from spec_toolkit.engine.resume import (
    _GENERATE_KEYS,
    Caveat,
    Endpoint,
    Unresumable,
    caveats,
    committed_ids,
    first_request,
    resumed_request,
    says_less,
    why_not_resumable,
    with_earlier_logprobs,
)
from spec_toolkit.plugin.resume import REFUSED_ATTRIBUTES, check
from spec_toolkit.resumption import KEYS, BadResumptionError, Resumption, asks_records, decode_params

CHAT, GENERATE = Endpoint.CHAT, Endpoint.GENERATE
IMAGE = [
    {"role": "user", "content": [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "x"}}]}
]
WORDS = [{"role": "user", "content": [{"type": "text", "text": "what?"}]}, {"role": "assistant", "content": None}]


@pytest.mark.parametrize(
    ("endpoint", "body", "reason"),
    [
        pytest.param(GENERATE, {"sampling_params": {"n": 2}}, Unresumable.SEVERAL_CHOICES, id="n"),
        pytest.param(CHAT, {"n": 2}, Unresumable.SEVERAL_CHOICES, id="chat-n"),
        pytest.param(GENERATE, {"text": ["a", "b"]}, Unresumable.SEVERAL_PROMPTS, id="texts"),
        pytest.param(GENERATE, {"input_ids": [[1], [2]]}, Unresumable.SEVERAL_PROMPTS, id="lists-of-ids"),
        pytest.param(GENERATE, {"text": "a", "sampling_params": [{}]}, Unresumable.SEVERAL_PROMPTS, id="params-each"),
        pytest.param(GENERATE, {"sampling_params": {"beam_width": 4}}, Unresumable.BEAMS, id="beams"),
        pytest.param(GENERATE, {"image_data": "x"}, Unresumable.MULTIMODAL, id="image"),
        pytest.param(GENERATE, {"audio_data": ["x"]}, Unresumable.MULTIMODAL, id="audio"),
        pytest.param(CHAT, {"messages": IMAGE}, Unresumable.MULTIMODAL, id="chat-image"),
        pytest.param(GENERATE, {"input_embeds": [[0.0]]}, Unresumable.EMBEDDINGS, id="embeddings"),
        pytest.param(GENERATE, {"lora_path": "x"}, Unresumable.ADAPTER, id="lora"),
        pytest.param(CHAT, {"model": "m:adapter"}, Unresumable.ADAPTER, id="chat-model-and-adapter"),
        pytest.param(GENERATE, {"session_params": {"id": "s"}}, Unresumable.SESSION, id="session"),
        pytest.param(CHAT, {"session_id": "s"}, Unresumable.SESSION, id="chat-session"),
        pytest.param(CHAT, {"custom_logit_processor": "x"}, Unresumable.LOGIT_PROCESSOR, id="logit-processor"),
        pytest.param(CHAT, {"watermark": {"key": 1}}, Unresumable.WATERMARK, id="watermark"),
        pytest.param(GENERATE, {"return_hidden_states": "last"}, Unresumable.HIDDEN_STATES, id="hidden-states"),
        pytest.param(CHAT, {"return_sampling_mask": True}, Unresumable.ARRAYS_BY_TOKEN, id="sampling-mask"),
        pytest.param(GENERATE, {"return_routed_experts": True}, Unresumable.ARRAYS_BY_TOKEN, id="experts"),
        pytest.param(GENERATE, {"bootstrap_room": 7}, Unresumable.SPLIT_ENGINES, id="prefill-apart"),
        pytest.param(GENERATE, {"multi_item_delimiter_indices": [3]}, Unresumable.SCORING, id="scoring"),
        # near misses
        pytest.param(GENERATE, {"text": "a", "sampling_params": {"n": 1, "beam_width": None}}, None, id="one-choice"),
        pytest.param(GENERATE, {"text": "a"}, None, id="no-params"),
        pytest.param(GENERATE, {"input_ids": [1, 2]}, None, id="ids"),
        pytest.param(GENERATE, {"text": "a", "image_data": None, "lora_path": None}, None, id="null-is-absent"),
        pytest.param(GENERATE, {"text": "a", "return_hidden_states": False}, None, id="false-is-absent"),
        pytest.param(GENERATE, {"text": "a", "return_logprob": True, "top_logprobs_num": 5}, None, id="logprobs"),
        pytest.param(GENERATE, {"text": "a", "sampling_params": {"json_schema": "{}"}}, None, id="grammar"),
        pytest.param(CHAT, {"messages": WORDS, "n": 1}, None, id="parts-that-are-words"),
        pytest.param(CHAT, {"messages": [], "model": "org/model"}, None, id="model-alone"),
        pytest.param(CHAT, {"tools": [{}], "logprobs": True, "seed": 3}, None, id="tools"),
        pytest.param(CHAT, {"image_data": "x"}, None, id="a-key-of-the-other-endpoint"),
        pytest.param(CHAT, {"messages": "nonsense", "n": "many"}, None, id="nonsense-is-the-engines-to-refuse"),
    ],
)
def test_what_can_go_on_elsewhere(endpoint, body, reason):
    found = why_not_resumable(endpoint, body)
    assert (found.reason if found else None) is reason


def test_the_engine_refuses_what_the_gateway_refuses():
    """By itself, where a client talks to it: every key of /generate that stands for something the tokens do not restore."""
    known = {*REFUSED_ATTRIBUTES, "lora_id", "bootstrap_host"}  # set by the engine from the others
    assert set(_GENERATE_KEYS) <= known


@pytest.mark.skipif(installed_engine() is None, reason="the engine is not installed")
def test_the_engines_requests_have_these_fields():
    import ast
    from pathlib import Path

    from spec_toolkit.fingerprint import package_folder

    def fields(file: Path, name: str) -> set[str]:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        [found] = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name]
        return {node.target.id for node in found.body if isinstance(node, ast.AnnAssign)}

    engine = package_folder("sglang") / "srt"
    of_generate = fields(engine / "managers" / "io_struct.py", "GenerateReqInput") | fields(
        engine / "managers" / "io_struct.py", "BaseReq"
    )
    assert set(_GENERATE_KEYS) | set(REFUSED_ATTRIBUTES) <= of_generate
    assert {"n", "beam_width", "custom_params"} <= fields(engine / "sampling" / "sampling_params.py", "SamplingParams")


@pytest.mark.parametrize(
    ("endpoint", "body", "found"),
    [
        pytest.param(CHAT, {"temperature": 0}, set(), id="greedy"),
        pytest.param(CHAT, {}, {Caveat.SAMPLED}, id="temperature-absent"),
        pytest.param(CHAT, {"temperature": 0.7, "seed": 3}, {Caveat.SAMPLED}, id="seed"),
        pytest.param(CHAT, {"temperature": 0.7, "top_k": 1}, set(), id="top-1"),
        pytest.param(CHAT, {"temperature": 0, "presence_penalty": 0.5}, {Caveat.PENALTIES}, id="penalty"),
        pytest.param(CHAT, {"temperature": 0, "min_tokens": 4}, {Caveat.PENALTIES}, id="min-tokens"),
        pytest.param(CHAT, {"temperature": 0, "repetition_penalty": 1.0}, set(), id="neutral-penalty"),
        pytest.param(GENERATE, {"sampling_params": {"temperature": 0}}, {Caveat.ENGINE_COUNTS}, id="generate"),
        pytest.param(
            GENERATE,
            {"sampling_params": {"temperature": 0, "min_new_tokens": 4}},
            {Caveat.ENGINE_COUNTS, Caveat.PENALTIES},
            id="generate-min-tokens",
        ),
        pytest.param(CHAT, {"temperature": 0, "tools": [{}]}, {Caveat.CHUNKS}, id="tools"),
    ],
)
def test_what_may_come_out_otherwise_is_said(endpoint, body, found):
    assert caveats(endpoint, body) == found


def test_clients_cannot_speak_with_our_keys():
    mine = {"resume_ids": [1], "resume_steps": [1, 1], "resume_records": True, "thinking_budget": 5}
    chat = first_request(CHAT, {"custom_params": mine, "stream": True}, "r")
    assert chat["custom_params"] == {"thinking_budget": 5, "resume_records": True}
    assert chat["rid"] == "r"
    sent = first_request(GENERATE, {"text": "a", "sampling_params": {"custom_params": mine}}, "r")
    assert sent == {"text": "a", "rid": "r", "sampling_params": {"custom_params": {"thinking_budget": 5}}}
    only = first_request(GENERATE, {"sampling_params": {"custom_params": {"resume_ids": [1]}}}, "r")
    assert only["sampling_params"] == {"custom_params": None}


def test_records_are_asked_for_where_there_are_parsers_and_a_stream():
    assert asks_records(first_request(CHAT, {"stream": True}, "r")["custom_params"])
    assert "custom_params" not in first_request(CHAT, {"stream": False}, "r")
    assert first_request(GENERATE, {"text": "a", "stream": True}, "r") == {
        "text": "a", "stream": True, "rid": "r", "sampling_params": {},
    }  # fmt: skip


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_stream_without_a_token_is_asked_for_again(endpoint):
    body = {"stream": True, "sampling_params": {"temperature": 0}}
    assert resumed_request(endpoint, body, "r", None) == first_request(endpoint, body, "r")


resumptions = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=9).map(
    lambda cuts: Resumption(tuple(range(sum(tokens for tokens, _ in cuts))), tuple(cuts))
)


@given(resumptions, st.sampled_from(Endpoint), st.booleans())
def test_what_was_committed_reaches_the_engine_and_the_client_s_own_keys_too(resumption, endpoint, own):
    given_params = {"thinking_budget": 5} if own else None
    body = {"stream": True, "custom_params": given_params, "sampling_params": {"custom_params": given_params}}
    sent = resumed_request(endpoint, body, "r", resumption)
    params = sent["custom_params"] if endpoint is CHAT else sent["sampling_params"]["custom_params"]
    assert decode_params(params) == resumption
    assert asks_records(params) is (endpoint is CHAT)
    assert {key for key in params if key not in KEYS} == ({"thinking_budget"} if own else set())
    assert body["custom_params"] == given_params, "the client's body stays as it is"


json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
bodies = st.dictionaries(
    st.sampled_from(
        [*_GENERATE_KEYS, "sampling_params", "custom_params", "messages", "model", "n", "text", "input_ids"]
    ),
    json | st.dictionaries(st.sampled_from(["custom_params", "n", "beam_width"]), json, max_size=3),
    max_size=5,
)


@given(st.sampled_from(Endpoint), bodies)
def test_whatever_a_client_sends_is_judged_and_written_without_raising(endpoint, body):
    why_not_resumable(endpoint, body)
    caveats(endpoint, body)
    sent = first_request(endpoint, body, "r")
    params = sent.get("custom_params") if endpoint is CHAT else None
    assert decode_params(params) is None


@given(bodies)
@example({"sampling_params": 1})
def test_what_the_gateway_lets_through_the_engine_does_not_refuse(body):
    from types import SimpleNamespace

    sampling = body.get("sampling_params")
    makes_sense = sampling is None or isinstance(sampling, dict)  # what does not is refused before it streams
    if why_not_resumable(GENERATE, body) is not None or not makes_sense:
        return
    params = {
        "custom_params": {"resume_ids": [1]},
        **{k: v for k, v in (sampling or {}).items() if k in ("n", "beam_width")},
    }
    try:
        check(SimpleNamespace(**{**body, "sampling_params": params}), vocabulary=512, incremental=False)
    except BadResumptionError as refused:
        pytest.fail(str(refused))


# --- events of /generate ---


def event(text, count, finish=None, **meta):
    ids = list(range(count + 2))  # live: ahead of the text
    return {"text": text, "output_ids": ids, "meta_info": {"completion_tokens": count, "finish_reason": finish, **meta}}


def test_only_the_tokens_that_belong_to_the_text_are_committed():
    assert committed_ids(event("abc", 3)) == (0, 1, 2)


@pytest.mark.parametrize(
    ("said", "sent", "less"),
    [
        (event("ab", 3), "abc", True),
        (event("abc", 3), "abc", False),
        (event("abcd", 4), "abc", False),
        (event("ab", 4, {"type": "stop", "matched": "cd"}), "abc", False),
    ],
)
def test_an_event_behind_the_client_is_held_back_unless_it_is_the_end(said, sent, less):
    assert says_less(said, sent) is less


def test_logprobs_of_committed_tokens_are_those_of_the_engine_that_made_them():
    earlier = event(
        "ab", 2, output_token_logprobs=[[-1, 0, "a"], [-2, 1, "b"], [-9, 2, "x"]], input_token_logprobs=[[-3, 5, "p"]]
    )
    blank = [0, 0, "?"]
    later = event(
        "abc", 3, output_token_logprobs=[blank, blank, [-4, 2, "c"]], output_top_logprobs=[], input_token_logprobs=[]
    )
    mended = with_earlier_logprobs(later, earlier, 2)
    assert mended["meta_info"]["output_token_logprobs"] == [[-1, 0, "a"], [-2, 1, "b"], [-4, 2, "c"]]
    assert mended["meta_info"]["input_token_logprobs"] == [[-3, 5, "p"]]
    assert mended["meta_info"]["output_top_logprobs"] == []
    assert later["meta_info"]["output_token_logprobs"][0] == blank, "the event is not changed in place"
    plain = event("abc", 3)
    assert with_earlier_logprobs(plain, event("ab", 2), 2) == plain
