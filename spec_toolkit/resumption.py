"""How a stream that one engine began is told to the next: what has been committed, in words both sides of the wire read. Pure.

A *step* is one pass of the engine over a chat stream: some tokens, and how many characters of raw text they gave to the parsers. After
the events of an unfinished step the engine writes its commit record, an SSE comment:

    : resume {"ids":[17,4],"chars":7}

Events stand once the record behind them has arrived. To go on elsewhere, the same request is sent with every committed id and, for chat,
the cut points of the steps, because tool parsers depend on where a chunk ends:

    "custom_params": {"resume_ids": [17,4,9], "resume_steps": [2,7,1,0], "resume_records": true}

It stands in the lowest layer because the writer (`plugin`) and the reader (`gateway`) may not import each other.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

IDS_KEY = "resume_ids"  # token ids the client already has, in order
STEPS_KEY = "resume_steps"  # tokens, characters, tokens, characters, ...; only chat has parsers to prime
RECORDS_KEY = "resume_records"  # true: write commit records; without it a stream is what the engine alone would send
KEYS = frozenset((IDS_KEY, STEPS_KEY, RECORDS_KEY))
RECORD_PREFIX = b": resume "

MOST_IDS = 1 << 20  # tokens; more than any context there is
_LARGEST = 1 << 31


class BadResumptionError(ValueError):
    """What was sent cannot be resumed from; the message is for whoever sent it."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one commit record says."""

    ids: tuple[int, ...]
    chars: int  # of raw text; 0 while a character is incomplete


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where a stream stands."""

    ids: tuple[int, ...]  # at least one: a stream cut before its first token is a new request
    cuts: tuple[tuple[int, int], ...] = ()  # (tokens, characters) of each step; empty: /generate

    @property
    def chars(self) -> int:
        return sum(chars for _, chars in self.cuts)


def encode_record(step: Step) -> str:
    body = json.dumps({"ids": step.ids, "chars": step.chars}, separators=(",", ":"))
    return f"{RECORD_PREFIX.decode()}{body}\n\n"


def decode_record(line: bytes) -> Step | None:
    """None for a line that is no record, such as another comment. BadResumptionError for a record that is broken."""
    if not line.startswith(RECORD_PREFIX):
        return None
    try:
        said = json.loads(line[len(RECORD_PREFIX) :])
        ids, chars = said["ids"], said["chars"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadResumptionError(f"a commit record cannot be read: {line[:200]!r}. [resume.record]") from error
    if not (_is_counts(ids) and _is_counts([chars])):
        raise BadResumptionError(f"a commit record holds more than counts: {line[:200]!r}. [resume.record]")
    return Step(tuple(ids), chars)


def resumption_after(steps: Iterable[Step]) -> Resumption | None:
    """None while no token has been committed: the request is then made anew."""
    every = tuple(steps)
    ids = tuple(token for step in every for token in step.ids)
    return Resumption(ids, tuple((len(step.ids), step.chars) for step in every)) if ids else None


def encode_params(resumption: Resumption) -> dict[str, list[int]]:
    """The keys of `custom_params` that make the engine go on."""
    ids = {IDS_KEY: list(resumption.ids)}
    flat = [number for cut in resumption.cuts for number in cut]
    return {**ids, STEPS_KEY: flat} if flat else ids


def decode_params(params: object) -> Resumption | None:
    """None where nothing is to be resumed. BadResumptionError where the keys are there and do not fit together."""
    if not isinstance(params, Mapping) or not {IDS_KEY, STEPS_KEY} & params.keys():
        return None
    ids, flat = params.get(IDS_KEY), params.get(STEPS_KEY, [])
    if not _is_counts(ids) or not ids or len(ids) > MOST_IDS:
        raise BadResumptionError(
            f"{IDS_KEY}: is no list of 1 to {MOST_IDS:,} token ids. Leave it out of a new request. [resume.ids]"
        )
    # A step without a token is possible (a parser that lets go of what it held), but no stream is made of them.
    if not _is_counts(flat) or len(flat) % 2 or len(flat) > 4 * len(ids) + 64:
        raise BadResumptionError(
            f"{STEPS_KEY}: is no list of counts, tokens and characters in turn, two for each step. [resume.steps]"
        )
    cuts = tuple(zip(flat[::2], flat[1::2], strict=True))
    tokens = sum(cut[0] for cut in cuts)
    if cuts and tokens != len(ids):
        raise BadResumptionError(
            f"{STEPS_KEY}: holds {tokens} tokens, {IDS_KEY} {len(ids)}; a parser would be primed with another text. "
            "Send both as they were committed. [resume.steps]"
        )
    return Resumption(tuple(ids), cuts)


def asks_records(params: object) -> bool:
    return isinstance(params, Mapping) and params.get(RECORDS_KEY) is True


def without_keys(params: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in params.items() if key not in KEYS}


def _is_counts(value: object) -> bool:
    """A list of whole numbers from 0 up; a boolean is none, though Python counts with it."""
    return isinstance(value, list) and all(type(number) is int and 0 <= number < _LARGEST for number in value)
