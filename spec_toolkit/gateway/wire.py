"""Requests and events as they pass: what an engine is sent, and what its events say at a glance. Pure.

What can go on elsewhere, and how it is written for the next engine, stands in `engine.resume`; the words both sides of the wire read, in
`spec_toolkit.resumption`. This is what only a gateway asks of bytes that it forwards.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import orjson

from spec_toolkit.engine.resume import Endpoint, first_request, resumed_request, why_not_resumable
from spec_toolkit.gateway.refusal import Reason, Refused
from spec_toolkit.resumption import Resumption, without_keys

DONE = b"data: [DONE]"
ERROR = b'data: {"error"'
_CREATED = re.compile(rb'"created":\d+')
_PARAMS = "custom_params"

# What the engine calls a request, and how the client's name for it is written inside a JSON string; empty: they are alike.
# No name is another's beginning: an engine that is told to abort one ends every request whose name begins so. A client's own never
# gets there, for it may be that, or name a request of somebody else, or be one that the engine keeps for its health checks.
Names = tuple[tuple[bytes, bytes], ...]


class Kind(Enum):
    GENERATE = "/generate"
    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"  # passed on; a stream of it is not continued


@dataclass(frozen=True, slots=True)
class Request:
    """One request for tokens, as it goes to an engine."""

    kind: Kind
    stream: bool
    rid: str | None  # the client's name for it, and a chat stream's chunk id; None: the engine chooses
    cannot: str  # why it cannot go on elsewhere, after "this request"; empty: it can
    body: bytes  # as it is first sent
    names: Names  # in `body`


def read_request(kind: Kind, content: bytes) -> Request:
    """Raises Refused where it is none. Takes our own keys out of what a client sends, and its name for the request."""
    try:
        said = orjson.loads(content)
    except orjson.JSONDecodeError:
        said = None
    if not isinstance(said, dict):
        raise Refused(Reason.BAD_REQUEST, "The request's body is no JSON object.", "Send one.")
    if not isinstance(said.get("stream"), bool | None):  # an engine takes 1 and "yes" for true as well
        raise Refused(Reason.BAD_REQUEST, "`stream` is neither true nor false.", "Send one of them, or leave it out.")
    if said.get("stream", ...) is None:  # as many clients write what is left out; /generate would refuse it
        del said["stream"]
    stream = said.get("stream") is True
    cannot = _why_not(kind, said) if stream else "is answered whole"
    if isinstance(said.get("rid"), list):  # the engine names each prompt of several itself
        del said["rid"]
    given = said.get("rid")
    rid = given if isinstance(given, str) else None
    if cannot:
        body, names = _named(_plain(said), rid)
        return Request(kind, stream, rid, cannot, _written(body), names)
    engines, names = _fresh(rid)
    body = first_request(Endpoint(kind.value), said, engines)
    return Request(kind, stream, engines if rid is None else rid, "", _written(body), names)


def without_records(request: Request) -> Request:
    """For an engine that will not write commit records for it: served as it is, and not continued."""
    body, names = _named(_plain(orjson.loads(request.body)), request.rid)
    return replace(request, cannot="is refused as such by the engine", body=orjson.dumps(body), names=names)


def again(request: Request, resumption: Resumption | None) -> tuple[bytes, Names]:
    """The body that makes an engine go on after what was committed, under another name: one may still hold an earlier attempt."""
    said = orjson.loads(request.body)
    if request.cannot:
        said, names = _named(said, request.rid)
        return orjson.dumps(said), names
    engines, names = _fresh(request.rid)
    return orjson.dumps(resumed_request(Endpoint(request.kind.value), said, engines, resumption)), names


def renamed(said: bytes, names: Names) -> bytes:
    """Whole events, or a whole answer, as the client knows its request."""
    for engines, clients in names:
        said = said.replace(engines, clients)
    return said


def _written(said: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(said)
    except orjson.JSONEncodeError as error:  # what is read may be nested deeper than what is written
        raise Refused(
            Reason.BAD_REQUEST, "The request's body is nested too deeply.", "Send 200 levels at most."
        ) from error


def _fresh(rid: str | None) -> tuple[str, Names]:
    engines = uuid.uuid4().hex
    return engines, () if rid is None else ((engines.encode(), orjson.dumps(rid)[1:-1]),)


def _named(said: dict[str, Any], rid: str | None) -> tuple[dict[str, Any], Names]:
    if rid is None:
        return said, ()
    engines, names = _fresh(rid)
    return {**said, "rid": engines}, names


def _why_not(kind: Kind, said: Mapping[str, Any]) -> str:
    if kind is Kind.COMPLETIONS:
        return "comes by /v1/completions"
    if not isinstance(said.get("rid"), str | list | None):
        return "has an id that is no text"
    refusal = why_not_resumable(Endpoint(kind.value), said)
    return f"asks for what lives in one engine ({refusal.key}: {refusal.reason.value})" if refusal else ""


def _plain(said: dict[str, Any]) -> dict[str, Any]:
    """Without keys of ours, wherever a client may have written them."""
    holders = said.get("sampling_params")
    for holder in (said, *(holders if isinstance(holders, list) else [holders])):
        params = holder.get(_PARAMS) if isinstance(holder, dict) else None
        if isinstance(params, dict):
            holder[_PARAMS] = without_keys(params) or None
    return said


def is_abort(event: bytes) -> bool:
    """The engine gave up on it without saying that the request was at fault: no answer, whatever it looks like.

    `event` may also be a whole answer. Inside a string of JSON the quotes would be escaped, so that most are told at a glance.
    """
    if b'"abort"' not in event:
        return False
    try:
        said = orjson.loads(event.removeprefix(b"data: "))
    except orjson.JSONDecodeError:
        return False
    answers = said if isinstance(said, list) else [said]
    return any(_is_aborted(answer) for answer in answers if isinstance(answer, dict))


def abort_status(event: Mapping[str, Any]) -> int | None:
    """Of an event of /generate that ends in an abort and says whose fault that is, as an HTTP status; else None."""
    finish = (event.get("meta_info") or {}).get("finish_reason")
    status = finish.get("status_code") if isinstance(finish, dict) and finish.get("type") == "abort" else None
    return status if isinstance(status, int) else None


def _is_aborted(answer: Mapping[str, Any]) -> bool:
    choices = answer.get("choices")
    if isinstance(choices, list):
        return any(isinstance(choice, dict) and choice.get("finish_reason") == "abort" for choice in choices)
    finish = (answer.get("meta_info") or {}).get("finish_reason")
    return isinstance(finish, dict) and finish.get("type") == "abort" and finish.get("status_code") is None


def created_in(event: bytes) -> bytes | None:
    found = _CREATED.search(event)
    return found.group() if found else None


def is_resumption_refusal(answer: bytes) -> bool:
    return b"[resume." in answer
