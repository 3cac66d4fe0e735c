"""Streams cut and resumed as a gateway would, against the uninterrupted stream: for `test_resume_on_the_engine.py`.

Everything after the last commit is thrown away, as it would be if the engine's process had ended.
"""

import http.client
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from spec_toolkit.engine.resume import (
    Endpoint,
    committed_ids,
    resumed_request,
    says_less,
    with_earlier_logprobs,
)
from spec_toolkit.resumption import Resumption, Step, decode_record, resumption_after

ANSWER_SECONDS = 120.0  # on a busy machine
DONE = b"data: [DONE]"
Body = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """What one engine gave before the cut, or to the end."""

    events: list[dict[str, Any]]  # committed
    steps: list[Step] = field(default_factory=list)
    done: bool = False


@contextmanager
def lines(address: str, endpoint: Endpoint, body: Body) -> Iterator[Iterator[bytes]]:
    """The lines of a stream; leaving it early drops the connection."""
    connection = connect(address)
    try:
        connection.request("POST", endpoint.value, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        with answer:
            yield iter(answer.readline, b"")
    finally:
        connection.close()


def connect(address: str) -> http.client.HTTPConnection:
    place = urlsplit(address)
    return http.client.HTTPConnection(place.hostname or "", place.port, timeout=ANSWER_SECONDS)


def ask(address: str, path: str, body: Body) -> tuple[int, Any]:
    connection = connect(address)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def chat_part(address: str, body: Body, commits: int | None = None) -> Part:
    """Committed events; the connection is dropped after `commits` records."""
    events: list[dict[str, Any]] = []
    pending: list[dict[str, Any]] = []
    steps: list[Step] = []
    with lines(address, Endpoint.CHAT, body) as stream:
        for line in stream:
            if commits is not None and len(steps) >= commits:
                break
            step = decode_record(line)
            if step is not None:
                steps.append(step)
                events, pending = events + pending, []
            elif line.startswith(DONE):
                return Part(events + pending, steps, done=True)
            elif line.startswith(b"data: "):
                pending.append(json.loads(line[6:]))
                assert "error" not in pending[-1], pending[-1]
    assert commits is not None, "the stream ended without its [DONE]"
    return Part(events, steps)


def chat_through(engines: Sequence[str], body: Body, cuts: Sequence[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """Events of one stream over `engines`, cut after `cuts[n]` commits on the n-th; and the tokens committed at each cut."""
    rid = f"{uuid.uuid4().hex}-0"
    events: list[dict[str, Any]] = []
    steps: list[Step] = []
    at = []
    for number, engine in enumerate(engines):
        request = resumed_request(Endpoint.CHAT, body, rid_on(engine, engines[:number], rid), resumption_after(steps))
        part = chat_part(engine, request, cuts[number] if number < len(cuts) else None)
        events += part.events
        steps += part.steps
        if part.done:
            break
        at.append(sum(len(step.ids) for step in steps))
    return events, at


def whole_chat(engine: str, body: Body) -> list[dict[str, Any]]:
    return chat_through([engine], body, [])[0]


def whole_generate(engine: str, body: Body) -> list[dict[str, Any]]:
    return generate_through([engine], body, [])[0]


def rid_on(engine: str, before: Sequence[str], rid: str) -> str:
    """An engine that had the stream before and still runs ends whatever has its id, some time after the cut: there it needs another."""
    again = before.count(engine)
    return f"{rid.partition('-')[0]}-{again}"


def folded(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a client of a chat stream holds at its end."""
    held: dict[str, Any] = {
        "content": "",
        "reasoning": "",
        "roles": 0,
        "tools": {},
        "finish": [],
        "logprobs": [],
        "nats": [],
    }
    for choice in (choice for event in events for choice in event["choices"]):
        delta = choice["delta"]
        held["roles"] += delta.get("role") is not None
        held["content"] += delta.get("content") or ""
        held["reasoning"] += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls") or ():
            name, said, ids = held["tools"].get(call["index"], ("", "", 0))
            function = call["function"]
            named = name + (function.get("name") or "")
            held["tools"][call["index"]] = (named, said + (function.get("arguments") or ""), ids + bool(call.get("id")))
        for token in (choice.get("logprobs") or {}).get("content") or ():
            held["logprobs"].append((token["token"], token["bytes"], len(token["top_logprobs"])))
            held["nats"].append(token["logprob"])
        if choice.get("finish_reason"):
            held["finish"].append((choice["finish_reason"], choice.get("matched_stop")))
    held["usage"] = [event["usage"] for event in events if event.get("usage")]
    held["streams"] = len({event["id"].partition("-")[0] for event in events})
    return held


def generate_part(address: str, body: Body, tokens: int | None = None, *, sent: str = "") -> Part:
    """Events of a /generate stream whose texts are not behind `sent`; cut once one of them has `tokens` tokens or more."""
    events: list[dict[str, Any]] = []
    with lines(address, Endpoint.GENERATE, body) as stream:
        for line in stream:
            if line.startswith(DONE):
                return Part(events, done=True)
            if not line.startswith(b"data: "):
                continue
            event = json.loads(line[6:])
            assert "error" not in event, event
            if says_less(event, sent):
                continue
            events.append(event)
            sent = event["text"]
            if tokens is not None and event["meta_info"]["completion_tokens"] >= tokens:
                return Part(events)
    raise AssertionError("the stream ended without its [DONE]")


def generate_through(engines: Sequence[str], body: Body, cuts: Sequence[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """As `chat_through`, cut at the first event of the n-th engine that has `cuts[n]` tokens."""
    rid = f"{uuid.uuid4().hex}-0"
    events: list[dict[str, Any]] = []
    at = []
    for number, engine in enumerate(engines):
        if number and events and events[-1]["meta_info"]["finish_reason"]:
            break
        ids = committed_ids(events[-1]) if events else ()
        rid_here = rid_on(engine, engines[:number], rid)
        request = resumed_request(Endpoint.GENERATE, body, rid_here, Resumption(ids) if ids else None)
        cut = cuts[number] if number < len(cuts) else None
        part = generate_part(engine, request, cut, sent=events[-1]["text"] if events else "")
        last = events[-1] if events else None
        events += [with_earlier_logprobs(event, last, len(ids)) if last else event for event in part.events]
        if not part.done:
            at.append(len(committed_ids(events[-1])))
    return events, at


def last_word(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the final event of a /generate stream says, less what is the engine's own; every event must hold what the last one held."""
    text = ""
    for event in events:
        assert event["text"].startswith(text) or event["meta_info"]["finish_reason"], (text, event["text"])
        text = event["text"]
    meta = events[-1]["meta_info"]
    kept = ("finish_reason", "prompt_tokens", "completion_tokens", "reasoning_tokens")
    said = {"text": text, "output_ids": events[-1]["output_ids"], **{key: meta.get(key) for key in kept}}
    said["streams"] = len({event["meta_info"]["id"].partition("-")[0] for event in events})
    rows = meta.get("output_token_logprobs") or ()
    said["logprobs"] = [row[1:] for row in rows]
    said["top"] = [len(row) for row in meta.get("output_top_logprobs") or ()]
    said["nats"] = [row[0] for row in rows]
    return said
