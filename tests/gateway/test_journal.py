"""Any stream, through any engines, in pieces of any size, cut anywhere: the client holds the whole answer once."""

import itertools
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.gateway import journal as journals
from spec_toolkit.gateway import wire
from spec_toolkit.gateway.events import Events
from spec_toolkit.gateway.journal import AbortedError, ChatJournal, GenerateJournal, MalformedError
from spec_toolkit.gateway.stream import journal_for
from spec_toolkit.gateway.wire import Kind
from tests.gateway.client_side import Held, fold
from tests.gateway.fake_engine import PROMPT_TOKENS, answer_ids, chat_pieces, generate_pieces, logprobs_of, text_of

TOKENS = 14


def request(kind: Kind, prompt: str = "hello", **more: object) -> wire.Request:
    if kind is Kind.CHAT:
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": TOKENS, "stream": True, **more}
    else:
        body = {"text": prompt, "sampling_params": {"max_new_tokens": TOKENS}, "stream": True, **more}
    return wire.read_request(kind, json.dumps(body).encode())


def stream_of(asked: wire.Request, body: bytes, seed: int) -> bytes:
    said = json.loads(body)
    return b"".join(chat_pieces(said, seed) if asked.kind is Kind.CHAT else generate_pieces(said, seed))


def through(asked: wire.Request, cuts: list[float], shuffle: int, seeds: list[int]) -> bytes:
    """What a client gets of engines that each break after that share of what they say; the last does not."""
    journal, draw, sent = journal_for(asked), random.Random(shuffle), b""  # noqa: S311 - seeded, so that a run repeats
    body = asked.body
    for attempt in itertools.count():
        said = stream_of(asked, body, seeds[attempt % len(seeds)])
        if attempt < len(cuts):
            said = said[: int(len(said) * cuts[attempt])]
        while said:
            size = draw.choice((1, 7, 60, 100_000))
            sent += journal.take(said[:size])
            assert journal.trouble is None
            said = said[size:]
        if journal.finished:
            return sent
        journal.cut()
        if journal.finished:
            return sent + wire.DONE + b"\n\n"
        assert not journal.why_not
        assert attempt < len(cuts)
        body, journal.names = wire.again(asked, journal.resumption())
    raise AssertionError


def expected(asked: wire.Request, prompt: str = "hello") -> Held:
    ids = answer_ids(prompt, TOKENS)
    held = Held(text=text_of(ids), finish=["length"], names={asked.rid}, done=1)
    if asked.kind is Kind.CHAT:
        held.roles, held.usage = 1, [{"prompt_tokens": PROMPT_TOKENS, "completion_tokens": TOKENS}]
    else:
        held.ids = ids
    return held


def held_of(sent: bytes) -> Held:
    """Less what differs from run to run."""
    held = fold(sent)
    assert len(held.created) <= 1
    return replace(held, created=set(), events=0)


@pytest.mark.parametrize("kind", [Kind.CHAT, Kind.GENERATE])
def test_cut_at_every_byte_nothing_is_lost_or_doubled(kind):
    asked = request(kind)
    length = len(stream_of(asked, asked.body, 1))
    for cut in range(length + 1):
        assert held_of(through(asked, [cut / length], cut, [1, 2])) == expected(asked), cut


@given(
    kind=st.sampled_from([Kind.CHAT, Kind.GENERATE]),
    prompt=st.text(max_size=20),
    cuts=st.lists(st.floats(0, 1), max_size=4),
    shuffle=st.integers(0, 2**32),
    seeds=st.lists(st.integers(0, 1000), min_size=1, max_size=5),
)
def test_cut_anywhere_and_again_nothing_is_lost_or_doubled(kind, prompt, cuts, shuffle, seeds):
    asked = request(kind, prompt)
    assert held_of(through(asked, cuts, shuffle, seeds)) == expected(asked, json.loads(json.dumps(prompt)))


@given(cuts=st.lists(st.floats(0, 1), max_size=3), shuffle=st.integers(0, 2**32))
def test_log_probabilities_are_those_of_the_engine_that_made_the_token(cuts, shuffle):
    asked = request(Kind.GENERATE, return_logprob=True)
    held = fold(through(asked, cuts, shuffle, [1, 2, 3, 4]))
    ids = answer_ids("hello", TOKENS)
    assert [row[1] for row in held.logprobs] == ids
    makers = [round(-row[0] - place) for place, row in enumerate(held.logprobs)]
    assert makers == sorted(makers)
    assert set(makers) <= {1, 2, 3, 4}
    assert makers[0] != 0
    if not cuts:
        assert held.logprobs == logprobs_of(ids, 0, 1)


@given(st.binary(max_size=200), st.integers(0, 2**32))
def test_events_do_not_depend_on_how_bytes_are_cut(said, shuffle):
    draw, events, whole = random.Random(shuffle), Events(), []  # noqa: S311 - seeded, so that a run repeats
    rest = said.replace(b"\x00", b"\n\n")
    full = rest
    while rest:
        size = draw.randint(1, 9)
        whole += events.feed(rest[:size])
        rest = rest[size:]
    assert whole == full.split(b"\n\n")[:-1]


def abort_of(kind: Kind, status: int | None = None) -> bytes:
    if kind is Kind.CHAT:
        return b'data: {"id":"x","created":1,"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n'
    reason = {"type": "abort", "message": "Abort", **({"status_code": status} if status else {})}
    meta = {"id": "x", "finish_reason": reason, "completion_tokens": 0}
    return (
        b"data: "
        + json.dumps({"text": "", "output_ids": [], "meta_info": meta}, separators=(",", ":")).encode()
        + b"\n\n"
    )


@pytest.mark.parametrize("kind", [Kind.CHAT, Kind.GENERATE])
def test_an_abort_without_a_status_is_a_loss_and_what_was_committed_before_it_is_forwarded(kind):
    asked = request(kind)
    first = next(
        chat_pieces(json.loads(asked.body), 1) if kind is Kind.CHAT else generate_pieces(json.loads(asked.body), 1)
    )
    journal = journal_for(asked)
    said = journal.take(first + abort_of(kind) + b"data: [DONE]\n\n")
    assert isinstance(journal.trouble, AbortedError)
    assert not journal.finished
    assert fold(said).text == text_of(answer_ids("hello", TOKENS))[: len(fold(said).text)] != ""
    journal.cut()
    resumption = journal.resumption()
    assert resumption is not None
    assert text_of(list(resumption.ids)) == fold(said).text


def test_an_abort_with_a_status_is_the_engines_answer():
    journal = GenerateJournal()
    assert journal.take(abort_of(Kind.GENERATE, 400) + b"data: [DONE]\n\n")
    assert journal.trouble is None
    assert journal.finished


def test_the_word_abort_in_an_answer_is_only_a_word():
    said = b'data: {"id":"x","created":1,"choices":[{"index":0,"delta":{"content":"abort"},"finish_reason":null}]}\n\n'
    journal = ChatJournal()
    journal.take(said)
    assert journal.trouble is None


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(b': resume {"ids":[1,2],"chars":-1}', id="negative"),
        pytest.param(b': resume {"ids":[1.5],"chars":1}', id="a-fraction"),
        pytest.param(b': resume {"ids":[4294967296],"chars":1}', id="too-large"),
        pytest.param(b": resume nonsense", id="no-json"),
        pytest.param(b': resume {"chars":1}', id="no-ids"),
    ],
)
def test_a_broken_record_costs_the_resumption_and_not_the_stream(record):
    asked = request(Kind.CHAT)
    pieces = list(chat_pieces(json.loads(asked.body), 1))
    journal = ChatJournal()
    sent = journal.take(pieces[0] + record + b"\n\n" + b"".join(pieces[1:]))
    assert held_of(sent) == expected(asked)
    assert "cannot be read" in journal.why_not
    assert journal.resumption() is None


def test_an_engine_that_writes_no_records_is_served_and_not_resumed():
    asked = request(Kind.CHAT)
    said = {**json.loads(asked.body), "custom_params": None, "max_tokens": 400}
    journal = ChatJournal()
    sent = b"".join(map(journal.take, chat_pieces(said, 1)))
    assert fold(sent).text == text_of(answer_ids("hello", 400))
    assert "no commit records" in journal.why_not


def test_a_generate_stream_of_differences_is_not_resumed():
    asked = request(Kind.GENERATE)
    journal = GenerateJournal()
    meta = {"id": asked.rid, "finish_reason": None, "completion_tokens": 7}
    journal.take(b"data: " + json.dumps({"text": "w", "output_ids": [9], "meta_info": meta}).encode() + b"\n\n")
    journal.cut()
    assert journal.why_not


@pytest.mark.parametrize("last", [b"data: {", b"data: []", b'data: {"text":"a"}'])
def test_a_generate_stream_whose_last_event_cannot_be_read_is_not_made_anew(last):
    journal = GenerateJournal()
    assert journal.take(last + b"\n\n")
    journal.cut()
    assert journal.why_not


def test_an_event_without_an_end_is_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr("spec_toolkit.gateway.events.MOST_EVENT_BYTES", 1000)
    journal = ChatJournal()
    for _ in range(40):
        journal.take(b"x" * 100)
        if journal.trouble:
            break
    assert isinstance(journal.trouble, MalformedError)


def test_a_stream_that_outgrows_its_journal_is_served_to_its_end(monkeypatch):
    monkeypatch.setattr(journals, "MOST_TOKENS", 8)
    monkeypatch.setattr(journals, "MOST_KEPT_BYTES", 100)
    for kind in (Kind.CHAT, Kind.GENERATE):
        asked = request(kind)
        journal = journal_for(asked)
        assert held_of(journal.take(stream_of(asked, asked.body, 1))) == expected(asked)
        assert journal.why_not


def test_a_stream_made_anew_after_the_role_was_told_tells_it_once():
    asked = request(Kind.CHAT)
    whole = stream_of(asked, asked.body, 1)
    role = whole.split(b"\n\n", 1)[0]
    journal = ChatJournal()
    sent = journal.take(role + b"\n\n" + b': resume {"ids":[],"chars":0}\n\n')
    assert fold(sent).roles == 1
    journal.cut()
    assert journal.resumption() is None
    sent += journal.take(whole)
    assert held_of(sent) == expected(asked)


def said_by(rid: str, text: str, ids: list[int], finish: str | None = None) -> bytes:
    meta = {"id": rid, "finish_reason": {"type": finish} if finish else None, "completion_tokens": len(ids)}
    return (
        b"data: "
        + json.dumps({"text": text, "output_ids": ids, "meta_info": meta}, separators=(",", ":")).encode()
        + b"\n\n"
    )


def test_an_engine_that_says_less_than_the_client_has_is_waited_for():
    """One decode of all tokens may end in an incomplete character, and hides what came before it."""
    journal = GenerateJournal()
    journal.take(said_by("mine", "one two ", [4, 5]))
    journal.cut()
    journal.names = ((b"second", b"mine"),)
    assert journal.take(said_by("second", "one ", [4, 5, 6])) == b""
    assert journal.take(said_by("second", "one two \u00e9", [4, 5, 6, 7])) == said_by(
        "mine", "one two \u00e9", [4, 5, 6, 7]
    )


def test_an_answer_that_ends_shorter_ends():
    """A stop string is cut off its end."""
    journal = GenerateJournal()
    journal.take(said_by("mine", "one two st", [4, 5, 6]))
    journal.cut()
    journal.names = ((b"second", b"mine"),)
    assert journal.take(said_by("second", "one two ", [4, 5, 6, 7], "stop")) == said_by(
        "mine", "one two ", [4, 5, 6, 7], "stop"
    )
