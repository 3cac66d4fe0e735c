"""What is said of a stream so that another engine can go on, what a scheduler makes of it, and what is refused."""

import asyncio
from array import array
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.plugin import resume_chat
from spec_toolkit.plugin.resume import REFUSED_ATTRIBUTES, check, check_ids
from spec_toolkit.plugin.resume_penalties import fed_tokens, rebuild
from spec_toolkit.plugin.resume_queue import enter, take
from spec_toolkit.resumption import (
    KEYS,
    BadResumptionError,
    Resumption,
    Step,
    asks_records,
    decode_params,
    decode_record,
    encode_params,
    encode_record,
    resumption_after,
    without_keys,
)

tokens = st.integers(0, 200_000)
steps = st.builds(Step, st.lists(tokens, max_size=5).map(tuple), st.integers(0, 40))
# Some steps without a token are possible, as many as there are tokens are not.
streams = st.lists(steps, max_size=40).filter(lambda said: len(said) <= 2 * sum(len(step.ids) for step in said) + 32)


@given(steps)
def test_a_record_is_read_as_it_was_written(step):
    written = encode_record(step)
    assert written.startswith(":"), "to a client it is a comment"
    assert written.endswith("\n\n")
    assert written.count("\n") == 2
    assert decode_record(written.split("\n")[0].encode()) == step


@given(streams, st.data())
def test_cut_anywhere_the_next_engine_is_told_what_was_committed(said, data):
    cut = data.draw(st.integers(0, len(said)))
    resumption = resumption_after(said[:cut])
    committed = tuple(token for step in said[:cut] for token in step.ids)
    if not committed:
        assert resumption is None, "a stream cut before its first token is a new request"
        return
    assert resumption is not None
    params = encode_params(resumption)
    assert decode_params(params) == resumption
    assert resumption.ids == committed
    assert resumption.chars == sum(step.chars for step in said[:cut])


@given(streams, st.data())
def test_resumed_twice_is_resumed_once_further(said, data):
    first = data.draw(st.integers(0, len(said)))
    second = data.draw(st.integers(first, len(said)))
    through = [*said[:first], *said[first:second]]
    assert resumption_after(through) == resumption_after(said[:second])


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
params = st.dictionaries(
    st.sampled_from([*KEYS, "thinking_budget"]), anything | st.lists(tokens, max_size=6), max_size=4
)


def outcome(read, given):
    """What it reads, and what it says where it refuses."""
    try:
        return read(given), None
    except BadResumptionError as refused:
        return None, str(refused)


@given(params | anything)
def test_whatever_is_sent_is_a_resumption_or_an_answer_in_words(sent):
    resumption, refused = outcome(decode_params, sent)
    assert refused is None or "[resume." in refused
    assert resumption is None or decode_params(encode_params(resumption)) == resumption


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda rest: b": resume " + rest))
def test_a_line_is_a_record_or_none_or_an_error_in_words(line):
    step, refused = outcome(decode_record, line)
    assert refused is None or "[resume.record]" in refused
    assert (step is not None) <= line.startswith(b": resume ")


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({"resume_ids": []}, id="no-ids"),
        pytest.param({"resume_ids": "1,2"}, id="text"),
        pytest.param({"resume_ids": [1, -1]}, id="below-zero"),
        pytest.param({"resume_ids": [1, True]}, id="boolean"),
        pytest.param({"resume_ids": [1, 2.0]}, id="float"),
        pytest.param({"resume_ids": [1, 1 << 40]}, id="huge"),
        pytest.param({"resume_steps": [1, 2]}, id="steps-alone"),
        pytest.param({"resume_ids": [1, 2], "resume_steps": [1, 4]}, id="a-token-too-few"),
        pytest.param({"resume_ids": [1, 2], "resume_steps": [3, 4]}, id="a-token-too-many"),
        pytest.param({"resume_ids": [1, 2], "resume_steps": [2]}, id="half-a-step"),
        pytest.param({"resume_ids": [1, 2], "resume_steps": [2, -4]}, id="negative-text"),
        pytest.param({"resume_ids": [1], "resume_steps": [1, 0] + [0, 0] * 100}, id="a-crowd-of-empty-steps"),
    ],
)
def test_what_does_not_fit_together_is_refused(sent):
    with pytest.raises(BadResumptionError):
        decode_params(sent)


@pytest.mark.parametrize(
    ("sent", "resumption"),
    [
        pytest.param(None, None, id="no-params"),
        pytest.param({}, None, id="empty"),
        pytest.param({"resume_records": True}, None, id="records-alone"),
        pytest.param({"thinking_budget": 4}, None, id="anothers-key"),
        pytest.param({"resume_ids": [0]}, Resumption((0,)), id="one-token"),
        pytest.param({"resume_ids": [7, 8], "resume_steps": []}, Resumption((7, 8)), id="no-steps"),
        pytest.param(
            {"resume_ids": [7], "resume_steps": [1, 0, 0, 3]}, Resumption((7,), ((1, 0), (0, 3))), id="late-text"
        ),
    ],
)
def test_near_misses_pass(sent, resumption):
    assert decode_params(sent) == resumption


@pytest.mark.parametrize(
    ("sent", "asks"), [(None, False), ({"resume_records": True}, True), ({"resume_records": 1}, False)]
)
def test_records_come_only_where_they_are_asked_for(sent, asks):
    assert asks_records(sent) is asks


def test_other_peoples_keys_stay():
    assert without_keys({"resume_ids": [1], "thinking_budget": 3}) == {"thinking_budget": 3}


# --- judged before a scheduler hears of it ---


def asked(custom: object = None, sampling: dict[str, object] | None = None, **fields: object) -> SimpleNamespace:
    return SimpleNamespace(sampling_params={"custom_params": custom, **(sampling or {})}, **fields)


RESUMED = {"resume_ids": [1, 2, 3]}


@pytest.mark.parametrize("name", REFUSED_ATTRIBUTES)
@pytest.mark.parametrize("custom", [RESUMED, {"resume_records": True}], ids=["resumed", "records"])
def test_what_tokens_alone_do_not_restore_is_refused_in_words(name, custom):
    with pytest.raises(BadResumptionError, match=r"\[resume.unsupported\]"):
        check(asked(custom, **{name: ["something"]}), vocabulary=512, incremental=False)
    for absent in (None, False, [], "", {}):
        check(asked(custom, **{name: absent}), vocabulary=512, incremental=False)


@pytest.mark.parametrize("sampling", [{"n": 2}, {"beam_width": 4}])
def test_several_answers_are_refused_and_one_is_not(sampling):
    with pytest.raises(BadResumptionError, match=r"\[resume.unsupported\]"):
        check(asked(RESUMED, sampling), vocabulary=512, incremental=False)
    check(asked(RESUMED, dict.fromkeys(sampling, 1)), vocabulary=512, incremental=False)


def test_an_engine_that_streams_differences_is_refused():
    with pytest.raises(BadResumptionError, match="incremental"):
        check(asked({"resume_records": True}), vocabulary=512, incremental=True)


def test_a_request_without_our_keys_is_nobodys_business():
    check(asked({"thinking_budget": 1}, {"n": 7}, lora_path="x"), vocabulary=512, incremental=True)
    check(SimpleNamespace(sampling_params=[{}]), vocabulary=512, incremental=True)
    check(SimpleNamespace(sampling_params=None), vocabulary=512, incremental=True)


@pytest.mark.parametrize(
    ("ids", "limit", "says"),
    [
        ((1, 511), 3, None),
        ((1, 777), 3, "token 1 of 2 is none of the vocabulary's 512"),
        ((1, 2), 2, "none is left"),
        ((1, 2), 1, "none is left"),
        ((1, 2), None, None),
        ((1, 2), "2", None),
    ],
)
def test_ids_are_of_the_vocabulary_and_leave_a_token_to_make(ids, limit, says):
    if says is None:
        check_ids(ids, vocabulary=512, limit=limit)
    else:
        with pytest.raises(BadResumptionError, match=says) as refused:
            check_ids(ids, vocabulary=512, limit=limit)
        assert "777" not in str(refused.value), "a client's token"


# --- entering a queue ---


class Grammar:
    """Allows 1, 2, 3, ... in order and ends after `last`."""

    def __init__(self, last: int = 100) -> None:
        self.at = 0
        self.last = last

    def is_terminated(self) -> bool:
        return self.at == self.last

    def accept_token(self, token: int) -> None:
        if token != self.at + 1:
            raise ValueError(f"Tokens not accepted: {token}")
        self.at = token


class Request:
    """As much of the engine's request as is touched."""

    vocab_size = 512
    session = beam_group = input_embeds = grammar = to_finish = None

    def __init__(self, custom: object, *, logprobs: bool = False, **fields: object) -> None:
        self.sampling_params = SimpleNamespace(custom_params=custom, max_new_tokens=16)
        self.origin_input_ids = array("q", [9, 9])
        self.output_ids = array("q")
        self.return_logprob = logprobs
        self.logprob_start_len = 2
        kinds = [
            f"output_{k}_{p}" for k in ("token_logprobs", "top_logprobs", "token_ids_logprobs") for p in ("val", "idx")
        ]
        self.logprob = SimpleNamespace(**{kind: [] for kind in kinds})
        self.error: str | None = None
        vars(self).update(fields)

    def finished(self) -> bool:
        return False

    def set_finish_with_abort(self, message: str) -> None:
        self.error = message


def entered(
    custom: object, *, is_split: bool = False, counted: list[list[int]] | None = None, **fields: object
) -> Request:
    request = Request(custom, **fields)
    enter(
        request, is_split=is_split, count_reasoning=lambda _, ids: (counted if counted is not None else []).append(ids)
    )
    return request


def test_a_resumed_request_looks_as_if_it_had_made_its_tokens():
    counted: list[list[int]] = []
    request = entered({"resume_ids": [1, 2, 3], "mine": 1}, counted=counted, grammar=Grammar(), logprobs=True)
    assert request.error is None
    assert list(request.output_ids) == [1, 2, 3]
    assert request.grammar.at == 3
    assert counted == [[1, 2, 3]]
    assert request.logprob_start_len == 5
    assert {len(rows) for rows in vars(request.logprob).values()} == {3}
    assert request.sampling_params.custom_params == {"mine": 1}


def test_it_is_primed_once_even_if_it_comes_back():
    request = entered(RESUMED)
    request.output_ids.append(4)
    enter(request, is_split=False, count_reasoning=lambda *_: pytest.fail("counted twice"))
    assert list(request.output_ids) == [1, 2, 3, 4]
    assert request.error is None


@pytest.mark.parametrize("custom", [None, {}, {"thinking_budget": 1}, {"resume_records": True}])
def test_a_request_that_resumes_nothing_is_left_as_it_is(custom):
    request = entered(custom, counted=[])
    assert (list(request.output_ids), request.error, request.logprob_start_len) == ([], None, 2)


def test_without_other_keys_no_parameters_are_left():
    sampling = SimpleNamespace(custom_params={"resume_records": True})
    assert take(sampling) is None
    assert sampling.custom_params is None


@pytest.mark.parametrize(
    ("custom", "fields", "says"),
    [
        pytest.param({"resume_ids": [512]}, {}, "vocabulary", id="vocabulary"),
        pytest.param({"resume_ids": list(range(16))}, {}, "none is left", id="no-token-left"),
        pytest.param({"resume_ids": [1], "resume_steps": [2, 2]}, {}, "another text", id="steps"),
        pytest.param({"resume_ids": {}}, {}, "no list", id="no-list"),
        pytest.param({"resume_ids": [1, 3]}, {"grammar": Grammar()}, "does not allow token 1", id="grammar"),
        pytest.param(
            {"resume_ids": [1, 2, 3]}, {"grammar": Grammar(last=2)}, "ends before token 2", id="grammar-ended"
        ),
        pytest.param(RESUMED, {"grammar": object()}, "[resume.failed]", id="a-defect-of-ours"),
        pytest.param(RESUMED, {"session": object()}, "session", id="session"),
        pytest.param(RESUMED, {"beam_group": object()}, "beams", id="beams"),
        pytest.param(RESUMED, {"input_embeds": [[0.0]]}, "embeddings", id="embeddings"),
        pytest.param(RESUMED, {"is_split": True}, "between two engines", id="split"),
        pytest.param(RESUMED, {"output_ids": array("q", [5])}, "of its own", id="already-has-tokens"),
    ],
)
def test_a_scheduler_answers_what_it_cannot_resume_and_never_raises(custom, fields, says):
    request = entered(custom, **fields)
    assert says in str(request.error)
    assert not request.output_ids


class Telling(Grammar):
    """A grammar whose complaints hold tokens, as the engine's do."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.error = error

    def accept_token(self, token: int) -> None:
        raise self.error(f"Tokens not accepted: {token}")


@pytest.mark.parametrize("error", [ValueError, KeyError])
def test_no_token_is_told_to_the_client_or_to_the_log(error, caplog):
    request = entered({"resume_ids": [377]}, grammar=Telling(error))
    assert "[resume." in str(request.error)
    assert "377" not in f"{request.error}{caplog.text}"
    assert ("in accept_token" in caplog.text) == (error is KeyError), (
        "where it was raised, and only what nobody foresaw"
    )


def test_a_request_that_is_already_refused_keeps_its_own_reason():
    request = entered(RESUMED, to_finish="too long")
    assert (request.error, list(request.output_ids), request.sampling_params.custom_params) == (None, [], None)


# --- penalties ---


@given(st.lists(tokens, max_size=20), tokens)
def test_with_overlap_penalties_are_one_token_late(ids, last):
    assert fed_tokens(ids, last, overlap=False) == ids
    late = fed_tokens(ids, last, overlap=True)
    assert late == ([last, *ids][: len(ids)])


def penalised(**penalties: float) -> SimpleNamespace:
    neutral = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}
    return SimpleNamespace(
        output_ids=[3, 3, 4], origin_input_ids=[7], sampling_params=SimpleNamespace(**{**neutral, **penalties})
    )


def test_penalties_are_as_if_every_token_had_been_fed():
    import torch

    requests = [penalised(frequency_penalty=0.5), penalised(), penalised(frequency_penalty=2.0)]
    penalizer = SimpleNamespace(
        cumulated_frequency_penalties=torch.zeros(3, 8), frequency_penalties=torch.tensor([[0.5], [0.0], [2.0]])
    )
    rebuild(penalizer, requests, overlap=False, as_index=torch.tensor)
    assert penalizer.cumulated_frequency_penalties[:, 3:5].tolist() == [[1.0, 0.5], [0.0, 0.0], [4.0, 2.0]]
    repetition = SimpleNamespace(
        cumulated_repetition_penalties=torch.ones(1, 8), repetition_penalties=torch.tensor([[1.5]])
    )
    rebuild(repetition, [penalised(repetition_penalty=1.5)], overlap=True, as_index=torch.tensor)
    assert repetition.cumulated_repetition_penalties.tolist() == [[1, 1, 1, 1.5, 1, 1, 1, 1.5]]
    shortest = SimpleNamespace(len_output_tokens=torch.zeros(1, 1, dtype=torch.int32))
    rebuild(shortest, [penalised()], overlap=True, as_index=torch.tensor)
    assert shortest.len_output_tokens.tolist() == [[3]]


def test_penalties_that_cannot_be_rebuilt_do_not_end_the_rank(caplog):
    broken = SimpleNamespace(cumulated_frequency_penalties=object(), frequency_penalties=object())
    rebuild(broken, [penalised(frequency_penalty=1.0)], overlap=False, as_index=list)
    assert "could not be rebuilt" in caplog.text


# --- chat ---


class Parser:
    """Plays the engine: says each step's new text, in brackets, so that where it was cut shows."""

    async def content(self, handler, *, content, stream_offsets, choice_logprobs, **_):
        said = content["text"][stream_offsets.get(0, 0) :]
        stream_offsets[0] = len(content["text"])
        if said:
            yield f"[{said}]" + "".join(choice_logprobs["content"] if choice_logprobs else ())


TEXT = "abcdefghijkl"


def chat(cuts, *, custom, placeholders=0, finish="length", ahead=3, texts=None):
    """Chunks of a stream that has `cuts` characters after each step, a token a character."""

    async def run():
        said, offsets, logged = [], {}, 0
        request = SimpleNamespace(custom_params=custom)
        for number, cut in enumerate(cuts):
            finished = number == len(cuts) - 1
            reason = {"type": finish} if finished else None
            ids = list(range(cut + ahead))  # live: ahead of the text
            meta = {"completion_tokens": cut, "finish_reason": reason}
            logprobs = {"content": ["_" if at < placeholders else str(at % 10) for at in range(logged, cut)]}
            logged = cut
            arguments = {
                "content": {"text": texts[number] if texts else TEXT[:cut], "output_ids": ids, "meta_info": meta},
                "index": 0,
                "request": request,
                "stream_offsets": offsets,
                "finish_reason_type": finish if finished else None,
                "choice_logprobs": logprobs,
            }
            said += [chunk async for chunk in resume_chat.step(Parser().content, None, arguments)]
        return said

    return asyncio.run(run())


def split(chunks):
    """(what the client is told, the steps) of chunks."""
    records = [decode_record(chunk.split("\n")[0].encode()) for chunk in chunks]
    steps = [step for step in records if step is not None]
    return [chunk for chunk, record in zip(chunks, records, strict=True) if record is None], steps


@given(st.lists(st.integers(1, 11), min_size=1, unique=True).map(sorted), st.data())
def test_a_chat_stream_cut_anywhere_says_the_same_in_the_same_pieces(ends, data):
    cuts = [*ends, 12]
    whole, steps = split(chat(cuts, custom={"resume_records": True}))
    assert len(steps) == len(cuts) - 1, "the last step is committed by the stream's end"
    cut = data.draw(st.integers(1, len(steps)))
    resumption = resumption_after(steps[:cut])
    tail, more = split(
        chat(cuts[cut:], custom={**encode_params(resumption), "resume_records": True}, placeholders=cuts[cut - 1])
    )
    assert whole[:cut] + tail == whole
    assert steps[:cut] + more == steps


def test_records_cut_the_live_list_at_the_text_they_belong_to():
    _, steps = split(chat([2, 5, 12], custom={"resume_records": True}))
    assert steps == [Step((0, 1), 2), Step((2, 3, 4), 3)]


def test_a_stream_that_was_not_asked_for_records_has_none():
    assert chat([2, 5, 12], custom={"resume_ids": [0, 1], "resume_steps": [2, 2]}, placeholders=2) == [
        "[cde]234",
        "[fghijkl]567890" + "1",
    ]


def test_text_behind_what_the_client_has_is_waited_for_with_its_logprobs():
    params = {"resume_ids": [0, 1, 2, 3], "resume_steps": [4, 4], "resume_records": True}
    said, steps = split(chat([5, 6, 12], custom=params, placeholders=4, texts=["abc", "abcdef", TEXT]))
    assert said == ["[ef]45", "[ghijkl]678901"]
    assert steps == [Step((4, 5), 2)]


def test_steps_of_another_text_end_in_an_error_and_a_trimmed_stop_string_does_not():
    params = {"resume_ids": [0, 1], "resume_steps": [2, 40]}
    with pytest.raises(BadResumptionError, match="40 characters"):
        chat([3, 12], custom=params, placeholders=2)
    assert chat([3, 12], custom=params, placeholders=2, finish="abort") == []


@pytest.mark.parametrize(
    ("custom", "said"),
    [
        pytest.param({"resume_ids": [1], "resume_steps": [1, 1]}, ["a", "b"], id="resumed"),
        pytest.param({"resume_records": True}, ['{"role":"assistant"}', "a", "b"], id="near-miss-a-new-stream"),
    ],
)
def test_the_role_is_told_once(custom, said):
    async def chunks():
        for chunk in ('{"role":"assistant"}', "a", "b"):
            yield chunk

    async def run():
        return [chunk async for chunk in resume_chat.without_role(chunks(), custom)]

    assert asyncio.run(run()) == said


def test_a_chat_stream_without_steps_is_refused_before_it_begins():
    async def run():
        async for _ in resume_chat.without_role(None, {"resume_ids": [1]}):
            pass

    with pytest.raises(BadResumptionError, match="missing"):
        asyncio.run(run())
