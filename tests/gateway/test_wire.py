"""Requests as they go to engines, first and again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.gateway.refusal import Refused
from spec_toolkit.gateway.wire import Kind, again, is_abort, read_request, without_records
from spec_toolkit.resumption import Resumption, decode_params

CHAT = {"messages": [{"role": "user", "content": "x"}], "stream": True}
GENERATE = {"text": "x", "stream": True}


def read(kind: Kind, body: object) -> tuple[object, dict[str, object]]:
    asked = read_request(kind, json.dumps(body).encode())
    return asked, json.loads(asked.body)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        pytest.param(Kind.CHAT, {**CHAT, "n": 2}, id="choices"),
        pytest.param(Kind.CHAT, {**CHAT, "rid": {"a": 1}}, id="no-name"),
        pytest.param(Kind.CHAT, {**CHAT, "stream": False}, id="whole"),
        pytest.param(Kind.CHAT, {**CHAT, "messages": [{"content": [{"type": "image_url"}]}]}, id="an-image"),
        pytest.param(Kind.GENERATE, {**GENERATE, "text": ["x", "y"]}, id="prompts"),
        pytest.param(Kind.GENERATE, {**GENERATE, "sampling_params": {"n": 2}}, id="generate-choices"),
        pytest.param(Kind.COMPLETIONS, {"prompt": "x", "stream": True}, id="completions"),
    ],
)
def test_what_does_not_go_on_is_sent_as_it_came(kind, body):
    asked, sent = read(kind, body)
    assert asked.cannot
    assert sent == body


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        pytest.param(Kind.CHAT, CHAT, id="chat"),
        pytest.param(
            Kind.CHAT, {**CHAT, "n": 1, "tools": [{"type": "function"}], "logprobs": True}, id="chat-with-tools"
        ),
        pytest.param(Kind.GENERATE, GENERATE, id="generate"),
        pytest.param(Kind.GENERATE, {**GENERATE, "sampling_params": None}, id="without-parameters"),
        pytest.param(Kind.GENERATE, {"input_ids": [1, 2], "stream": True, "sampling_params": {"n": 1}}, id="token-ids"),
    ],
)
def test_what_goes_on_is_the_same_request_after_what_was_committed(kind, body):
    asked, _ = read(kind, body)
    assert not asked.cannot
    cuts = ((1, 4), (2, 9)) if kind is Kind.CHAT else ()
    second, names = again(asked, Resumption((5, 6, 7), cuts))
    more = json.loads(second)
    holder = more if kind is Kind.CHAT else more["sampling_params"]
    assert decode_params(holder.pop("custom_params")) == Resumption((5, 6, 7), cuts)
    assert names == ((more.pop("rid").encode(), asked.rid.encode()),)
    first = json.loads(asked.body)
    (first if kind is Kind.CHAT else first["sampling_params"]).pop("custom_params", None)
    first.pop("rid")
    assert more == first
    assert {key: value for key, value in first.items() if key in body and value} == {k: v for k, v in body.items() if v}


def test_every_stream_has_a_name_of_its_own_or_its_clients():
    names = {read(Kind.CHAT, CHAT)[0].rid for _ in range(50)}
    assert len(names) == 50
    assert read(Kind.CHAT, {**CHAT, "rid": "mine"})[0].rid == "mine"


@pytest.mark.parametrize("given", ["mine", "", "HEALTH_CHECK", "a" * 31, ["a", "a_1"], None])
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("stream", [True, False])
def test_no_name_that_an_engine_is_given_begins_as_another_does(kind, stream, given):
    """An engine that is told to abort one ends all whose names begin so; the empty name ends everybody's."""
    told = []
    for _ in range(3):
        asked, first = read(kind, {**CHAT, **GENERATE, "stream": stream, "rid": given})
        bodies = [
            first,
            json.loads(without_records(asked).body),
            *(json.loads(again(asked, None)[0]) for _ in range(3)),
        ]
        told += [body["rid"] for body in bodies if body.get("rid") is not None]
    assert not isinstance(given, str) or len(told) == 15
    assert len(set(told)) == len(told)
    assert not [(one, other) for one in told for other in told if one is not other and other.startswith(one)]


def test_an_engine_that_will_not_write_records_is_not_asked_to():
    asked, _ = read(Kind.CHAT, {**CHAT, "custom_params": {"kept": 1}})
    plain = without_records(asked)
    assert json.loads(plain.body)["custom_params"] == {"kept": 1}
    assert plain.cannot


KEYS = st.sampled_from(
    ["stream", "text", "rid", "n", "messages", "sampling_params", "custom_params", "input_ids", "resume_ids"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(kind=st.sampled_from(Kind), body=JSON)
def test_whatever_is_sent_is_refused_with_a_sentence_or_read(kind, body):
    try:
        asked = read_request(kind, json.dumps(body).encode())
    except Refused as refused:
        said = refused
    else:
        assert isinstance(json.loads(asked.body), dict)
        return
    assert said.status == 400
    assert not isinstance(body, dict) or not isinstance(body.get("stream"), bool | None)


@pytest.mark.parametrize("stream", [1, 0, 1.0, "true", "yes", "", [], {}])
@pytest.mark.parametrize("kind", Kind)
def test_what_engines_may_take_for_a_stream_and_we_do_not_is_refused(kind, stream):
    with pytest.raises(Refused) as refused:
        read(kind, {**CHAT, **GENERATE, "stream": stream})
    assert (refused.value.status, refused.value.reason.value) == (400, "gateway.bad-request")


@pytest.mark.parametrize("stream", [None, False])
def test_what_no_engine_takes_for_a_stream_is_answered_whole(stream):
    assert not read(Kind.CHAT, {**CHAT, "stream": stream})[0].stream


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("levels", [200, 260, 1000, 2000])
def test_a_body_nested_too_deeply_is_a_bad_request(kind, stream, levels):
    deep = json.dumps({**CHAT, **GENERATE, "stream": stream})[:-1] + f', "more": {"[" * levels}{"]" * levels}}}'
    if levels == 200:
        read_request(kind, deep.encode())
        return
    with pytest.raises(Refused) as refused:
        read_request(kind, deep.encode())
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("event", "aborted"),
    [
        (b'data: {"choices":[{"finish_reason":"abort"}]}', True),
        (b'{"text":"","meta_info":{"finish_reason":{"type":"abort"}}}', True),
        (b'[{"meta_info":{"finish_reason":null}},{"meta_info":{"finish_reason":{"type":"abort"}}}]', True),
        (b'{"meta_info":{"finish_reason":{"type":"abort","status_code":400}}}', False),
        (b'{"text":"\\"abort\\"","meta_info":{"finish_reason":{"type":"stop"}}}', False),
        (b'{"choices":[{"delta":{"content":"abort"},"finish_reason":null}]}', False),
        (b'data: {"abort"', False),
        (b'["abort"]', False),
    ],
)
def test_an_abort_is_told_from_the_word(event, aborted):
    assert is_abort(event) is aborted
