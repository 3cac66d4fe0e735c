"""A draft that fails costs its drafts, never the process: what was caught, what follows from it, what is said of it. Version-free.

Verification makes every emitted token the target's own, whatever was drafted, as long as all ranks that share a batch verify the
same drafts. So a fault in the draft is survived by a round whose drafts are worthless, and the mode falls to zero until a newer
command. One rank falls at once. Several must fall before the same round: each feeds a vote (`plugin.health`) that they all read
after the same number of rounds, or, as the recipe says, the engine ends.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Protocol

from spec_toolkit.handover import RANKS_AFTER_FAULT_VARIABLE
from spec_toolkit.plugin.knob import KNOB, Knob
from spec_toolkit.terms import DraftPart, RanksAfterFault, Signal

_LOG = logging.getLogger("spec_toolkit")
_TEXT = 200  # characters of the last fault that are kept


class DraftFaultError(RuntimeError):
    """Raised where the engine is to end; its text is the last line of the engine's log."""


class AfterFault(Enum):
    """What follows a fault on this rank."""

    FALL = "fall"  # one rank: zero drafts from here on
    VOTE = "vote"  # several: worthless drafts until all of them have read the vote
    END = "end"


class Health(Protocol):
    """The device's side: `plugin.health.Health`, or a stand-in where there is no device."""

    def begin(self) -> None: ...

    def end(self, part: DraftPart, epoch: int) -> None: ...

    def check(self, values: Any) -> None: ...

    def spoil(self, epoch: int) -> None: ...

    def settle(self) -> int | None: ...

    def counts(self) -> dict[str, int]: ...


class DraftKv(Protocol):
    """`plugin.draft_kv.DraftKv`, or a stand-in."""

    def suspect(self) -> None: ...

    def count(self) -> int: ...


class Faults:
    """One in each scheduler process. Reports nothing and changes nothing until it is installed."""

    def __init__(self, knob: Knob) -> None:
        self._knob = knob
        self._health: Health | None = None
        self._kv: DraftKv | None = None
        self._after = AfterFault.FALL
        self._part: DraftPart | None = None  # the part of the draft that runs
        self._caught = dict.fromkeys(DraftPart, 0)
        self._last = ""
        self._seen = 0  # exceptions, and
        self._found: dict[str, int] = {}  # counts on the device, when a vote last told of a fault
        self._checks = 0

    def install(self, health: Health, kv: DraftKv, after: AfterFault) -> None:
        self._health, self._kv, self._after = health, kv, after

    @property
    def installed(self) -> bool:
        return self._health is not None

    @property
    def holds(self) -> bool:
        """Whether a fault keeps the drafts away: the same on every rank that shares rounds."""
        return self._knob.setting is not None and bool(self._knob.setting.reason)

    @property
    def epoch(self) -> int:
        """Of the command in force; 0 where there is none."""
        return self._knob.setting.epoch if self._knob.setting is not None else 0

    @contextmanager
    def running(self, part: DraftPart) -> Iterator[None]:
        """While a part of the draft runs; what is checked meanwhile counts as its own."""
        health = self._known_health()
        health.begin()
        self._part = part
        try:
            yield
        finally:
            self._part = None
        health.end(part, self.epoch)  # not after an exception: that spoils the whole part

    @contextmanager
    def captured(self, part: DraftPart) -> Iterator[None]:
        """While a part is captured in a graph. Its checks are captured too, and look whenever it is replayed, which `running` surrounds."""
        before, self._part = self._part, part
        try:
            yield
        finally:
            self._part = before

    def check(self, values: Any) -> bool:
        """Values that the draft computed, on the device, put right in place; False where no part of the draft runs or is captured."""
        if self._part is None:
            return False
        self._checks += 1
        self._known_health().check(values)
        return True

    def caught(self, part: DraftPart, error: Exception) -> None:
        """An exception ended this part. Returns where the round goes on without drafts; else raises DraftFaultError."""
        self._caught[part] += 1
        self._last = f"{part.value}: {type(error).__name__}: {error}".replace("\n", " ")[:_TEXT]
        if self._after is AfterFault.END:
            raise self._end(self._last) from error
        if _is_power_of_two(self._caught[part]):  # a fault in every round would fill the disk
            _LOG.warning("Draft fault %s (%s), %s", self._caught[part], self._last, _place(error))
        self._known_health().spoil(self.epoch)
        if self._after is AfterFault.FALL:
            self._knob.fall(Signal.DRAFT_FAULT.value)

    def settle(self) -> None:
        """Before each round, on every rank of the engine: fall if the vote of some rounds ago tells of a fault.

        Not if a newer command came since: whoever sent it may know of the fault, and finds it counted if not.
        """
        health = self._known_health()
        epoch = health.settle()
        if epoch is None:
            return
        what = self._name_it(health)
        if self._after is AfterFault.END:
            raise self._end(what)
        if self._kv is not None:
            self._kv.suspect()
        if epoch < self.epoch:
            return
        if not self.holds:
            _LOG.warning("Draft fault (%s): no drafts until a newer command", what)
        self._knob.fall(Signal.DRAFT_FAULT.value)

    def count(self, part: DraftPart) -> int:
        """Exceptions caught in this part."""
        return self._caught[part]

    def row(self) -> dict[str, object]:
        """What this rank reports beside the knob's row. Empty while not installed.

        Waits for the device. With the overlap schedule on a GPU that may be for the round in flight: unproven, there was none to see it on.
        """
        if self._health is None or self._kv is None:
            return {}
        caught = {part.value: count for part, count in self._caught.items()}
        found = {**caught, **self._health.counts()}
        return {
            "draft_faults": {name: count for name, count in found.items() if count},
            "draft_kv_missing": self._kv.count(),
            "draft_checks": self._checks,  # how often values were looked at, or a look captured; replays are not counted
            "last_fault": self._last,
        }

    def _name_it(self, health: Health) -> str:
        """The fault that a vote told of; waits for the device, as only a round after a fault does."""
        now, seen, self._seen = health.counts(), self._seen, sum(self._caught.values())
        risen = [name for name, count in now.items() if count > self._found.get(name, 0)]
        self._found = now
        if risen:
            self._last = ", ".join(risen)
        return self._last if risen or self._seen > seen else "on another rank"

    def _known_health(self) -> Health:
        if self._health is None:
            raise RuntimeError("faults are isolated before isolation was installed")
        return self._health

    @staticmethod
    def _end(what: str) -> DraftFaultError:
        return DraftFaultError(
            f"draft fault ({what}); ranks that verify different drafts would answer with wrong tokens, and this engine was started "
            "to end rather than vote. It comes back by itself, without drafts first. [faults.end-engine]"
        )


def after_fault(ranks: int, environment: Mapping[str, str], *, prefills_apart: bool) -> AfterFault:
    """`ranks`: those that run each round together; `prefills_apart`: one may prefill while the others verify.

    ValueError where the environment names no choice of ours, DraftFaultError where ranks could not vote together.
    """
    if prefills_apart and ranks > 1:
        raise DraftFaultError(
            "coordination of prefills and verify passes is on: a rank that prefills does not vote, and the ranks that verify would "
            "wait for its vote until the watchdog ends the engine. Unset SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION. "
            "[faults.prefill-coordination]"
        )
    choice = RanksAfterFault(environment.get(RANKS_AFTER_FAULT_VARIABLE) or RanksAfterFault.VOTE.value)
    if ranks == 1:
        return AfterFault.FALL
    return AfterFault.VOTE if choice is RanksAfterFault.VOTE else AfterFault.END


def nothing_more(_: Any) -> None:
    """For `survive`, where what was made needs no look."""


def survive(
    faults: Faults,
    part: DraftPart,
    run: Callable[[], Any],
    otherwise: Callable[[], Any],
    *,
    and_then: Callable[[Any], None] = nothing_more,
) -> Any:
    """What `run` returns, after `and_then` looked at it; where either fails, what `otherwise` returns."""
    try:
        with faults.running(part):
            made = run()
            and_then(made)
    except Exception as error:  # noqa: BLE001 - whatever it is, the tokens do not depend on the draft
        faults.caught(part, error)
        return otherwise()
    return made


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0


def _place(error: Exception) -> str:
    """Where it was raised: `file.py:12 in name`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"


FAULTS = Faults(KNOB)  # one per process, as the knob
