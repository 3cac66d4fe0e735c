"""What was measured for a recipe: one file, written by a tool, of a single target, draft, machine and acceptance rule.

`read_evidence` touches the disk; the records are pure. A figure is worth only as much as what it was measured on, so the file opens
with that, and a file that contradicts itself cannot be read. One row at least is of an engine without speculation: without it there is
no break-even.
"""

import math
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import Struct

from spec_toolkit.errors import FactsError
from spec_toolkit.terms import Acceptance, Method

_CLOSE = 0.05  # tokens; emitted length and survival may be of windows that differ by a few rounds


class Prompts(Enum):
    """What the requests were made of. A draft cannot foresee random tokens, so they say nothing about acceptance."""

    RECORDED = "recorded"  # of real users
    DATASET = "dataset"
    RANDOM_TOKENS = "random_tokens"


class Workload(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str  # in words: "coding, 80 prompts"
    prompts: Prompts
    prompt_tokens: int | None = None  # mean
    output_tokens: int | None = None  # mean
    temperature: float | None = None
    reasoning: bool | None = None  # whether the model thinks before it answers: thinking is predicted worse


class TargetMeasured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str
    revision: str  # a commit, or "sha256:..." of a folder
    quantization: str | None  # as the recipe had it; None: left open


class DraftMeasured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    method: Method
    model: str  # "same": it ships in the target's checkpoint
    revision: str | None = None  # of a separate draft model
    topk: int = 1
    num_draft_tokens: int | None = None  # of a tree, root included; a chain's follows from each row's steps


class LayoutMeasured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tp: int
    dp: int = 1
    ep: int = 1
    dp_attention: bool = False
    dp_lm_head: bool = False
    moe_a2a_backend: str | None = None


class Identity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the rows are true of, and of nothing else."""

    target: TargetMeasured
    draft: DraftMeasured
    gpu: str  # a recipe's word
    count: int  # per node
    nodes: int = 1
    layout: LayoutMeasured
    acceptance: Acceptance
    accept_threshold_single: float | None = None  # None: the engine's own, which is 1
    accept_threshold_accumulated: float | None = None  # as above
    sglang: str  # version of the engine
    workload: Workload


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One steady load on one engine."""

    batch: int  # requests in a round
    num_steps: (
        int | None
    )  # drafts in a chain or block; None: an engine without speculation; 0: one with it that drafts nothing
    tokens_per_second: float  # of all requests together
    emitted_length: float | None = None  # tokens per round, bonus included; None without speculation
    survival: tuple[float, ...] | None = (
        None  # share of rounds that accept all drafts up to it, per position, [num_steps]
    )
    rounds: int | None = None  # sample size of the two above
    tokens: int | None = None  # sample size of the speed


class Evidence(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    identity: Identity
    rows: tuple[Row, ...]
    simulated: bool  # acceptance was faked by the engine: never used

    @property
    def has_autoregressive_row(self) -> bool:
        return any(row.num_steps is None for row in self.rows)


def read_evidence(path: Path) -> Evidence:
    """FactsError names the file and the place in it."""
    try:
        evidence = msgspec.json.decode(path.read_bytes(), type=Evidence)
    except FileNotFoundError:
        raise _unreadable(path, "no such file") from None
    except OSError as error:
        raise _unreadable(path, f"cannot be read ({error.strerror})") from None
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at ")
        raise _unreadable(path, f"{place.strip('`') or '$'}: {said[:1].lower()}{said[1:]}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _unreadable(path, f"is not JSON ({error})") from None
    problems = tuple(contradictions(evidence))
    if problems:
        raise FactsError(*(finding for problem in problems for finding in _unreadable(path, problem).findings))
    return evidence


def contradictions(evidence: Evidence) -> Iterator[str]:
    """`place: what cannot be`, in the order of the file."""
    if not evidence.rows:
        yield "$.rows: is empty, and one row at least is needed"
    seen: dict[tuple[int, int | None], int] = {}
    for number, row in enumerate(evidence.rows):
        where = f"$.rows[{number}]"
        yield from (f"{where}.{problem}" for problem in _of_row(row))
        first = seen.setdefault((row.batch, row.num_steps), number)
        if first != number:
            yield f"{where}: has the batch and the steps of $.rows[{first}]"
    draft = evidence.identity.draft
    if draft.topk > 1 and draft.num_draft_tokens is None:
        yield "$.identity.draft.num_draft_tokens: is left out, and a tree's width does not follow from its steps"
    for key in ("tp", "dp", "ep"):
        yield from _at_least_one(f"$.identity.layout.{key}", getattr(evidence.identity.layout, key))
    for key in ("count", "nodes"):
        yield from _at_least_one(f"$.identity.{key}", getattr(evidence.identity, key))


def _of_row(row: Row) -> Iterator[str]:
    yield from _at_least_one("batch", row.batch)
    for key in ("rounds", "tokens"):
        value = getattr(row, key)
        if value is not None:
            yield from _at_least_one(key, value)
    if not (math.isfinite(row.tokens_per_second) and row.tokens_per_second > 0):
        yield f"tokens_per_second: is {row.tokens_per_second}, and a speed is above 0"
    yield from _autoregressive(row) if row.num_steps is None else _speculating(row, row.num_steps)


def _autoregressive(row: Row) -> Iterator[str]:
    for key in ("emitted_length", "survival", "rounds"):
        if getattr(row, key) is not None:
            yield f"{key}: is written in an autoregressive row, which has no rounds"


def _speculating(row: Row, num_steps: int) -> Iterator[str]:
    length = row.emitted_length
    if num_steps < 0:
        yield f"num_steps: is {num_steps}, and the least is 0"
    elif length is None:
        yield "emitted_length: is left out; a row of an engine that speculates needs it"
    elif not 1 <= length <= num_steps + 1:
        yield f"emitted_length: is {length}; with num_steps {num_steps} it lies from 1 to {num_steps + 1}"
    elif row.survival is not None:
        yield from _of_survival(row.survival, num_steps, length)


def _of_survival(survival: Sequence[float], num_steps: int, emitted_length: float) -> Iterator[str]:
    whole = (1.0, *survival)
    if len(survival) != num_steps:
        yield f"survival: has {len(survival)} positions, and num_steps is {num_steps}"
    elif not all(0 <= share <= 1 for share in survival) or any(a < b for a, b in pairwise(whole)):
        yield "survival: falls from position to position and stays within 0 and 1"
    elif abs(sum(whole) - emitted_length) > _CLOSE:
        yield f"survival: adds up to an emitted length of {sum(whole):.2f}, and emitted_length is {emitted_length:.2f}"


def _at_least_one(where: str, value: int) -> Iterator[str]:
    if value < 1:
        yield f"{where}: is {value}, and the least is 1"


def _unreadable(path: Path, found: str) -> FactsError:
    remedy = "Let the tool write it again, or leave 'evidence' out of the recipe."
    return FactsError.of("facts.evidence", str(path), found, remedy=remedy)
