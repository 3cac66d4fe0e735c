"""What a client already has of its stream, and what may be given to it next. Pure, and only in memory.

`take` is fed the engine's bytes as they come and returns those that may be forwarded: whole events that are committed. When the engine
is lost, `cut` drops what was not, and `resumption` says where the next engine goes on.

Chat: events wait for the commit record behind them; the records' token ids and cut points are kept, 12 bytes a token at most where a
step has one. /generate: each event carries everything so far, so the last one is the journal. A journal holds `MOST_TOKENS` tokens
(chat: 3 MiB) or `MOST_KEPT_BYTES`; a stream that outgrows it is served to its end and cannot go on elsewhere any more.

What is wrong with a piece stands in `trouble` and is for the caller to raise: what was committed before it in the same piece is forwarded.
"""

from array import array
from typing import Any, Protocol

import orjson

from spec_toolkit.engine.resume import committed_ids, says_less, with_earlier_logprobs
from spec_toolkit.gateway import wire
from spec_toolkit.gateway.events import MOST_EVENT_BYTES, Events
from spec_toolkit.resumption import RECORD_PREFIX, Resumption

MOST_TOKENS = 1 << 18
MOST_KEPT_BYTES = 8 << 20  # of one /generate event
MOST_UNCOMMITTED = 64  # events without a record: more than a step ever makes, so this engine writes none
_PREFIX_BYTES = len(RECORD_PREFIX)


class AbortedError(Exception):
    """The engine gave the stream up."""


class MalformedError(Exception):
    """The engine sent what no stream holds."""


class ResumptionRefusedError(Exception):
    """The next engine answered the resumption with an error; the message is the engine's."""


class Journal(Protocol):
    finished: bool  # nothing more belongs to the answer
    forwarded: int  # bytes given to the client
    why_not: str  # why the stream cannot go on elsewhere; empty: it can
    trouble: Exception | None  # what ends this engine's part of the stream
    names: wire.Names  # at the engine it is at

    def take(self, piece: bytes) -> bytes: ...
    def cut(self) -> None: ...
    def resumption(self) -> Resumption | None: ...


class PassingJournal:
    """Of a stream that cannot go on elsewhere: events as they come."""

    def __init__(self, why_not: str) -> None:
        self.finished = False
        self.forwarded = 0
        self.why_not = why_not
        self.trouble: Exception | None = None
        self.names: wire.Names = ()
        self._events = Events()

    def take(self, piece: bytes) -> bytes:
        ready = [event for event in self._come(piece) if self._is_good(event)]
        self.finished = self.finished or wire.DONE in ready
        return self._forward(ready)

    def cut(self) -> None:
        """Its engine is lost, and with it whatever was not committed."""
        self._events.clear()
        self.trouble = None

    def resumption(self) -> Resumption | None:
        return None

    def _come(self, piece: bytes) -> list[bytes]:
        """Events, by the client's name for the request."""
        events, names = self._events.feed(piece), self.names
        return [wire.renamed(event, names) for event in events] if names else events

    def _is_good(self, event: bytes) -> bool:
        """Nothing of a piece counts from the first event on that does not."""
        if self.trouble is None and wire.is_abort(event):
            self.trouble = AbortedError()
        return self.trouble is None

    def _forward(self, events: list[bytes]) -> bytes:
        if self._events.is_too_long and self.trouble is None:
            self.trouble = MalformedError(f"an event of more than {MOST_EVENT_BYTES >> 20} MiB")
        if not events:
            return b""
        events.append(b"")
        said = b"\n\n".join(events)
        self.forwarded += len(said)
        return said


class ChatJournal(PassingJournal):
    """Of a chat stream with commit records."""

    def __init__(self) -> None:
        super().__init__("")
        self._ids = array("I")
        self._cuts = array("I")  # tokens, characters, tokens, characters, ...
        self._pending: list[bytes] = []
        self._created: bytes | None = None
        self._created_next: bytes | None = None
        self._elsewhere = False  # than where it began
        self._resumed = False  # and nothing has come of it yet

    def take(self, piece: bytes) -> bytes:
        ready: list[bytes] = []
        for event in self._come(piece):
            if event.startswith(RECORD_PREFIX):
                self._commit(event)
            elif event == wire.DONE:
                self._pending.append(event)
                self.finished = True
            elif (self._resumed or b'"abort"' in event) and not self._is_good(event):
                break
            else:
                self._hold(event)
                if not self.why_not:
                    continue
            ready += self._pending
            self._pending.clear()
        return self._forward(ready)

    def cut(self) -> None:
        super().cut()
        self._pending.clear()
        self._created_next = None
        self._elsewhere = self._resumed = True

    def resumption(self) -> Resumption | None:
        if not self._ids:
            return None
        flat = self._cuts.tolist()
        return Resumption(tuple(self._ids), tuple(zip(flat[::2], flat[1::2], strict=True)))

    def _is_good(self, event: bytes) -> bool:
        if super()._is_good(event) and self._resumed and event.startswith(wire.ERROR):
            self.trouble = _refusal(event)
        return self.trouble is None

    def _hold(self, event: bytes) -> None:
        if self._created is None:
            self._created = wire.created_in(event)
        elif self._elsewhere and self._created_next is None:
            self._created_next = wire.created_in(event)
        if self._resumed and not self._ids and self.forwarded and b'"role":"assistant"' in event:
            return  # made anew after it was told who speaks
        self._pending.append(event)
        if len(self._pending) > MOST_UNCOMMITTED and not self.why_not:
            self._give_up("came from an engine that writes no commit records")

    def _commit(self, event: bytes) -> None:
        self._resumed = False
        if self.why_not:
            return
        try:
            # As `resumption.decode_record` reads it, at a tenth of its cost: this runs for every step of every stream.
            said = orjson.loads(event[_PREFIX_BYTES:])
            ids, chars = said["ids"], said["chars"]
            self._ids.extend(ids)  # refuses what is no count
            self._cuts.append(len(ids))
            self._cuts.append(chars)
        except (orjson.JSONDecodeError, KeyError, TypeError, OverflowError):
            self._give_up("has a commit record that cannot be read")
            return
        if max(len(self._ids), len(self._cuts) // 2) > MOST_TOKENS:
            self._give_up(f"is longer than {MOST_TOKENS:,} tokens")

    def _give_up(self, why: str) -> None:
        self.why_not = why
        self._ids = array("I")
        self._cuts = array("I")

    def _forward(self, events: list[bytes]) -> bytes:
        said = super()._forward(events)
        if said and self._created and self._created_next:
            said = said.replace(self._created_next, self._created)
        return said


class GenerateJournal(PassingJournal):
    """Of a /generate stream, whose every event holds text, token ids and log-probabilities from the first token on."""

    def __init__(self) -> None:
        super().__init__("")
        self._last = b""  # the last event forwarded, as the client has it
        self._before: dict[str, Any] | None = None  # `_last` at the cut, until an event says more

    def take(self, piece: bytes) -> bytes:
        ready = []
        for event in self._come(piece):
            if event == wire.DONE:
                self.finished = True
            elif not self._is_good(event):
                break
            elif event.startswith(b"data: "):
                mended = self._mend(event)
                if self.trouble is not None:
                    break
                if mended is None:
                    continue
                self._keep(mended)
                ready.append(mended)
                continue
            ready.append(event)
        return self._forward(ready)

    def cut(self) -> None:
        super().cut()
        self._before = before = _read(self._last)
        self.finished = self.finished or _is_final(before)
        if self._last and not self.finished and (before is None or len(self._committed()) != _tokens(before)):
            self.why_not = "does not carry every token in each event"

    def resumption(self) -> Resumption | None:
        ids = self._committed()
        return Resumption(tuple(ids)) if ids else None

    def _committed(self) -> list[int]:
        return list(committed_ids(self._before)) if self._before and self._before.get("output_ids") else []

    def _keep(self, event: bytes) -> None:
        if len(event) > MOST_KEPT_BYTES:
            self.why_not = f"has events of more than {MOST_KEPT_BYTES >> 20} MiB"
        self._last = b"" if self.why_not else event

    def _mend(self, event: bytes) -> bytes | None:
        """As the client knows its stream; None for an event that says less than it already has."""
        before = self._before
        if before is None:
            return event
        said = _read(event)
        if said is None:
            self.trouble = MalformedError("an event of a continued stream that is no JSON object")
            return None
        self.trouble = _no_in(said, event)
        if self.trouble is not None:
            return None
        if says_less(said, before.get("text") or ""):
            return None
        if not any(rows and name.endswith("_logprobs") for name, rows in before["meta_info"].items()):
            self._before = None  # nothing of the past has to be put back into the events to come
            return event
        said = with_earlier_logprobs(said, before, len(self._committed()))
        return b"data: " + orjson.dumps(said)


def _read(event: bytes) -> dict[str, Any] | None:
    try:
        said = orjson.loads(event.removeprefix(b"data: "))
    except orjson.JSONDecodeError:
        return None
    return said if isinstance(said, dict) else None


def _no_in(said: dict[str, Any], event: bytes) -> Exception | None:
    """To a resumption."""
    status = wire.abort_status(said)  # a scheduler's no has the form of an answer's end
    if status is not None and status >= 500:
        return AbortedError()
    return _refusal(event) if "error" in said or "meta_info" not in said or status is not None else None


def _refusal(event: bytes) -> ResumptionRefusedError:
    return ResumptionRefusedError(event[:500].decode(errors="replace"))


def _tokens(event: dict[str, Any]) -> int | None:
    """None where it does not say."""
    count = (event.get("meta_info") or {}).get("completion_tokens")
    return count if isinstance(count, int) else None


def _is_final(event: dict[str, Any] | None) -> bool:
    return event is not None and ("error" in event or bool((event.get("meta_info") or {}).get("finish_reason")))
